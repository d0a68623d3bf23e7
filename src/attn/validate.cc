#include "attn/validate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attn/mask.h"
#include "attn/page_table.h"
#include "attn/tensor_check.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

constexpr int64_t kAny = TensorCheck::kAny;
constexpr int32_t kLargestHeadDim = 1024;

std::string text(double x) { return std::to_string(x); }

void check_scale(TensorCheck& c, const char* field, float scale) {
  if (std::isfinite(scale) && scale > 0) return;
  c.fail("param.scale", at(field), "finite, > 0", text(scale));
}

/// Heads and head dims. False if tensors cannot be held against them.
bool check_heads(TensorCheck& c, const AttentionParams& p) {
  bool usable = true;
  const auto fail = [&](LawId law, const char* field, const char* expected,
                        const std::string& got) {
    c.fail(law, at(field), expected, got);
    usable = false;
  };
  if (p.num_kv_heads <= 0) {
    fail("param.heads", "num_kv_heads", ">= 1", std::to_string(p.num_kv_heads));
  } else if (p.num_qo_heads <= 0 || p.num_qo_heads % p.num_kv_heads != 0) {
    fail("param.heads", "num_qo_heads", "a positive multiple of num_kv_heads",
         std::to_string(p.num_qo_heads) + " with " + std::to_string(p.num_kv_heads) + " KV heads");
  }
  if (p.head_dim_qk < 1 || p.head_dim_qk > kLargestHeadDim) {
    fail("param.head_dim", "head_dim_qk", "1..1024", std::to_string(p.head_dim_qk));
  }
  if (p.head_dim_vo < 1 || p.head_dim_vo > kLargestHeadDim) {
    fail("param.head_dim", "head_dim_vo", "1..1024", std::to_string(p.head_dim_vo));
  }
  return usable;
}

/// What can be said of a layer without its tensors. False if they cannot be held against it.
bool check_params(TensorCheck& c, const AttentionParams& p) {
  const bool usable = check_heads(c, p);
  const auto fail = [&](LawId law, const char* field, const char* expected,
                        const std::string& got) { c.fail(law, at(field), expected, got); };
  check_scale(c, "sm_scale", p.sm_scale);
  if (p.window_left < -1)
    fail("param.window", "window_left", ">= -1", std::to_string(p.window_left));
  if (p.window_right < -1)
    fail("param.window", "window_right", ">= -1", std::to_string(p.window_right));
  if (!std::isfinite(p.logits_soft_cap) || p.logits_soft_cap < 0) {
    fail("param.soft_cap", "logits_soft_cap", "finite, >= 0", text(p.logits_soft_cap));
  }
  if (!p.sinks.empty() && static_cast<int64_t>(p.sinks.size()) != p.num_qo_heads) {
    fail("param.sinks", "sinks", "one per query head", std::to_string(p.sinks.size()) + " logits");
  }
  for (size_t i = 0; i < p.sinks.size(); ++i) {
    if (std::isnan(p.sinks[i]) || p.sinks[i] == std::numeric_limits<float>::infinity()) {
      c.fail("param.sinks", at("sinks", i), "a number or -inf", text(p.sinks[i]));
    }
  }
  return usable;
}

/// An indptr of batch + 1 entries from 0, monotone, ending at `total` (kAny: anywhere).
bool check_indptr(TensorCheck& c, const char* field, std::span<const int32_t> indptr, int64_t batch,
                  int64_t total) {
  if (static_cast<int64_t>(indptr.size()) != batch + 1) {
    c.fail("len.batch", at(field), std::to_string(batch + 1) + " entries",
           std::to_string(indptr.size()));
    return false;
  }
  bool ok = indptr[0] == 0;
  if (!ok) c.fail("len.indptr_first", at(field, 0), "0", std::to_string(indptr[0]));
  for (size_t i = 0; i + 1 < indptr.size(); ++i) {
    if (indptr[i + 1] >= indptr[i]) continue;
    c.fail("len.indptr_monotone", at(field, i + 1), ">= " + std::to_string(indptr[i]),
           std::to_string(indptr[i + 1]));
    ok = false;
  }
  if (total != kAny && indptr.back() != total) {
    c.fail("len.total", at(field, batch), std::to_string(total), std::to_string(indptr.back()));
    ok = false;
  }
  return ok;
}

/// One mask per request: q_lens and kv_lens as the caller found them.
void check_custom_mask(TensorCheck& c, const CustomMask& mask,
                       std::span<const MaskShape> requests) {
  if (mask.kind == CustomMask::Kind::kNone) return;
  if (mask.mask_indptr.size() != requests.size() + 1) {
    c.fail("len.batch", at("mask_indptr"), std::to_string(requests.size() + 1) + " entries",
           std::to_string(mask.mask_indptr.size()));
    return;
  }
  if (mask.mask_indptr[0] < 0) {
    c.fail("mask.size", at("mask_indptr", 0), ">= 0", std::to_string(mask.mask_indptr[0]));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const int64_t pairs = int64_t{requests[i].q_len} * requests[i].kv_len;
    const int64_t bytes = mask.kind == CustomMask::Kind::kPacked ? (pairs + 7) / 8 : pairs;
    int64_t room = 0;
    if (__builtin_sub_overflow(mask.mask_indptr[i + 1], mask.mask_indptr[i], &room) ||
        room < bytes) {
      c.fail("mask.size", at("mask_indptr", i + 1),
             ">= " + std::to_string(mask.mask_indptr[i]) + " + " + std::to_string(bytes) + " bytes",
             std::to_string(mask.mask_indptr[i + 1]));
    }
  }
  if (mask.mask_indptr.back() > static_cast<int64_t>(mask.data.size())) {
    c.fail("mask.size", at("custom_mask"), std::to_string(mask.mask_indptr.back()) + " bytes",
           std::to_string(mask.data.size()));
  }
}

bool check_cache(TensorCheck& c, const KvCache& cache, bool written) {
  if (!cache.well_formed || cache.page_size < 1 || cache.num_kv_heads < 1) {
    c.fail("input.shape", at("cache"),
           "K and V of rank 4 (stacked: one of rank 5) with equal pages, page_size and heads, all "
           ">= 1, and "
           "contiguous head dims",
           "K and V that disagree");
    return false;
  }
  check_scale(c, "k_scale", cache.k_scale);
  check_scale(c, "v_scale", cache.v_scale);
  return c.planes(cache, written);
}

/// An expected size that the tensors of a call share with the parameters.
void check_equal(TensorCheck& c, const char* field, int64_t expected, int64_t got) {
  if (expected != got)
    c.fail("input.shape", at(field), std::to_string(expected), std::to_string(got));
}

/// The form of the table: lengths of its arrays, and each request's keys within its row. True if it
/// can be walked.
bool check_table_form(TensorCheck& c, const PageTable& t, int32_t page_size) {
  bool ok = true;
  if (t.form == PageTable::Form::kCsr) {
    ok = check_indptr(c, "kv_indptr", t.kv_indptr, t.batch(), kAny);
    if (ok && t.kv_indptr.back() > static_cast<int64_t>(t.kv_indices.size())) {
      c.fail("len.total", at("kv_indptr", t.batch()),
             "<= " + std::to_string(t.kv_indices.size()) + " page ids",
             std::to_string(t.kv_indptr.back()));
      ok = false;
    }
    const bool walkable = ok;
    for (size_t i = 0; walkable && i < t.last_page_len.size(); ++i) {
      const int64_t pages = int64_t{t.kv_indptr[i + 1]} - t.kv_indptr[i];
      const int64_t len = t.last_page_len[i];
      if (pages > 0 && (len < 1 || len > page_size)) {
        c.fail("len.last_page", at("last_page_len", i), "1.." + std::to_string(page_size),
               std::to_string(len));
        ok = false;
      } else if ((pages - 1) * page_size + len > INT32_MAX) {
        c.fail("len.overflow", at("kv_indptr", i + 1), "<= 2147483647 keys",
               std::to_string(pages) + " pages");
        ok = false;
      }
    }
    return ok;
  }
  if (t.max_pages < 0 ||
      (t.max_pages > 0 && static_cast<int64_t>(t.page_table.size()) / t.max_pages < t.batch())) {
    c.fail("len.batch", at("page_table"),
           std::to_string(t.batch()) + " rows of " + std::to_string(t.max_pages),
           std::to_string(t.page_table.size()) + " entries");
    return false;
  }
  for (size_t i = 0; i < t.cache_seqlens.size(); ++i) {
    const int64_t len = t.cache_seqlens[i];
    if (len < 0) c.fail("len.negative", at("cache_seqlens", i), ">= 0", std::to_string(len));
    if (pages_for(len, page_size) > t.max_pages) {
      c.fail("len.capacity", at("cache_seqlens", i),
             "<= " + std::to_string(t.max_pages) + " pages of " + std::to_string(page_size),
             std::to_string(len));
    }
    ok = ok && len >= 0 && pages_for(len, page_size) <= t.max_pages;
  }
  return ok;
}

/// Page ids that a visible key needs lie in the pool.
void check_page_ids(TensorCheck& c, const PagedAttention& call, const MaskShape& mask,
                    int64_t request) {
  const RequestPages pages = request_pages(call.pages, call.cache.page_size, request);
  const KvRange keys = kv_range(mask, 0, mask.q_len);
  if (keys.size() == 0) return;
  for (int64_t p = keys.begin / call.cache.page_size; p <= (keys.end - 1) / call.cache.page_size;
       ++p) {
    const int32_t id = pages.page_ids[p];
    if (id >= 0 && id < call.cache.num_pages) continue;
    const bool dense = call.pages.form == PageTable::Form::kDense;
    const Where where =
        dense ? at("page_table", request, p)
              : at("kv_indices", call.pages.kv_indptr[static_cast<size_t>(request)] + p);
    c.fail("table.page_id", where, "0 <= id < " + std::to_string(call.cache.num_pages),
           std::to_string(id));
  }
}

/// total_q: rows of q, kAny if they are not known.
void check_pages(TensorCheck& c, const PagedAttention& call, int64_t total_q) {
  const bool table_ok = check_table_form(c, call.pages, call.cache.page_size);
  const int64_t batch = call.pages.batch();
  bool q_ok = true;
  if (!call.cu_seqlens_q.empty()) {
    q_ok = check_indptr(c, "cu_seqlens_q", call.cu_seqlens_q, batch, total_q);
  } else if (total_q != kAny && total_q != batch) {
    c.fail("len.total", at("q.shape", 0), std::to_string(batch) + " rows, one a request",
           std::to_string(total_q));
    q_ok = false;
  }
  if (!table_ok || !q_ok) return;
  std::vector<MaskShape> masks;
  for (int64_t i = 0; i < batch; ++i) {
    const auto at_i = static_cast<size_t>(i);
    const int32_t q_len =
        call.cu_seqlens_q.empty() ? 1 : call.cu_seqlens_q[at_i + 1] - call.cu_seqlens_q[at_i];
    const int32_t kv_len = request_pages(call.pages, call.cache.page_size, i).kv_len;
    masks.push_back(MaskShape::of(call.params, q_len, kv_len));
    check_page_ids(c, call, masks.back(), i);
  }
  check_custom_mask(c, call.params.custom_mask, masks);
}

void register_spans(TensorCheck& c, const AttentionParams& p) {
  c.span("sinks", p.sinks.data(), p.sinks.size_bytes());
  c.span("custom_mask", p.custom_mask.data.data(), p.custom_mask.data.size_bytes());
  c.span("mask_indptr", p.custom_mask.mask_indptr.data(), p.custom_mask.mask_indptr.size_bytes());
}

/// q, out and lse, which both kinds of call have.
bool check_rows(TensorCheck& c, const AttentionParams& p, const ConstTensorView& q,
                const TensorView& out, const TensorView& lse) {
  const auto wide = {DType::kF32, DType::kF16, DType::kBF16};
  bool ok = c.input("q", q, {kAny, p.num_qo_heads, p.head_dim_qk}, wide);
  const int64_t rows = ok ? q.shape[0] : kAny;
  ok &= c.output("out", out, {rows, p.num_qo_heads, p.head_dim_vo}, wide);
  if (lse.defined()) ok &= c.output("lse", lse, {rows, p.num_qo_heads}, {DType::kF32}, false);
  return ok;
}

const auto kKvTypes = {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2};

}  // namespace

Status validate(const PagedAttention& call) {
  Status status;
  TensorCheck c(&status);
  const bool params_ok = check_params(c, call.params);
  const bool cache_ok = check_cache(c, call.cache, false);
  if (!params_ok || !cache_ok) return status;
  check_equal(c, "num_kv_heads", call.cache.num_kv_heads, call.params.num_kv_heads);
  check_equal(c, "head_dim_qk", call.cache.k.head_dim, call.params.head_dim_qk);
  check_equal(c, "head_dim_vo", call.cache.v.head_dim, call.params.head_dim_vo);
  const bool rows_ok = check_rows(c, call.params, call.q, call.out, call.lse.tensor);
  check_pages(c, call, rows_ok ? call.q.shape[0] : kAny);
  register_spans(c, call.params);
  c.span("page_table", call.pages.page_table.data(), call.pages.page_table.size_bytes());
  c.span("cache_seqlens", call.pages.cache_seqlens.data(), call.pages.cache_seqlens.size_bytes());
  c.span("kv_indptr", call.pages.kv_indptr.data(), call.pages.kv_indptr.size_bytes());
  c.span("kv_indices", call.pages.kv_indices.data(), call.pages.kv_indices.size_bytes());
  c.span("last_page_len", call.pages.last_page_len.data(), call.pages.last_page_len.size_bytes());
  c.span("cu_seqlens_q", call.cu_seqlens_q.data(), call.cu_seqlens_q.size_bytes());
  c.no_aliases();
  return status;
}

Status validate(const RaggedAttention& call) {
  Status status;
  TensorCheck c(&status);
  const AttentionParams& p = call.params;
  check_scale(c, "k_scale", call.k_scale);
  check_scale(c, "v_scale", call.v_scale);
  if (!check_params(c, p)) return status;
  const bool k_ok = c.input("k", call.k, {kAny, p.num_kv_heads, p.head_dim_qk}, kKvTypes);
  const bool v_ok = c.input(
      "v", call.v, {k_ok ? call.k.shape[0] : kAny, p.num_kv_heads, p.head_dim_vo}, kKvTypes);
  const bool rows_ok = check_rows(c, p, call.q, call.out, call.lse.tensor);
  const int64_t batch = std::max<int64_t>(0, static_cast<int64_t>(call.cu_seqlens_q.size()) - 1);
  const bool q_ok =
      check_indptr(c, "cu_seqlens_q", call.cu_seqlens_q, batch, rows_ok ? call.q.shape[0] : kAny);
  const bool kv_ok =
      check_indptr(c, "cu_seqlens_k", call.cu_seqlens_k, batch, k_ok ? call.k.shape[0] : kAny);
  if (!k_ok || !v_ok || !rows_ok || !q_ok || !kv_ok) return status;
  std::vector<MaskShape> masks;
  for (size_t i = 0; i < static_cast<size_t>(batch); ++i) {
    masks.push_back(MaskShape::of(p, call.cu_seqlens_q[i + 1] - call.cu_seqlens_q[i],
                                  call.cu_seqlens_k[i + 1] - call.cu_seqlens_k[i]));
  }
  check_custom_mask(c, p.custom_mask, masks);
  register_spans(c, p);
  c.span("cu_seqlens_q", call.cu_seqlens_q.data(), call.cu_seqlens_q.size_bytes());
  c.span("cu_seqlens_k", call.cu_seqlens_k.data(), call.cu_seqlens_k.size_bytes());
  c.no_aliases();
  return status;
}

template <LseBase Base>
Status validate(const MergeStates<Base>& call) {
  Status status;
  TensorCheck c(&status);
  const auto wide = {DType::kF32, DType::kF16, DType::kBF16};
  if (!c.input("v", call.v, {kAny, kAny, kAny, kAny}, wide)) return status;
  const auto& shape = call.v.shape;
  c.input("s", call.s, {shape[0], shape[1], shape[2]}, {DType::kF32});
  c.output("out", call.out, {shape[0], shape[2], shape[3]}, wide);
  if (call.lse.defined())
    c.output("lse", call.lse.tensor, {shape[0], shape[2]}, {DType::kF32}, false);
  c.no_aliases();
  return status;
}

template <LseBase Base>
Status validate(const MergeState<Base>& call) {
  Status status;
  TensorCheck c(&status);
  const auto wide = {DType::kF32, DType::kF16, DType::kBF16};
  if (!c.input("v_a", call.v_a, {kAny, kAny, kAny}, wide)) return status;
  const auto& shape = call.v_a.shape;
  c.input("v_b", call.v_b, {shape[0], shape[1], shape[2]}, wide);
  c.input("s_a", call.s_a, {shape[0], shape[1]}, {DType::kF32});
  c.input("s_b", call.s_b, {shape[0], shape[1]}, {DType::kF32});
  c.output("out", call.out, {shape[0], shape[1], shape[2]}, wide);
  if (call.lse.defined())
    c.output("lse", call.lse.tensor, {shape[0], shape[1]}, {DType::kF32}, false);
  c.no_aliases();
  return status;
}

Status validate(const StoreKv& call) {
  Status status;
  TensorCheck c(&status);
  if (!check_cache(c, call.cache, true)) return status;
  const auto wide = {DType::kF32, DType::kF16, DType::kBF16};
  const auto tokens = static_cast<int64_t>(call.out_cache_loc.size());
  c.input("k", call.k, {tokens, call.cache.num_kv_heads, call.cache.k.head_dim}, wide);
  c.input("v", call.v, {tokens, call.cache.num_kv_heads, call.cache.v.head_dim}, wide);
  std::vector<std::pair<int64_t, size_t>> slots;
  for (size_t i = 0; i < call.out_cache_loc.size(); ++i) {
    const int64_t slot = call.out_cache_loc[i];
    if (slot >= call.cache.num_slots()) {
      c.fail("slot.range", at("out_cache_loc", i), "< " + std::to_string(call.cache.num_slots()),
             std::to_string(slot));
    }
    if (slot >= 0) slots.emplace_back(slot, i);
  }
  std::sort(slots.begin(), slots.end());
  for (size_t i = 1; i < slots.size(); ++i) {
    if (slots[i].first != slots[i - 1].first) continue;
    c.fail("slot.duplicate", at("out_cache_loc", slots[i].second),
           "a slot of its own, not that of token " + std::to_string(slots[i - 1].second),
           std::to_string(slots[i].first));
  }
  c.span("out_cache_loc", call.out_cache_loc.data(), call.out_cache_loc.size_bytes());
  c.no_aliases();
  return status;
}

template Status validate(const MergeStates<LseBase::kNatural>&);
template Status validate(const MergeStates<LseBase::kLog2>&);
template Status validate(const MergeState<LseBase::kNatural>&);
template Status validate(const MergeState<LseBase::kLog2>&);

}  // namespace shadowgraph
