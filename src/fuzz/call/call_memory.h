// CallMemory: the tensors of one call in guarded memory, what they held before it, and what the
// call may have done to them. Tested by tests/fuzz/call_memory_test.cc.
#pragma once

#include <deque>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "fuzz/call/gapped.h"
#include "shadowgraph/device/access.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// A tensor in a record of several.
struct RecordField {
  DType dtype;
  std::vector<int64_t> shape;
};

/// How tensors lie, and what they hold where nothing is laid down.
struct MemoryStyle {
  bool dense = false;  // no gaps, and boundaries of 64 bytes
  std::byte poison = kPoison, outputs = kPoison;
};

/// mem.red_zone if a closed page beside the memory was touched.
Status check_guards(const char* field, const GuardedBuffer& memory);

class CallMemory {
 public:
  explicit CallMemory(const MemoryStyle& style = {}) : style_(style) {}
  /// Poison, with gaps. field: a literal. The view lives as long as this.
  TensorView add(const char* field, DType dtype, std::span<const int64_t> shape, Rng& rng,
                 AxisOrder order = AxisOrder::kAsNamed);
  TensorView add(const char* field, DType dtype, std::initializer_list<int64_t> shape, Rng& rng,
                 AxisOrder order = AxisOrder::kAsNamed) {
    return add(field, dtype, std::span(shape.begin(), shape.size()), rng, order);
  }
  /// A tensor that the call writes.
  TensorView add_output(const char* field, DType dtype, std::span<const int64_t> shape, Rng& rng,
                        AxisOrder order) {
    const TensorView t = add(field, dtype, shape, rng, order);
    tensors_.back().memory.poison(style_.outputs);
    return t;
  }
  /// Dense, and the first `first` of its first axis are address space that is reserved and never
  /// written: what is read there is 0. Requires far_memory_is_free().
  TensorView add_far(const char* field, DType dtype, std::span<const int64_t> shape, int64_t first);
  TensorView add_far(const char* field, DType dtype, std::initializer_list<int64_t> shape,
                     int64_t first) {
    return add_far(field, dtype, std::span(shape.begin(), shape.size()), first);
  }
  /// Tensors that lie between each other, poison with gaps. The first `shared` axes, which all
  /// have, count records; one holds the rest of each tensor, dense, one behind the other.
  std::vector<TensorView> add_records(const char* field, size_t shared,
                                      const std::vector<RecordField>& fields, Rng& rng);
  /// A list, in memory of exactly its size. An empty list has none.
  template <class List, class T = typename List::value_type>
  std::span<T> add_list(const char* field, const List& list, Rng& rng) {
    if (list.empty()) return {};
    constexpr DType kType = std::is_same_v<T, float> ? DType::kF32
                            : sizeof(T) == 1         ? DType::kU8
                            : sizeof(T) == 4         ? DType::kI32
                                                     : DType::kI64;
    const TensorView t = add(field, kType, {std::ssize(list)}, rng);
    std::memcpy(t.data, list.data(), list.size() * sizeof(T));
    return {reinterpret_cast<T*>(t.data), list.size()};
  }
  /// Does the address belong to one of the tensors?
  bool holds(const void* address) const;
  /// All bytes are remembered as those before the call, and closed pages are closed.
  void remember();
  /// Everything becomes poison; what is remembered stays.
  void poison();
  /// Everything becomes what is remembered.
  void restore();
  /// A tensor's view of the memory as it was then.
  ConstTensorView before(const ConstTensorView& t) const;

  /// mem.red_zone for each tensor beside which a closed page was touched since, num.write_set for
  /// each of which more than these elements changed.
  Status check_written(std::span<const ConstTensorView> written) const;
  /// Is the row's memory poison on purpose, so that its reads are no fault? -1: nobody's.
  using IsIdle = std::function<bool(int32_t row)>;
  /// What a footprint says of each tensor. num.write_set: it writes other elements than these;
  /// mem.out_of_bounds: it leaves the tensor; mem.uninit_read: it reads floats that nobody laid
  /// down, except those of idle rows.
  Status check_footprint(const Footprint& spans, std::span<const ConstTensorView> written,
                         const IsIdle& is_idle) const;
  /// Does no span of the footprint leave the tensor in which it begins?
  bool backs(const Footprint& spans) const;
  /// Does it read a number, or a byte of several packed ones, that nobody laid down? A byte of a
  /// packed number may look so.
  bool reads_poison(const Footprint& spans) const;
  /// num.write_set for each tensor of which more changed since than the footprint writes.
  Status check_changed(const Footprint& spans) const;
  /// Poison wherever the footprint reads nothing. Before remember().
  void poison_unread(const Footprint& spans);

 private:
  struct Tensor {
    const char* field;
    GuardedBuffer memory, before;
    std::vector<DType> types;
    std::vector<TensorView> laid = {};
    bool holds(const void* address) const {
      return address >= memory.data() && address <= memory.data() + memory.size();
    }
    /// The bytes of a span whose buffer it holds.
    BufferRange range_of(const AccessSpan& s) const;
    BufferRanges ranges_of(const Footprint& spans, Access access) const;
    BufferRanges ranges_of(std::span<const ConstTensorView> views) const;
    bool holds_floats(const AccessSpan& s) const;
    bool is_poison(const AccessSpan& s, int64_t* byte) const;
  };
  Status check_writes(const Tensor& t, const Footprint& spans,
                      std::span<const ConstTensorView> written) const;
  template <class RangesOf>
  Status check_changes(const RangesOf& may_change) const;

  MemoryStyle style_;
  std::deque<Tensor> tensors_;
};

}  // namespace shadowgraph
