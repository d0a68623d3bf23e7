// LSE as a type: the base of the logarithm is part of the type, so a base-2 LSE cannot be handed to
// a base-e merge by mistake (sglang#35045, pytorch#181645).
#pragma once

#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

enum class LseBase {
  kNatural,  // lse = ln(sum exp(s)): FlashAttention, FlashMLA, PyTorch, SGLang's merge_state_v2
  kLog2,     // lse = log2(sum exp(s)): FlashInfer
};

/// Whether the LSE counts a sink's mass. The denominator of out always counts it.
enum class LseSink { kExcluded, kIncluded };

/// f32 [total_q, num_qo_heads], any strides (a [num_qo_heads, total_q] tensor is the same view with
/// strides swapped). A row that sees no key has -inf. Inputs may also mark an empty row with +inf
/// (FA2, FlashMLA); both mean "no mass".
template <LseBase Base>
struct LseView {
  TensorView tensor;
  static constexpr LseBase base = Base;

  LseView() = default;
  explicit LseView(const TensorView& t) : tensor(t) {}
  bool defined() const { return tensor.defined(); }
};

using NaturalLse = LseView<LseBase::kNatural>;
using Log2Lse = LseView<LseBase::kLog2>;

}  // namespace shadowgraph
