#include "attn/validate/validate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attn/lse.h"
#include "attn/mask.h"
#include "attn/validate/batch_check.h"
#include "attn/validate/cache_check.h"
#include "attn/validate/tensor_check.h"

namespace shadowgraph {
namespace {

constexpr auto kLog2E32 = static_cast<float>(kLog2E);

bool sound_cap(float cap) { return cap >= 0 && std::isfinite(cap * kLog2E32); }

/// The multiplier of q.k, as the kernels form it from sound factors.
void check_product(TensorCheck& c, const AttentionParams& p, float k_scale) {
  const AttentionTerms& t = p.terms;
  if (!sound_scale(p.sm_scale) || !sound_scale(k_scale) || !sound_cap(p.logits_soft_cap)) return;
  const double cap = p.logits_soft_cap;
  const auto check = [&](const char* product, double of_head) {
    const double scale = static_cast<double>(p.sm_scale) * k_scale * t.q_scale * of_head;
    if (std::isnormal(static_cast<float>(cap > 0 ? scale / cap : scale * kLog2E))) return;
    c.fail("param.scale", at(product), "normal in f32 (divided by the soft cap, if any)",
           text(scale));
  };
  if (!t.any()) return check("sm_scale * k_scale", 1);
  if (t.k_scales.empty()) check("sm_scale * k_scale * q_scale", 1);
  for (const float of_head : t.k_scales) check("sm_scale * k_scale * q_scale * k_scales", of_head);
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
  usable &= check_head_dim(c, "head_dim_qk", p.head_dim_qk);
  usable &= check_head_dim(c, "head_dim_vo", p.head_dim_vo);
  return usable;
}

/// What can be said of a layer without its tensors. False if they cannot be held against it.
bool check_params(TensorCheck& c, const AttentionParams& p) {
  const bool usable = check_heads(c, p);
  const auto fail = [&](LawId law, const char* field, const char* expected,
                        const std::string& got) { c.fail(law, at(field), expected, got); };
  check_scale(c, "sm_scale", p.sm_scale);
  if (p.window_left < -1) {
    fail("param.window", "window_left", ">= -1", std::to_string(p.window_left));
  }
  if (p.window_right < -1) {
    fail("param.window", "window_right", ">= -1", std::to_string(p.window_right));
  }
  if (!sound_cap(p.logits_soft_cap)) {
    fail("param.soft_cap", "logits_soft_cap", "finite also in base 2, >= 0",
         text(p.logits_soft_cap));
  }
  check_sinks(c, p.sinks, p.num_qo_heads);
  if (usable) check_terms(c, p);
  return usable;
}

/// A size that a layer shares with its cache.
void check_equal(TensorCheck& c, const char* field, int64_t expected, int64_t got) {
  if (expected != got)
    c.fail("input.shape", at(field), std::to_string(expected) + ", as the cache",
           std::to_string(got));
}

void check_max_seqlen(TensorCheck& c, int32_t max_seqlen_q) {
  if (max_seqlen_q < 0)
    c.fail("len.negative", at("max_seqlen_q"), ">= 0", std::to_string(max_seqlen_q));
}

/// The arrays of the parameters and of the batch.
bool check_spans(TensorCheck& c, const AttentionParams& p) {
  bool ok = c.span("sinks", p.sinks);
  ok &= c.span("custom_mask", p.custom_mask.data);
  ok &= c.span("mask_indptr", p.custom_mask.mask_indptr);
  const AttentionTerms& t = p.terms;
  if (!t.any()) return ok;
  for (const auto& [field, list] : {std::pair("alibi_slopes", t.alibi_slopes),
                                    {"key_bias", t.key_bias},
                                    {"qq_bias", t.qq_bias},
                                    {"relative_bias", t.relative_bias},
                                    {"k_scales", t.k_scales},
                                    {"v_scales", t.v_scales}})
    ok &= c.span(field, list);
  for (const auto& [field, list] : {std::pair("cache_leftpad", t.cache_leftpad),
                                    {"bidirectional_ranges", t.bidirectional_ranges},
                                    {"bidirectional_indptr", t.bidirectional_indptr},
                                    {"seqused_q", t.seqused_q},
                                    {"seqused_k", t.seqused_k}})
    ok &= c.span(field, list);
  return c.span("request_causal", t.request_causal) && ok;
}

bool check_spans(TensorCheck& c, const PagedAttention& call) {
  bool ok = check_spans(c, call.params);
  ok &= c.span("page_table", call.pages.page_table);
  ok &= c.span("cache_seqlens", call.pages.cache_seqlens);
  ok &= c.span("kv_indptr", call.pages.kv_indptr);
  ok &= c.span("kv_indices", call.pages.kv_indices);
  ok &= c.span("last_page_len", call.pages.last_page_len);
  ok &= c.span("plan", call.plan);
  ok &= c.written("scratch", call.options.scratch);
  return c.span("cu_seqlens_q", call.cu_seqlens_q) && ok;
}

bool check_spans(TensorCheck& c, const RaggedAttention& call) {
  bool ok = check_spans(c, call.params);
  ok &= c.span("cu_seqlens_q", call.cu_seqlens_q);
  ok &= c.written("scratch", call.options.scratch);
  return c.span("cu_seqlens_k", call.cu_seqlens_k) && ok;
}

/// q, out and lse, which both kinds of call have.
bool check_rows(TensorCheck& c, const AttentionParams& p, const ConstTensorView& q,
                const TensorView& out, const TensorView& lse) {
  const auto wide = {DType::kF32, DType::kF16, DType::kBF16};
  bool ok = c.input("q", q, {kAny, p.num_qo_heads, p.head_dim_qk}, wide);
  const int64_t rows = ok ? q.shape[0] : kAny;
  ok &= c.output("out", out, {{rows, "rows of q"}, p.num_qo_heads, p.head_dim_vo}, wide);
  if (lse.defined())
    ok &= c.output("lse", lse, {{rows, "rows of q"}, p.num_qo_heads}, {DType::kF32}, false);
  return ok;
}

/// Types of packed K and V: i8 is left out because its scales have no place there.
const auto kKvTypes = {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2};

}  // namespace

Status validate(const PagedAttention& call, std::span<int32_t> plan) {
  Status status;
  TensorCheck c(&status);
  bool spans_ok = check_spans(c, call);
  spans_ok &= c.written("plan", plan);
  if (!spans_ok) return status;
  const AttentionParams& p = call.params;
  const bool params_ok = check_params(c, p);
  check_max_seqlen(c, call.max_seqlen_q);
  const bool cache_ok = check_cache(c, "", call.cache, false);
  bool rows_ok = false;
  if (params_ok) rows_ok = check_rows(c, p, call.q, call.out, call.lse.tensor);
  if (params_ok && cache_ok) {
    check_product(c, p, call.cache.k_scale);
    check_equal(c, "num_kv_heads", call.cache.num_kv_heads, p.num_kv_heads);
    check_equal(c, "head_dim_qk", call.cache.k.head_dim, p.head_dim_qk);
    check_equal(c, "head_dim_vo", call.cache.v.head_dim, p.head_dim_vo);
  }
  if (cache_ok) check_pages(c, call, rows_ok ? call.q.shape[0] : kAny);
  c.no_aliases();
  return status;
}

Status validate(const RaggedAttention& call) {
  Status status;
  TensorCheck c(&status);
  if (!check_spans(c, call)) return status;
  const AttentionParams& p = call.params;
  check_scale(c, "k_scale", call.k_scale);
  check_scale(c, "v_scale", call.v_scale);
  check_max_seqlen(c, call.max_seqlen_q);
  bool k_ok = false, rows_ok = false;
  if (check_params(c, p)) {
    check_product(c, p, call.k_scale);
    k_ok = c.input("k", call.k, {kAny, p.num_kv_heads, p.head_dim_qk}, kKvTypes);
    c.input("v", call.v,
            {{k_ok ? call.k.shape[0] : kAny, "rows of k"}, p.num_kv_heads, p.head_dim_vo},
            kKvTypes);
    rows_ok = check_rows(c, p, call.q, call.out, call.lse.tensor);
  }
  const int64_t batch = std::max<int64_t>(0, static_cast<int64_t>(call.cu_seqlens_q.size()) - 1);
  bool lens_ok = check_indptr(c, "cu_seqlens_q", call.cu_seqlens_q, batch,
                              {rows_ok ? call.q.shape[0] : kAny, "rows of q"});
  lens_ok &= check_indptr(c, "cu_seqlens_k", call.cu_seqlens_k, batch,
                          {k_ok ? call.k.shape[0] : kAny, "rows of k"});
  if (lens_ok) {
    std::vector<int32_t> q_lens, kv_lens;
    for (size_t i = 0; i < static_cast<size_t>(batch); ++i) {
      q_lens.push_back(call.cu_seqlens_q[i + 1] - call.cu_seqlens_q[i]);
      kv_lens.push_back(call.cu_seqlens_k[i + 1] - call.cu_seqlens_k[i]);
    }
    lens_ok = use_lengths(c, "seqused_q", p.terms.seqused_q, &q_lens);
    lens_ok &= use_lengths(c, "seqused_k", p.terms.seqused_k, &kv_lens);
    if (lens_ok) check_masks(c, p, q_lens, kv_lens);
  }
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
  const AxisSize rows = {shape[0], "rows of v"}, heads = {shape[2], "heads of v"};
  c.strided_input("s", call.s, {rows, {shape[1], "states of v"}, heads}, {DType::kF32});
  c.output("out", call.out, {rows, heads, shape[3]}, wide);
  if (call.lse.defined()) c.output("lse", call.lse.tensor, {rows, heads}, {DType::kF32}, false);
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
  const AxisSize rows = {shape[0], "rows of v_a"}, heads = {shape[1], "heads of v_a"};
  c.input("v_b", call.v_b, {rows, heads, shape[2]}, wide);
  c.strided_input("s_a", call.s_a, {rows, heads}, {DType::kF32});
  c.strided_input("s_b", call.s_b, {rows, heads}, {DType::kF32});
  c.output("out", call.out, {rows, heads, shape[2]}, wide);
  if (call.lse.defined()) c.output("lse", call.lse.tensor, {rows, heads}, {DType::kF32}, false);
  c.no_aliases();
  return status;
}

template Status validate(const MergeStates<LseBase::kNatural>&);
template Status validate(const MergeStates<LseBase::kLog2>&);
template Status validate(const MergeState<LseBase::kNatural>&);
template Status validate(const MergeState<LseBase::kLog2>&);

}  // namespace shadowgraph
