// DLPack tensors over vectors, and the findings of a call.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shadowgraph.h"

namespace shadowgraph::c_api {

template <class T>
constexpr DLDataType dl_type() {
  const auto bits = static_cast<uint8_t>(8 * sizeof(T));
  if (std::is_same_v<T, bool>) return {6, 8, 1};
  if (std::is_floating_point_v<T>) return {kDLFloat, bits, 1};
  return {static_cast<uint8_t>(std::is_signed_v<T> ? kDLInt : kDLUInt), bits, 1};
}

/// A compact tensor with memory of its own; strides may be set.
template <class T>
struct Tensor {
  std::vector<T> values;
  std::vector<int64_t> shape, strides;

  Tensor() = default;
  explicit Tensor(std::vector<int64_t> sizes, T first = {}) : shape(std::move(sizes)) {
    size_t count = 1;
    for (const int64_t n : shape) count *= static_cast<size_t>(n);
    values.assign(count, first);
  }
  Tensor(std::vector<int64_t> sizes, std::vector<T> elements)
      : values(std::move(elements)), shape(std::move(sizes)) {}

  DLTensor dl() {
    return {values.data(),
            {kDLCPU, 0},
            static_cast<int>(shape.size()),
            dl_type<T>(),
            shape.data(),
            strides.empty() ? nullptr : strides.data(),
            0};
  }
};

/// Small numbers that no two neighbours share.
inline void count_up(std::vector<float>* values, float step) {
  for (size_t i = 0; i < values->size(); ++i)
    (*values)[i] = step * static_cast<float>(static_cast<int>(i * 7 % 23) - 11);
}

/// "input.shape q": law and field of each finding, sorted. Frees the report.
inline std::vector<std::string> taken(sg_report* report) {
  std::vector<std::string> all;
  for (int64_t i = 0; i < sg_report_size(report); ++i) {
    sg_finding f = SG_FINDING_INIT;
    EXPECT_EQ(sg_report_get(report, i, &f), SG_OK);
    all.push_back(std::string(f.id) + " " + f.field);
  }
  sg_report_free(report);
  std::ranges::sort(all);
  return all;
}

using Found = std::vector<std::string>;

}  // namespace shadowgraph::c_api
