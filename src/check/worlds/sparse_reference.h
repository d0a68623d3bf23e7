// What one request of a step gives, alone: of a sparse layer's inputs and pools in host memory, or
// a device's that the host can read, by the kernels themselves, without metadata of any backend.
// Tested by tests/check/sparse_world_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shadowgraph/layers/sparse_layer.h"

namespace shadowgraph {

/// Bytes of a latent in the pool.
inline int64_t latent_bytes(const SparseLayer& layer) {
  if (layer.latents == LatentLayout::kDsa) return kDsaBytes;
  return int64_t{layer.head_dim} * static_cast<int64_t>(size_of(layer.latent_dtype));
}
/// Slots in memory that many bytes apart.
WritableLatentPool latent_pool(const SparseLayer& layer, std::byte* memory, int64_t slots);

/// Pools in host memory: index pages, and latents.
struct HostSparsePools {
  std::vector<std::byte> index_pages, latents;
};

/// A step's inputs, over all its tokens.
struct SparseInputs {
  SparseTensors tensors;
  ConstTensorView q, latents;
};

/// New tokens into the pools; slots: of the first so many.
void store_alone(const SparseLayer& layer, const SparseInputs& inputs,
                 std::span<const int32_t> slots, HostSparsePools* pools);

/// One request of a step: its rows of the inputs, and the slots of all its keys, the new ones last.
struct SparseRequest {
  int64_t first = 0, tokens = 0;
  std::span<const int32_t> slots;
};
struct SparseResult {
  std::vector<float> out, lse;  // [tokens, num_heads, head_dim_v], [tokens, num_heads]
};
SparseResult run_alone(const SparseLayer& layer, const SparseInputs& inputs,
                       const SparseRequest& request, HostSparsePools& pools);

}  // namespace shadowgraph
