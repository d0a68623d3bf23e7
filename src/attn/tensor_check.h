// TensorCheck: collects what is wrong with the tensors of a call. Used by validate.cc only.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "core/laws.h"
#include "shadowgraph/kv_cache.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

class TensorCheck {
 public:
  explicit TensorCheck(Status* status) : status_(status) {}

  static constexpr int64_t kAny = -1;

  /// Rank, shape (kAny: any size >= 0), dtype, contiguous last axis, extents within 63 bits, memory
  /// given. False if the tensor is unusable for further checks.
  bool input(const char* field, const ConstTensorView& t, std::initializer_list<int64_t> shape,
             std::initializer_list<DType> dtypes);
  /// The same, and no two elements share an address. `last_contiguous`: as for inputs.
  bool output(const char* field, const TensorView& t, std::initializer_list<int64_t> shape,
              std::initializer_list<DType> dtypes, bool last_contiguous = true);
  /// K and V of a cache, read or written; they may interleave in one tensor.
  bool planes(const KvCache& cache, bool written);
  /// A 1-D array, for the alias check; `written` where the call writes it.
  void span(const char* field, const void* data, size_t bytes, bool written = false);

  /// After all tensors are known: no written memory overlaps any other.
  void no_aliases();

  void fail(LawId law, Where where, std::string expected, std::string got) {
    status_->add(make_finding(law, std::move(where), std::move(expected), std::move(got)));
  }

 private:
  struct Range {
    const char* field;
    const std::byte *begin, *end;
    bool written;
    bool interleaves = false;  // with the range before it: K and V of one tensor
  };
  bool view(const char* field, const ConstTensorView& t, std::initializer_list<int64_t> shape,
            std::initializer_list<DType> dtypes, bool last_contiguous, bool written);
  bool plane(const char* field, const KvPlane& p, const KvCache& cache, bool written);
  bool memory(const char* field, const ConstTensorView& t, bool written);

  Status* status_;
  std::vector<Range> ranges_;
};

}  // namespace shadowgraph
