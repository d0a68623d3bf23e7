#include "fuzz/call/refusals.h"

#include <cstring>
#include <limits>

#include "attn/index_page.h"
#include "attn/mask.h"
#include "attn/page_table.h"
#include "attn/request_terms.h"
#include "fuzz/call/call_members.h"
#include "fuzz/call/gapped.h"
#include "fuzz/call/member_breakages.h"

namespace shadowgraph {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using Ways = MemberBreakages;

/// A table's elements, dense, with another one.
void set_element(Spoils* s, ConstTensorView* table, int64_t i, int64_t j, int32_t value) {
  const std::vector<std::byte> bytes = gather(*table);
  auto& copy = s->numbers.emplace_back(bytes.size() / sizeof value);
  std::memcpy(copy.data(), bytes.data(), bytes.size());
  *table = {copy.data(), table->dtype, {table->shape[0], table->shape[1]}};
  copy[static_cast<size_t>(table->offset(i, j))] = value;
}

/// The first two places where keeps(place) is true.
template <class Keeps>
std::pair<int64_t, int64_t> first_two(int64_t count, const Keeps& keeps) {
  int64_t first = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (!keeps(i)) continue;
    if (first >= 0) return {first, i};
    first = i;
  }
  return {-1, -1};
}

/// Two entries of a list become one.
template <class T, class Keeps>
void add_twice(Ways& w, Spoils* s, const char* name, LawId law, std::span<const T>* list,
               const Keeps& keeps) {
  const auto [first, second] = first_two(std::ssize(*list), keeps);
  if (second < 0) return;
  w.add(name, law, [s, list, first = static_cast<size_t>(first), second = second] {
    s->set(list, static_cast<size_t>(second), (*list)[first]);
  });
}

// ---- dense attention, merges and gates

/// A list that is one entry short.
template <class T>
void add_short(Ways& w, const char* name, LawId law, std::span<const T>* list) {
  if (list->size() > 1) w.add(name, law, [list] { *list = list->first(list->size() - 1); });
}

void add_terms(Ways& w, AttentionTerms& t) {
  constexpr LawId kTerms = "param.terms";
  add_short(w, "a slope too few", kTerms, &t.alibi_slopes);
  add_short(w, "a bias of a key too few", kTerms, &t.key_bias);
  add_short(w, "a bias of queries too few", kTerms, &t.qq_bias);
  add_short(w, "a bias of distances too few", kTerms, &t.relative_bias);
  add_short(w, "a request without causal", kTerms, &t.request_causal);
  add_short(w, "a request without padding", kTerms, &t.cache_leftpad);
  add_short(w, "half a range", kTerms, &t.bidirectional_ranges);
  add_short(w, "a length too few", kTerms, &t.seqused_q);
  w.add("a temperature from 1 on", kTerms, [&t] { t.temperature_len = 1; });
  w.add("a chunk below 0", kTerms, [&t] { t.attention_chunk = -1; });
  w.add("chunks before its own, of none", kTerms,
        [&t] { t.attention_chunk = 0, t.chunk_lookback = 1; });
}

void add_params(Ways& w, AttentionParams& p) {
  w.add("a window of -2 before", "param.window", [&p] { p.window_left = -2; });
  w.add("a window of -2 behind", "param.window", [&p] { p.window_right = -2; });
  w.add("a cap that is no number", "param.soft_cap", [&p] { p.logits_soft_cap = kNaN; });
  w.add("heads that do not divide", "param.heads", [&p] { p.num_kv_heads = p.num_qo_heads + 1; });
  w.add("no channels", "param.head_dim", [&p] { p.head_dim_vo = 0; });
  if (p.sinks.size() > 1)
    w.add("a sink too few", "param.sinks", [&p] { p.sinks = p.sinks.first(p.sinks.size() - 1); });
  add_terms(w, p.terms);
  CustomMask& mask = p.custom_mask;
  if (mask.kind == CustomMask::Kind::kNone) return;
  w.add("a mask for a request too few", "len.batch",
        [&mask] { mask.mask_indptr = mask.mask_indptr.first(mask.mask_indptr.size() - 1); });
  if (mask.data.empty()) return;
  w.add("a mask a byte short", "mask.size",
        [&mask] { mask.data = mask.data.first(mask.data.size() - 1); });
  w.add("a mask a byte long", "mask.size", [&mask] {
    mask.data = {mask.data.data(), mask.data.size() + 1};
  });
}

template <class Call>
void add_attention(Ways& w, Call& c) {
  add_params(w, c.params);
  w.add("queries below 0", "len.negative", [&c] { c.max_seqlen_q = -1; });
  add_short(w, "an offset too few", "len.batch", &c.cu_seqlens_q);
  if (c.q.shape[0] > 0)
    w.add("the last row cut off", "len.total", [&c] {
      --c.q.shape[0], --c.out.shape[0];
      if (c.lse.tensor.defined()) --c.lse.tensor.shape[0];
    });
  if (c.q.numel() > 0 && !c.options.scratch.empty())
    w.add("scratch over q", "input.alias", [&c] {
      c.options.scratch = {const_cast<std::byte*>(c.q.data), 1};
    });
}

/// The table's entry of a key that some query sees, by the mask's closed form.
void add_pages(Ways& w, Spoils* s, PagedAttention& c) {
  const bool dense = c.pages.form == PageTable::Form::kDense;
  std::span<const int32_t>* ids = dense ? &c.pages.page_table : &c.pages.kv_indices;
  for (int64_t r = 0; r < c.pages.batch(); ++r) {
    const auto i = static_cast<size_t>(r);
    const bool decode = c.cu_seqlens_q.empty();
    const int32_t rows = decode ? 1 : c.cu_seqlens_q[i + 1] - c.cu_seqlens_q[i];
    const int32_t q_len = used_rows(c.params.terms.seqused_q, i, rows);
    const RequestPages pages = request_pages(c.pages, c.cache.page_size, r);
    const KvRange keys = kv_range(MaskShape::of(c.params, r, q_len, pages.kv_len), 0, q_len);
    if (keys.size() == 0) continue;
    const auto place =
        static_cast<size_t>(pages.page_ids - ids->data() + keys.begin / c.cache.page_size);
    const auto end = static_cast<int32_t>(c.cache.num_pages);
    w.add("a page behind the pool", "table.page_id",
          [s, ids, place, end] { s->set(ids, place, end); });
    w.add("page -1 of a key in reach", "table.page_id",
          [s, ids, place] { s->set(ids, place, -1); });
    return;
  }
}

void add_own(Ways& w, Spoils* s, PagedAttention& c) {
  add_attention(w, c);
  add_pages(w, s, c);
  w.add("no page size", "input.shape", [&c] { c.cache.page_size = 0; });
  w.add("KV heads that the cache does not have", "input.shape", [&c] { ++c.cache.num_kv_heads; });
  if (!c.plan.empty())
    w.add("a plan of another header", "input.plan", [s, &c] { s->set(&c.plan, 0, c.plan[0] + 1); });
  PageTable& t = c.pages;
  if (!t.page_table.empty())
    w.add("a table without its end", "len.batch",
          [&t] { t.page_table = t.page_table.first(t.page_table.size() - 1); });
  for (size_t i = 0; i < t.last_page_len.size(); ++i) {
    if (t.kv_indptr[i] == t.kv_indptr[i + 1]) continue;
    w.add("a last page of none", "len.last_page", [s, &t, i] { s->set(&t.last_page_len, i, 0); });
    w.add("a last page that is too long", "len.last_page",
          [s, &c, &t, i] { s->set(&t.last_page_len, i, c.cache.page_size + 1); });
    w.add("a page id too few", "len.total",
          [&t] { t.kv_indices = t.kv_indices.first(static_cast<size_t>(t.kv_indptr.back()) - 1); });
    break;
  }
}
void add_own(Ways& w, Spoils*, RaggedAttention& c) { add_attention(w, c); }
template <LseBase Base>
void add_own(Ways&, Spoils*, MergeStates<Base>&) {}
template <LseBase Base>
void add_own(Ways&, Spoils*, MergeState<Base>&) {}
void add_own(Ways& w, Spoils*, DecayGate& c) {
  w.add("a bound above 0", "param.scale",
        [&c] { c.kind = DecayGate::Kind::kLowerBound, c.lower_bound = 1; });
}

// ---- recurrences

template <class Call>
void add_rows(Ways& w, Spoils* s, Call& c, bool store) {
  const auto keeps = [&](int64_t r) { return c.rows.slot(r) >= 0 && c.rows.tokens(r) > 0; };
  if (store)
    add_twice(w, s, "two rows of one slot", "slot.duplicate", &c.rows.state_indices, keeps);
  if (c.rows.has_initial_state.size() > 1)
    w.add("a flag too few", "len.batch", [&c] {
      c.rows.has_initial_state =
          c.rows.has_initial_state.first(c.rows.has_initial_state.size() - 1);
    });
  int64_t longest = 0;
  for (int64_t r = 0; r < c.rows.rows(); ++r) longest = std::max(longest, c.rows.tokens(r));
  if (c.draft.states.defined() && longest > 1)
    w.add("a step too few", "len.capacity",
          [&c, longest] { c.draft.states.shape[1] = longest - 1; });
  for (int64_t r = 0; r < c.rows.rows() && !c.draft.parents.empty(); ++r) {
    if (c.rows.tokens(r) < 2) continue;
    w.add("a parent that is the token itself", "mask.tree",
          [s, &c, r] { s->set(&c.draft.parents, static_cast<size_t>(c.rows.begin(r)) + 1, 1); });
    break;
  }
}
void add_own(Ways& w, Spoils* s, LinearAttention& c) { add_rows(w, s, c, c.store); }
void add_own(Ways& w, Spoils* s, CausalConv1d& c) { add_rows(w, s, c, true); }

// ---- chosen keys

void add_own(Ways& w, Spoils* s, SparseAttention& c) {
  w.add("values wider than keys", "param.head_dim",
        [&c] { c.head_dim_v = static_cast<int32_t>(c.q.shape[2]) + 1; });
  if (c.sinks.size() > 1)
    w.add("a sink too few", "param.sinks", [&c] { c.sinks = c.sinks.first(c.sinks.size() - 1); });
  for (int64_t t = 0; t < c.q.shape[0]; ++t) {
    const int64_t begin = c.keys.begin(t);
    const auto [first, second] = first_two(
        c.keys.count(t), [&](int64_t j) { return c.keys.of(t)[static_cast<size_t>(j)] >= 0; });
    if (second < 0) continue;
    w.add("a slot that a token names twice", "list.duplicate",
          [s, &c, begin, first = first, second = second] {
            s->set(&c.keys.indices, static_cast<size_t>(begin + second),
                   c.keys.indices[static_cast<size_t>(begin + first)]);
          });
    break;
  }
}
template <class Store>
void add_slot_twice(Ways& w, Spoils* s, Store& c) {
  add_twice(w, s, "two tokens of one slot", "slot.duplicate", &c.out_cache_loc,
            [&](int64_t t) { return !c.drops(c.out_cache_loc[static_cast<size_t>(t)]); });
}
void add_own(Ways& w, Spoils* s, StoreKv& c) { add_slot_twice(w, s, c); }
void add_own(Ways& w, Spoils* s, CopyKv& c) {
  w.add("pages of another size", "input.shape", [&c] { c.source.page_size *= 2; });
  w.add("the whole pool, and a list", "input.shape", [s, &c] {
    c.whole_pool = true;
    c.source_pages = c.target_pages = s->numbers.emplace_back(1, 0);
  });
  add_twice(w, s, "two pages to one", "slot.duplicate", &c.target_pages,
            [](int64_t) { return true; });
}
void add_own(Ways& w, Spoils* s, PackLatents& c) { add_slot_twice(w, s, c); }
void add_own(Ways& w, Spoils* s, StoreIndexKeys& c) { add_slot_twice(w, s, c); }
void add_own(Ways&, Spoils*, ActQuant&) {}
void add_own(Ways&, Spoils*, SelectIndices&) {}

void add_own(Ways& w, Spoils* s, GatherIndexKeys& c) {
  if (c.cu_seqlens_k.back() > 0)
    w.add("keys beyond the table", "len.capacity", [&c] { c.page_table.shape[1] = 0; });
  for (int64_t r = 0; r < c.page_table.shape[0]; ++r) {
    const auto i = static_cast<size_t>(r);
    if (c.cu_seqlens_k[i] == c.cu_seqlens_k[i + 1]) continue;
    w.add("a page behind the pool", "table.page_id", [s, &c, r] {
      set_element(s, &c.page_table, r, 0, static_cast<int32_t>(c.pages.shape[0]));
    });
    break;
  }
}
void add_own(Ways& w, Spoils*, IndexerLogits& c) {
  w.add("keys in pages and beside them", "input.shape",
        [&c] { c.is_paged() ? void(c.k = c.q) : void(c.pages = c.k); });
}
void add_own(Ways& w, Spoils* s, TransformIndices& c) {
  if (c.page_table_1.defined()) {
    w.add("a table and offsets", "input.shape", [s, &c] {
      c.offsets = s->numbers.emplace_back(static_cast<size_t>(c.indices.shape[0]), 0);
    });
    if (c.indices.numel() > 0)
      w.add("an index behind the table", "table.capacity", [s, &c] {
        set_element(s, &c.indices, 0, 0, static_cast<int32_t>(c.page_table_1.shape[1]));
      });
    return;
  }
  if (c.indices.numel() > 0 && !c.offsets.empty() && c.offsets[0] > 0)
    w.add("an index that overflows", "len.overflow",
          [s, &c] { set_element(s, &c.indices, 0, 0, INT32_MAX); });
}
void add_own(Ways& w, Spoils*, CompactIndices& c) {
  if (c.kv_indptr.back() > 0)
    w.add("no room for an entry", "len.total",
          [&c] { c.kv_indices = c.kv_indices.first(static_cast<size_t>(c.kv_indptr.back()) - 1); });
}

// ---- the compressor

/// The first token of a row that is kept, or -1.
int64_t first_kept(const Compress& c, int64_t row) {
  const auto i = static_cast<size_t>(row);
  for (int64_t t = c.cu_seqlens_q[i]; t < c.cu_seqlens_q[i + 1]; ++t)
    if (!c.drops(t)) return t;
  return -1;
}
void add_own(Ways& w, Spoils* s, Compress& c) {
  w.add("ratio 8 of states", "input.shape", [&c] { c.shape.ratio = 8; });
  if (!c.seq_lens.empty())
    w.add("a length too few", "len.batch",
          [&c] { c.seq_lens = c.seq_lens.first(c.seq_lens.size() - 1); });
  const auto keeps = [&](int64_t row) { return first_kept(c, row) >= 0; };
  const auto [a, b] = first_two(c.rows(), keeps);
  if (b >= 0)
    w.add("a page of another request", "slot.duplicate", [s, &c, a = a, b = b] {
      s->set(&c.indices, static_cast<size_t>(first_kept(c, b)),
             c.indices[static_cast<size_t>(first_kept(c, a))]);
    });
  for (int64_t t = 0; t < std::ssize(c.indices); ++t) {
    if (c.drops(t)) continue;
    w.add("length 0", "len.negative",
          [s, &c, t] { s->set(&c.seq_lens, static_cast<size_t>(t), 0); });
    break;
  }
  for (int64_t t = 0; t < std::ssize(c.extra); ++t) {
    if (c.drops(t) || !c.reads_extra(t)) continue;
    w.add("a block before without a page", "slot.range",
          [s, &c, t] { s->set(&c.extra, static_cast<size_t>(t), -1); });
    break;
  }
}
template <class Norm>
void add_norm(Ways& w, Norm& c) {
  w.add("a rotation that is too wide", "input.shape",
        [&c] { c.freqs.shape[1] = c.out.shape[1] + 1; });
}
void add_own(Ways& w, Spoils*, PoolNormRope& c) {
  w.add("ratio 8 of windows", "input.shape", [&c] { c.shape.ratio = 8; });
  add_norm(w, c);
}
void add_own(Ways& w, Spoils*, NormRope& c) { add_norm(w, c); }

template <class AnyCall>
std::vector<Breakage> all_ways(AnyCall* call, Spoils* spoils) {
  MemberBreakages ways(spoils);
  std::visit(
      [&](auto& c) {
        visit_members(ways, c);
        add_own(ways, spoils, c);
      },
      *call);
  return ways.take();
}

}  // namespace

std::vector<Breakage> breakages(AttentionCall* call, Spoils* s) { return all_ways(call, s); }
std::vector<Breakage> breakages(MergeCall* call, Spoils* s) { return all_ways(call, s); }
std::vector<Breakage> breakages(StateCall* call, Spoils* s) { return all_ways(call, s); }
std::vector<Breakage> breakages(GateCall* call, Spoils* s) { return all_ways(call, s); }
std::vector<Breakage> breakages(SparseCall* call, Spoils* s) { return all_ways(call, s); }
std::vector<Breakage> breakages(CacheCall* call, Spoils* s) { return all_ways(call, s); }

}  // namespace shadowgraph
