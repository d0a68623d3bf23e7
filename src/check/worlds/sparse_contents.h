// Index keys and latents of a sparse layer as a function of contents. Tested by
// tests/check/sparse_world_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "check/worlds/row_contents.h"
#include "check/worlds/sparse_reference.h"

namespace shadowgraph {

class SparseContents {
 public:
  /// salt: of the history and the layer, which outlives this.
  SparseContents(const SparseLayer& layer, uint64_t salt) : layer_(layer), salt_(salt) {}

  /// Its number; its bytes are made when it is first asked for.
  int32_t number(const TokenContent& content);
  const TokenContent& operator[](int32_t number) const { return numbers_[number]; }
  /// Pools like those of the layer, in which slot i is content i.
  HostSparsePools& pools() { return pools_; }
  const HostSparsePools& pools() const { return pools_; }

  // A step is given one of these for each new token.
  struct Given {
    std::vector<std::byte> index_k, index_k_scale, latent;  // e4m3, f32, f32
  };
  const Given& given(int32_t number) const { return given_[static_cast<size_t>(number)]; }

  /// Another history begins.
  void clear(uint64_t salt);

 private:
  const SparseLayer& layer_;
  uint64_t salt_;
  ContentNumbers numbers_;
  std::vector<Given> given_;
  HostSparsePools pools_;
};

/// Numbers in [-1, 1) of that type; positive: in [0.5, 2.5).
std::vector<std::byte> sparse_numbers(DType dtype, int64_t count, bool positive, Rng& rng);

}  // namespace shadowgraph
