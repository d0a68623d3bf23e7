// What one request of a step gives in a layer of DeepSeek-V4, alone: of the layer's inputs and
// pools in host memory, by the kernels themselves, without metadata of any backend. Where a token,
// a block and a state lie is said here once more, by the scheduler's tables alone. Tested by
// tests/check/v4_world_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shadowgraph/engine/backend.h"
#include "shadowgraph/engine/batch.h"
#include "shadowgraph/layers/v4_layer.h"

namespace shadowgraph {

/// Where one request's latents and states are.
class V4Places {
 public:
  V4Places(const V4Layer& layer, const ModelConfig& model, const ForwardBatch& batch,
           int64_t request);

  int64_t token(int32_t position) const;
  /// So many of a request's last tokens have a slot each.
  int32_t kept() const;
  /// Whole blocks.
  int64_t block(int32_t block) const;
  /// A page of the compressor's states; a token's row of it is its place in the block.
  int32_t state(int32_t block) const;

  // Slots and pages below are padding's.
  static int64_t first_token(const V4Layer& layer, const ModelConfig& model);
  static int64_t first_block(const V4Layer& layer, const ModelConfig& model);
  /// In a unified pool, the slots before the blocks.
  static int64_t rings(const V4Layer& layer, const ModelConfig& model);
  static int32_t states_a_page(const V4Layer& layer, const ModelConfig& model);

 private:
  const V4Layer& layer_;
  const ModelConfig& model_;
  std::span<const int32_t> slots_;
  std::span<const int64_t> full_to_swa_;
  int32_t row_;
};

/// Pools in host memory. Of kUnified all latents are tokens.
struct HostLatents {
  std::vector<std::byte> tokens, blocks, state;

  bool operator==(const HostLatents&) const = default;
};

/// One request of a step.
struct V4Request {
  int64_t first = 0;  // its rows of the step's inputs
  RequestExtent extent;
  bool prefill = false;  // of kUnified: it attends before it stores
  bool attends = true;   // false: it only stores, all its tokens
};

/// tensors: of the whole step, on a device that the host can read; its pools say shapes alone. Goes
/// on from pools and writes them; returns [q_len, num_heads, head_dim].
std::vector<float> v4_alone(const V4Layer& layer, const V4Tensors& tensors,
                            const ConstTensorView& q, const V4Request& request,
                            const V4Places& places, HostLatents* pools);

/// The same pool in host memory.
inline WritableLatentPool in_host(WritableLatentPool pool, std::vector<std::byte>* bytes) {
  pool.data.data = bytes->data();
  return pool;
}

}  // namespace shadowgraph
