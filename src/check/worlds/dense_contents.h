// K and V of a dense layer as a function of contents: a token that is computed twice has the same
// bytes, and two tokens have others. What the oracle sees is taken from here, never from a pool.
// Tested by tests/check/dense_contents_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

#include "check/runner.h"
#include "check/worlds/row_contents.h"
#include "shadowgraph/attention/kv_cache.h"

namespace shadowgraph {

class DenseContents {
 public:
  /// salt: of the history and the layer; both references outlive this.
  DenseContents(const LayerKind& kind, const RunnerOptions& options, const LayerValues& values,
                uint64_t salt);

  /// The number of a content whose keys were multiplied by that factor when they were stored; its
  /// bytes are made when it is first asked for.
  int32_t number(const TokenContent& content, float key_factor = 1);
  /// Whose tokens they are; by the number.
  const TokenContent& operator[](int32_t number) const { return numbers_[number]; }

  // The vectors of a number, heads side by side; a latent has no v.
  /// f32, what a step is given: [num_kv_heads * head_dim].
  std::span<const float> given_k(int32_t number) const { return part(given_k_, number, k_size_); }
  std::span<const float> given_v(int32_t number) const { return part(given_v_, number, v_size_); }
  /// The same as pools hold it.
  std::span<const std::byte> stored_k(int32_t number) const {
    return part(stored_k_, number, k_size_ * element_);
  }
  std::span<const std::byte> stored_v(int32_t number) const {
    return part(stored_v_, number, v_size_ * element_);
  }

  /// All of them as pools hold them: page i is content i. Good until the next number is made.
  KvCache cache();
  /// Another history begins.
  void clear(uint64_t salt);

 private:
  template <class T>
  static std::span<const T> part(const std::vector<T>& all, int32_t number, size_t size) {
    return std::span(all).subspan(static_cast<size_t>(number) * size, size);
  }
  void make(uint64_t chain, float key_factor);
  /// The element that a key begins with, drawn as x.
  float first_of_key(float x);

  const LayerKind& kind_;
  const RunnerOptions& options_;
  const LayerValues values_;
  const size_t k_size_, v_size_, element_;
  uint64_t salt_;
  ContentNumbers numbers_;
  std::unordered_set<int64_t> selectors_;  // those that are given away
  std::vector<float> given_k_, given_v_;
  std::vector<std::byte> stored_k_, stored_v_;
};

/// A dense layer's cache over its planes [pages, page_size, num_kv_heads, head_dim]; v: ignored of
/// a latent.
KvCache dense_cache(const LayerKind& kind, const LayerValues& values, const TensorView& k,
                    const TensorView& v);

}  // namespace shadowgraph
