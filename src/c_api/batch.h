// sg_batch: a step of a scheduler that owns its arrays, and the truth about it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/step.h"
#include "shadowgraph.h"
#include "shadowgraph/engine/batch.h"
#include "shadowgraph/testing.h"

/// Does not change; a copy would be of other memory than its views.
struct sg_batch {
  struct Array {
    DLDataType type;
    const void* data;
    std::vector<int64_t> shape;
  };

  /// Requires a batch that validate() accepts, with req_to_token.
  sg_batch(shadowgraph::Step of, int32_t tokens_of_a_page, int32_t pages);
  sg_batch(const sg_batch&) = delete;
  sg_batch& operator=(const sg_batch&) = delete;

  shadowgraph::Step step;
  int32_t page_size, pool_pages;
  std::string mode, text;

  // By name, as shadowgraph.h has them
  std::map<std::string, Array, std::less<>> arrays;
  std::map<std::string, int64_t, std::less<>> numbers;

 private:
  template <class T>
  void show(const char* name, const std::vector<T>& values, int64_t width = 0);

  shadowgraph::testing::Truth truth_;
  std::vector<int32_t> prefix_lens_, key_indptr_, keys_;
};
