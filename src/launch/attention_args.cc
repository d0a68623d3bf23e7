#include "launch/attention_args.h"

#include "kernels/spans.h"

namespace shadowgraph {

ParamsScalars scalars_of(const AttentionParams& p, const CallOptions& options,
                         int32_t max_seqlen_q) {
  ParamsScalars s{};
  s.mask_bytes = static_cast<int64_t>(p.custom_mask.data.size());
  s.num_qo_heads = p.num_qo_heads;
  s.num_kv_heads = p.num_kv_heads;
  s.head_dim_qk = p.head_dim_qk;
  s.head_dim_vo = p.head_dim_vo;
  s.window_left = p.window_left;
  s.window_right = p.window_right;
  s.num_threads = options.num_threads;
  s.max_seqlen_q = max_seqlen_q;
  s.sm_scale = p.sm_scale;
  s.logits_soft_cap = p.logits_soft_cap;
  s.mask_kind = p.custom_mask.kind;
  s.arith = options.arith;
  s.lse_sink = static_cast<uint8_t>(options.lse_sink);
  s.causal = p.causal;
  s.has_sinks = !p.sinks.empty();
  return s;
}

KernelArgs& add_params(KernelArgs& args, const AttentionParams& p) {
  return args.pointer(p.sinks.empty() ? nullptr : p.sinks.data())
      .pointer(p.custom_mask.data.data())
      .pointer(p.custom_mask.mask_indptr.data());
}

AttentionParams params_of(const LaunchFrame& f, size_t first, const ParamsScalars& s,
                          int64_t batch) {
  AttentionParams p = {.num_qo_heads = s.num_qo_heads,
                       .num_kv_heads = s.num_kv_heads,
                       .head_dim_qk = s.head_dim_qk,
                       .head_dim_vo = s.head_dim_vo,
                       .sm_scale = s.sm_scale,
                       .causal = s.causal != 0,
                       .window_left = s.window_left,
                       .window_right = s.window_right,
                       .logits_soft_cap = s.logits_soft_cap};
  if (s.has_sinks != 0) p.sinks = array_of<float>(f, first, s.num_qo_heads);
  if (s.mask_kind != CustomMask::Kind::kNone) {
    p.custom_mask = {s.mask_kind, array_of<uint8_t>(f, first + 1, s.mask_bytes),
                     array_of<int64_t>(f, first + 2, batch + 1)};
  }
  return p;
}

CallOptions options_of(const ParamsScalars& s) {
  CallOptions options;
  options.arith = s.arith;
  options.num_threads = s.num_threads;
  options.lse_sink = static_cast<LseSink>(s.lse_sink);
  return options;
}

void add_params_arrays(Footprint* spans, const AttentionParams& p) {
  add_whole(spans, p.sinks);
  add_whole(spans, p.custom_mask.mask_indptr);
}

void add_rows_beyond(Footprint* spans, const ConstTensorView& t, std::span<const int32_t> indptr) {
  const int64_t rows = indptr.empty() ? 0 : indptr.back();
  if (rows <= t.shape[0]) return;
  const int64_t stride = t.stride[0];
  spans->push_back({t.data, t.shape[0] * stride, (rows - t.shape[0]) * stride,
                    element_bytes(t.dtype), Access::kRead});
}

}  // namespace shadowgraph
