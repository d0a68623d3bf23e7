// Rows of partial results on a device: an LSE whose base is data, and how those of a row become
// one. Tested by tests/launch/tile_merge_test.cc.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "attn/tensor_rows.h"
#include "kernels/dense/merge_states.h"
#include "shadowgraph/attention/lse.h"
#include "shadowgraph/attention/params.h"
#include "shadowgraph/device/access.h"

namespace shadowgraph {

/// An LSE whose base a launch carries as data. There is no way from one base to the other but
/// through a launch that reads one and writes the other.
struct AnyLse {
  TensorView tensor;
  LseBase base = LseBase::kNatural;

  AnyLse() = default;
  AnyLse(const TensorView& t, LseBase b) : tensor(t), base(b) {}
  AnyLse(const NaturalLse& lse) : tensor(lse.tensor) {}                     // NOLINT
  AnyLse(const Log2Lse& lse) : tensor(lse.tensor), base(LseBase::kLog2) {}  // NOLINT
};
template <class V>
void visit_args(V& v, AnyLse& lse) {
  v("tensor", lse.tensor);
  v("base", lse.base);
}

/// The LSE of a row and head in base To; from another base it is converted in double and rounded
/// once.
template <LseBase To>
float load_lse(const AnyLse& lse, int64_t row, int64_t head);

/// Merges the partial results of one row and head after the other (StateMerger). With a footprint
/// it notes what that reads and writes, and writes nothing.
template <LseBase Base>
class RowMerge {
 public:
  RowMerge(int64_t most_states, int64_t head_dim, Footprint* spans);

  void clear() { merger_.clear(); }
  /// A state, v f32 | f16 | bf16, which must live until finish(); it is not read where it has no
  /// mass.
  void add(const ConstTensorView& v, const AnyLse& s, int64_t row, int64_t head);
  /// out, and lse if there is one, of what was added; of nothing out 0 and LSE -inf. sink: one more
  /// logit in out's denominator alone.
  void finish(const TensorView& out, const AnyLse& lse, int64_t row, int64_t head,
              float sink = -std::numeric_limits<float>::infinity());

 private:
  void note(const ConstTensorView& t, int64_t row, int64_t head, Access access);

  int64_t head_dim_;
  Footprint* spans_;
  StateMerger<Base> merger_;
};

/// The logit of a head's sink; -inf: none.
inline float sink_of(const AttentionParams& p, int32_t head) {
  return p.sinks.empty() ? -std::numeric_limits<float>::infinity()
                         : p.sinks[static_cast<size_t>(head)];
}

/// Reads of the rows that a view does not have, of `count` from `first` on.
void add_rows_beyond(Footprint* spans, const ConstTensorView& t, int64_t first, int64_t count,
                     int32_t request);

/// A head of a row, or all, that cannot be computed, or the writes of it: filled with 0xff where
/// the view has that row. Nothing where there is no view.
void lose_head(const TensorView& t, int64_t row, int64_t head, int32_t request, Footprint* spans);
void lose_row(const TensorView& t, int64_t row, int32_t request, Footprint* spans);

}  // namespace shadowgraph
