// CallMemory: the tensors of one call in guarded memory, what they held before it, and what the
// call may have done to them. Tested by tests/fuzz/linear_laws_test.cc.
#pragma once

#include <deque>
#include <initializer_list>
#include <span>
#include <vector>

#include "fuzz/gapped.h"
#include "shadowgraph/access.h"

namespace shadowgraph {

class CallMemory {
 public:
  /// Poison, with gaps. field: a literal. The view lives as long as this.
  TensorView add(const char* field, DType dtype, std::span<const int64_t> shape, Rng& rng,
                 AxisOrder order = AxisOrder::kAsNamed);
  TensorView add(const char* field, DType dtype, std::initializer_list<int64_t> shape, Rng& rng,
                 AxisOrder order = AxisOrder::kAsNamed) {
    return add(field, dtype, std::span(shape.begin(), shape.size()), rng, order);
  }
  /// All bytes are remembered as those before the call.
  void remember();
  /// A tensor's view of the memory as it was then.
  ConstTensorView before(const ConstTensorView& t) const;

  /// num.write_set for each tensor of which more than these elements changed since.
  Status check_written(std::span<const ConstTensorView> written) const;
  /// num.write_set for each tensor of which the footprint writes other elements than these.
  Status check_footprint(const Footprint& spans, std::span<const ConstTensorView> written) const;
  /// Poison wherever the footprint reads nothing. Before remember().
  void poison_unread(const Footprint& spans);

 private:
  struct Tensor {
    const char* field;
    GuardedBuffer memory, before;
    TensorView view;
    bool holds(const ConstTensorView& t) const {
      return t.data >= memory.data() && t.data <= memory.data() + memory.size();
    }
  };
  /// One flag a byte.
  static std::vector<uint8_t> bytes_of(const Tensor& t, const Footprint& spans, Access access);
  static std::vector<uint8_t> bytes_of(const Tensor& t, std::span<const ConstTensorView> views);

  std::deque<Tensor> tensors_;
};

}  // namespace shadowgraph
