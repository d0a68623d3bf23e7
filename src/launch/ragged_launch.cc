#include "launch/ragged_launch.h"

#include "attn/validate/validate.h"
#include "kernels/footprint.h"
#include "launch/attention_args.h"
#include "launch/checked_launch.h"

namespace shadowgraph {
namespace {

struct RaggedLaunch : CheckedLaunch<RaggedAttention> {
  static RaggedAttention without_padding(RaggedAttention c) {
    drop_padding(c.cu_seqlens_q, &c.q);
    for (TensorView* t : {&c.out, &c.lse.tensor}) drop_padding(c.cu_seqlens_q, t);
    for (ConstTensorView* t : {&c.k, &c.v}) drop_padding(c.cu_seqlens_k, t);
    drop_padding(&c.params.custom_mask);
    return c;
  }
  static Status run(const RaggedAttention& c) { return attention_varlen(c); }
  static std::array<TensorView, 2> outputs(const RaggedAttention& c) {
    return {c.out, c.lse.tensor};
  }
  static Footprint footprint(const RaggedAttention& c) { return attention_footprint(c); }
  /// Metadata, and the rows beyond q, k and v.
  static Footprint refused(const RaggedAttention& c) {
    Footprint spans;
    add_whole(&spans, c.cu_seqlens_q);
    add_whole(&spans, c.cu_seqlens_k);
    add_params_arrays(&spans, c.params);
    add_rows_beyond(&spans, c.q, c.cu_seqlens_q);
    add_rows_beyond(&spans, c.k, c.cu_seqlens_k);
    add_rows_beyond(&spans, c.v, c.cu_seqlens_k);
    return spans;
  }
};

}  // namespace

constinit const Kernel kRaggedAttention = checked_kernel<RaggedLaunch>("attention_varlen");

KernelLaunch ragged_launch(const RaggedAttention& call, const RequestRows& rows) {
  return launch_of(kRaggedAttention, call, rows, std::ssize(call.cu_seqlens_q) - 1);
}

}  // namespace shadowgraph
