// DLPack's tensors as views: what a tensor is, is judged here; what it holds, by the call that gets
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/laws.h"
#include "shadowgraph.h"
#include "shadowgraph/attention/kv_cache.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph::c_api {

/// nullopt: no such type here.
std::optional<DType> dtype_of(const DLDataType& type);

/// Reads the tensors of one call and collects what is wrong with them: input.null, input.device,
/// input.dtype, input.shape, input.stride, input.align. What is wrong comes out undefined or empty.
class TensorReader {
 public:
  explicit TensorReader(Status* status) : status_(*status) {}

  bool ok() const { return status_.ok(); }
  /// A tensor that the call needs, of this rank.
  TensorView need(const char* name, const DLTensor* t, int rank);
  /// Undefined if there is none.
  TensorView may(const char* name, const DLTensor* t, int rank) {
    return t == nullptr ? TensorView() : need(name, t, rank);
  }
  /// [n] elements, one behind the other; empty if there are none. least: of what is given.
  template <class T>
  std::span<const T> list(const char* name, const DLTensor* t, int64_t least = 0);
  /// The same, which the call needs.
  template <class T>
  std::span<const T> need_list(const char* name, const DLTensor* t) {
    if (t == nullptr) need(name, t, 1);
    return list<T>(name, t);
  }

  /// All elements of a compact tensor; empty if there is none.
  template <class T>
  std::span<const T> flat(const char* name, const DLTensor* t, int rank);

  /// Integers or truths of any width, any strides and 0 to 4 axes, copied.
  struct Integers {
    std::string dtype;                 // "int32", "bool"
    std::vector<int64_t> shape, data;  // row-major; above 2^63 - 1: that
  };
  Integers integers(const char* name, const DLTensor* t);
  /// [n] such integers, or of `rank` axes, as T; empty if there are none.
  template <class T>
  std::vector<T> copied(const char* name, const DLTensor* t, int rank = 1);

  void fail(LawId law, const char* name, std::string expected, std::string got) {
    status_.add(make_finding(law, at(name), std::move(expected), std::move(got)));
  }

 private:
  bool sized(const char* name, const DLTensor& t, int least, int most);
  bool located(const char* name, const DLTensor& t, size_t element_size, std::byte** data);

  template <class T>
  std::span<const T> elements(const char* name, const TensorView& view, int64_t least);

  Status& status_;
};

/// The pool that the struct describes; name stands before "k_cache" and "v_cache". False: the
/// struct itself is wrong (SG_USAGE), and sg_last_error says how.
bool read_cache(const char* name, const sg_cache* given, TensorReader& reader, KvCache* cache);

}  // namespace shadowgraph::c_api
