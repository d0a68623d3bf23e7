#include <algorithm>
#include <functional>
#include <numeric>

#include "io/case_tensors.h"
#include "io/vector_families.h"

namespace shadowgraph {
namespace {

struct Fa3Case {
  DType dtype = DType::kBF16;
  int32_t batch = 0, page_size = 0, append_len = 0, attention_chunk = 0;
  std::vector<int32_t> q_lens, kv_lens_before, kv_lens;  // kv_lens: after the append
  AttentionParams params;
  bool packed = true;  // thd: requests one after the other; else bshd, all of one length
  bool split = false;
  int64_t rows = 0;  // of q, the sum of q_lens
};

void read_params(CaseReader& reader, Fa3Case* c) {
  AttentionParams& p = c->params;
  p.num_qo_heads = reader.integer("num_qo_heads", 1, kMaxVectorTokens);
  p.num_kv_heads = reader.integer("num_kv_heads", 1, kMaxVectorTokens);
  p.head_dim_qk = p.head_dim_vo = reader.integer("head_dim", 1, kMaxVectorTokens);
  p.sm_scale = reader.positive("sm_scale");
  p.causal = reader.flag("causal");
  p.window_left = reader.integer("window_left", -1, INT32_MAX);
  p.window_right = reader.integer("window_right", -1, INT32_MAX);
  p.logits_soft_cap = reader.not_negative("softcap");
  c->attention_chunk = reader.integer("attention_chunk", 0, INT32_MAX);
}

void read_layout(CaseReader& reader, Fa3Case* c) {
  c->dtype = reader.dtype("dtype");
  if (is_fp8(c->dtype)) reader.bad_field("dtype", "f16, bf16 or f32", "e4m3fn");
  const std::string layout = reader.text("q_layout");
  c->packed = layout == "thd";
  if (!c->packed && layout != "bshd") reader.bad_field("q_layout", "thd or bshd", "another");
  reader.known_text("lse_layout", c->packed ? "(Hq,total_q)" : "(B,Hq,s_q)");
  reader.known_text("lse_base", "e");
  c->split = reader.integer("num_splits_launched", 1, INT32_MAX) > 1;
}

/// After batch is known.
void read_lengths(CaseReader& reader, Fa3Case* c) {
  c->q_lens = reader.lengths("q_lens", c->batch);
  c->kv_lens_before = reader.lengths("kv_lens_before", c->batch);
  c->kv_lens = reader.lengths("kv_lens", c->batch);
  if (!reader.ok()) return;
  c->rows = std::accumulate(c->q_lens.begin(), c->q_lens.end(), int64_t{0});
  const auto grown = [&](int32_t before, int32_t after) { return after - before == c->append_len; };
  if (!std::equal(c->kv_lens_before.begin(), c->kv_lens_before.end(), c->kv_lens.begin(), grown)) {
    reader.bad_field("kv_lens", "kv_lens_before + append_len", "other lengths");
  }
  const auto differ = std::not_equal_to<>();
  if (!c->packed &&
      std::adjacent_find(c->q_lens.begin(), c->q_lens.end(), differ) != c->q_lens.end()) {
    reader.bad_field("q_lens", "one length in bshd", "several");
  }
}

Fa3Case read_metadata(CaseReader& reader) {
  Fa3Case c;
  read_params(reader, &c);
  read_layout(reader, &c);
  c.batch = reader.integer("batch", 1, kMaxVectorTokens);
  c.page_size = reader.integer("page_size", 1, kMaxVectorTokens);
  c.append_len = reader.integer("append_len", 0, kMaxVectorTokens);
  if (reader.ok()) read_lengths(reader, &c);  // lists of batch entries
  return c;
}

/// [rows, num_qo_heads, head_dim] of q or of an answer.
ConstTensorView read_rows(CaseReader& reader, const Fa3Case& c, std::string_view name,
                          DType dtype) {
  const int64_t heads = c.params.num_qo_heads, dim = c.params.head_dim_qk;
  if (c.packed) return reader.tensor(name, {dtype}, {c.rows, heads, dim});
  return merge_leading(reader.tensor(name, {dtype}, {c.batch, c.q_lens[0], heads, dim}));
}

/// [rows, num_qo_heads]
ConstTensorView read_lse(CaseReader& reader, const Fa3Case& c, std::string_view name, DType dtype) {
  const int64_t heads = c.params.num_qo_heads;
  if (c.packed) return swap_leading(reader.tensor(name, {dtype}, {heads, c.rows}));
  return rows_before_heads(reader, reader.tensor(name, {dtype}, {c.batch, heads, c.q_lens[0]}));
}

/// A cache plane with as many pages as `like`, if that is defined.
ConstTensorView read_plane(CaseReader& reader, const Fa3Case& c, std::string_view name,
                           const ConstTensorView& like = {}) {
  return reader.tensor(name, {c.dtype},
                       {like.defined() ? like.shape[0] : -1, c.page_size, c.params.num_kv_heads,
                        c.params.head_dim_qk});
}

/// Slots of the appended keys, request by request; empty if the table has no column for one.
std::vector<int64_t> append_slots(const Fa3Case& c, const PageIds& table) {
  std::vector<int64_t> slots;
  for (int32_t r = 0; r < c.batch; ++r) {
    const int32_t first = c.kv_lens_before[static_cast<size_t>(r)];
    for (int64_t token = first; token < int64_t{first} + c.append_len; ++token) {
      const int64_t column = token / c.page_size;
      if (column >= table.max_pages) return {};
      const int64_t page = table.ids[static_cast<size_t>(r * table.max_pages + column)];
      slots.push_back(page * c.page_size + token % c.page_size);
    }
  }
  return slots;
}

void read_append(CaseReader& reader, const Fa3Case& c, const PagedAttention& call,
                 const PageIds& table, const ConstTensorView& k_before, KernelVector* vector) {
  const auto read_new = [&](const char* name) {
    return merge_leading(reader.tensor(
        name, {c.dtype}, {c.batch, c.append_len, c.params.num_kv_heads, c.params.head_dim_qk}));
  };
  AppendedKeys appended;
  appended.store.k = read_new("k_new");
  appended.store.v = read_new("v_new");
  appended.k_after = read_plane(reader, c, "k_cache_after", k_before);
  appended.v_after = read_plane(reader, c, "v_cache_after", k_before);
  if (!reader.ok()) return;
  const std::vector<int64_t> slots = append_slots(c, table);
  if (slots.empty()) {
    return reader.bad_tensor("page_table", "a column for every appended key", "too few");
  }
  appended.store.out_cache_loc = reader.own(slots);
  appended.store.cache = call.cache;
  vector->appended = appended;
}

/// A query sees the keys of its own chunk; chunks begin at multiples of their length.
CustomMask chunk_mask(CaseReader& reader, const Fa3Case& c) {
  const int64_t chunk = c.attention_chunk;
  return packed_mask(reader, "attention_chunk", c.q_lens, c.kv_lens,
                     [&](size_t r, int64_t q, int64_t k) {
                       const int64_t position = q + c.kv_lens[r] - c.q_lens[r];
                       return position >= 0 && position / chunk == k / chunk;
                     });
}

void read_query_offsets(CaseReader& reader, const Fa3Case& c, PagedAttention* call) {
  std::vector<int32_t> q_indptr = indptr_of(c.q_lens);
  if (c.packed) {
    call->cu_seqlens_q = reader.indices("cu_seqlens_q", q_indptr);
  } else if (c.q_lens[0] != 1) {  // else a decode batch, which says so by giving no offsets
    call->cu_seqlens_q = reader.own(std::move(q_indptr));
  }
}

}  // namespace

bool is_fa3_case(const CaseReader& reader) { return reader.has("q_layout"); }

void read_fa3_vector(CaseReader& reader, KernelVector* vector) {
  vector->kind = reader.text("kind");
  Fa3Case c = read_metadata(reader);
  if (!reader.ok()) return;
  PagedAttention call;
  call.q = read_rows(reader, c, "q", c.dtype);
  const ConstTensorView k = read_plane(reader, c, "k_cache");
  call.cache = KvCache::nhd(cache_view(k), cache_view(read_plane(reader, c, "v_cache", k)));
  const PageIds table = read_page_ids(reader, "page_table", c.batch);
  reader.indices("cache_seqlens", c.kv_lens_before);
  if (c.append_len > 0) read_append(reader, c, call, table, k, vector);
  if (c.attention_chunk > 0) c.params.custom_mask = chunk_mask(reader, c);
  call.pages = PageTable::dense(table.ids, table.max_pages, reader.own(c.kv_lens));
  read_query_offsets(reader, c, &call);
  call.params = c.params;

  vector->dtype = c.dtype;
  vector->calls.emplace_back(call);
  Recorded gpu = recorded_by(c.split ? "fa3_split" : "fa3", "gpu");
  gpu.out = read_rows(reader, c, "out", c.dtype);
  gpu.lse = read_lse(reader, c, "lse", DType::kF32);
  vector->recorded.push_back(gpu);
  vector->out_ref = read_rows(reader, c, "out_ref", DType::kF32);
  vector->lse_ref = read_lse(reader, c, "lse_ref", DType::kF64);
}

}  // namespace shadowgraph
