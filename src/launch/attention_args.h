// What the paged and the ragged attention launch have in common: parameters and options as scalars
// and pointers, and rows that are padding.
#pragma once

#include "launch/launch_args.h"
#include "shadowgraph/attention.h"

namespace shadowgraph {

struct ParamsScalars {
  int64_t mask_bytes;
  int32_t num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo;
  int32_t window_left, window_right, num_threads, max_seqlen_q;
  float sm_scale, logits_soft_cap;
  CustomMask::Kind mask_kind;
  Arith arith;
  uint8_t lse_sink, causal, has_sinks, unused[3];
};
static_assert(sizeof(ParamsScalars) == 8 + 8 * 4 + 2 * 4 + 8);

ParamsScalars scalars_of(const AttentionParams& p, const CallOptions& options,
                         int32_t max_seqlen_q);
/// Pointers: sinks, mask, mask_indptr.
inline constexpr uint8_t kParamsArgs = 3;
KernelArgs& add_params(KernelArgs& args, const AttentionParams& p);
/// first: the argument that is sinks.
AttentionParams params_of(const LaunchFrame& f, size_t first, const ParamsScalars& s,
                          int64_t batch);
CallOptions options_of(const ParamsScalars& s);

/// Rows past an indptr's last entry are padding, as a graph's tensors are as long as its bucket:
/// the view ends before them. An entry that is no row of the view is left to be refused.
template <class Byte>
void drop_padding(std::span<const int32_t> indptr, BasicTensorView<Byte>* t) {
  if (!indptr.empty() && indptr.back() >= 0 && indptr.back() < t->shape[0])
    t->shape[0] = indptr.back();
}

/// The arrays of the parameters that are read whole.
void add_params_arrays(Footprint* spans, const AttentionParams& p);
/// Reads of the rows that an indptr asks for beyond the view.
void add_rows_beyond(Footprint* spans, const ConstTensorView& t, std::span<const int32_t> indptr);

}  // namespace shadowgraph
