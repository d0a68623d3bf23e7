// TensorCheck: collects what is wrong with the tensors of a call. Used by validate.cc and what it
// stands on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "core/laws.h"
#include "shadowgraph/attention/kv_cache.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// An axis of any size >= 0.
inline constexpr int64_t kAny = -1;
/// The size that an axis must have, and whose size that is: a refusal says "rows of q".
struct AxisSize {
  int64_t size;
  const char* of;
  AxisSize(int64_t n, const char* whose = nullptr) : size(n), of(whose) {}
};
// Not inline: GCC gives an inline list of each file elements of its own, and links one list to
// another's.
[[maybe_unused]] constexpr auto kF32 = {DType::kF32};
[[maybe_unused]] constexpr auto kWide = {DType::kF32, DType::kF16, DType::kBF16};

class TensorCheck {
 public:
  explicit TensorCheck(Status* status) : status_(status) { memories_.reserve(kUsual); }
  TensorCheck(const TensorCheck&) = delete;
  TensorCheck& operator=(const TensorCheck&) = delete;

  /// Rank, shape (kAny: any size >= 0), dtype, contiguous last axis, extents within 63 bits, memory
  /// given. False if the tensor is unusable for further checks.
  bool input(const char* field, const ConstTensorView& t, std::initializer_list<AxisSize> shape,
             std::initializer_list<DType> dtypes);
  /// The same, whatever the strides: an LSE may lie head by head.
  bool strided_input(const char* field, const ConstTensorView& t,
                     std::initializer_list<AxisSize> shape, std::initializer_list<DType> dtypes);
  /// As input, and no two elements share an address. `last_contiguous`: as for inputs.
  bool output(const char* field, const TensorView& t, std::initializer_list<AxisSize> shape,
              std::initializer_list<DType> dtypes, bool last_contiguous = true);
  /// K and V of a cache, and the scales of i8, read or written. name stands before "k_cache" and
  /// "v_cache". latent: V is written as a part of K.
  bool planes(const std::string& name, const KvCache& cache, bool written, bool latent = false);
  /// A 1-D array that is read: memory given where it has elements, and known to the alias check.
  template <class T>
  bool span(const char* field, std::span<const T> s) {
    return array(field, s.data(), s.size_bytes(), false);
  }
  /// The same of an array that a call may overwrite.
  template <class T>
  bool written(const char* field, std::span<T> s) {
    return array(field, s.data(), s.size_bytes(), true);
  }

  /// After all tensors are known: no written byte is any other's.
  void no_aliases();

  void fail(LawId law, Where where, std::string expected, std::string got) {
    status_->add(make_finding(law, std::move(where), std::move(expected), std::move(got)));
  }

 private:
  struct Memory {
    std::string field;
    ConstTensorView tensor;
    uintptr_t begin, end;  // of what it spans; most are apart by that alone
    bool written;
  };
  bool view(const char* field, const ConstTensorView& t, std::initializer_list<AxisSize> shape,
            std::initializer_list<DType> dtypes, bool last_contiguous, bool written);
  bool plane(const std::string& field, const KvPlane& p);
  bool array(const char* field, const void* data, size_t bytes, bool written);
  bool memory(const std::string& field, const ConstTensorView& t, bool written);

  // Tensors of a call with all that it may have, which no call allocates for
  static constexpr size_t kUsual = 20;

  Status* status_;
  alignas(Memory) std::array<std::byte, kUsual * sizeof(Memory)> room_;
  std::pmr::monotonic_buffer_resource resource_{room_.data(), room_.size()};
  std::pmr::vector<Memory> memories_{&resource_};
};

}  // namespace shadowgraph
