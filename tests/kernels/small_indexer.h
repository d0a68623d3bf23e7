// Small calls of the indexer that own their memory, and can be copied: the same batch twice, once
// with one thing changed.
#pragma once

#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/choices.h"
#include "core/float_formats.h"
#include "shadowgraph/layers/indexer.h"

namespace shadowgraph {

using Bytes = std::vector<std::byte>;

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}
template <class T>
std::vector<T> values_of(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// Any e4m3 but NaN.
inline Bytes random_e4m3(Rng& rng, int64_t count) {
  Bytes bytes(static_cast<size_t>(count));
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.below(2) * 128 + rng.below(0x7f));
  return bytes;
}
inline Bytes random_f32(Rng& rng, int64_t count, float low = -1) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const float x = rng.signed_unit();
    values.push_back(low < 0 ? x : low + std::abs(x));
  }
  return bytes_of(values);
}

/// Index scores of a few tokens over two requests' keys, in pages or one request after the other.
struct SmallIndexer {
  int64_t heads = 3, width = 200, pages_a_row = 3, num_pages = 8;
  bool paged = true;
  std::vector<int32_t> rows = {0, 1, 1, 0, 1};
  std::vector<int32_t> ks = {0, 0, 3, 70, 9}, ke = {1, 130, 131, 192, 9};
  Bytes q, weights, pages, table, k, k_scale, logits;
  CallOptions options;

  explicit SmallIndexer(uint64_t seed = 1) {
    Rng rng(seed);
    q = random_e4m3(rng, tokens() * heads * kIndexDim);
    weights = random_f32(rng, tokens() * heads);
    table = bytes_of(std::vector<int32_t>{5, 0, 7, 2, 6, 3});
    k = random_e4m3(rng, 192 * kIndexDim), k_scale = random_f32(rng, 192, 0.01F);
    pages.resize(static_cast<size_t>(num_pages * kIndexPageBytes));
    for (int64_t page = 0; page < num_pages; ++page) {
      const Bytes keys = random_e4m3(rng, kIndexPageTokens * kIndexDim);
      const Bytes scales = random_f32(rng, kIndexPageTokens, 0.01F);
      std::byte* to = pages.data() + page * kIndexPageBytes;
      std::memcpy(to, keys.data(), keys.size());
      std::memcpy(to + keys.size(), scales.data(), scales.size());
    }
    logits.assign(static_cast<size_t>(tokens() * width) * 4, std::byte{0x7e});
  }
  int64_t tokens() const { return static_cast<int64_t>(ke.size()); }

  IndexerLogits call() {
    IndexerLogits c;
    c.q = ConstTensorView(q.data(), DType::kE4M3, {tokens(), heads, kIndexDim});
    c.weights = ConstTensorView(weights.data(), DType::kF32, {tokens(), heads});
    if (paged) {
      c.pages = ConstTensorView(pages.data(), DType::kU8, {num_pages, kIndexPageBytes});
      c.page_table = ConstTensorView(table.data(), DType::kI32, {2, pages_a_row});
      c.rows = rows;
    } else {
      c.k = ConstTensorView(k.data(), DType::kE4M3, {192, kIndexDim});
      c.k_scale = ConstTensorView(k_scale.data(), DType::kF32, {192});
    }
    c.ks = ks, c.ke = ke;
    c.logits = TensorView(logits.data(), DType::kF32, {tokens(), width});
    c.options = options;
    return c;
  }
  std::string run() { return indexer_logits(call()).to_string(); }
  float logit(int64_t token, int64_t s) const {
    return load_float(logits.data(), DType::kF32, token * width + s);
  }
};

}  // namespace shadowgraph
