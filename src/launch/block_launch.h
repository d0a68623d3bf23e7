// Compressed blocks into their slots, as a launch: norm and rotation of what the compressor has
// pooled, of those tokens alone that end a block, then the pool's own layout, as the engine has it
// in one kernel. All memory is the device's, lists too. Facts: docs/metadata.md "DeepSeek-V4".
// Tested by tests/launch/block_launch_test.cc.
#pragma once

#include "attn/visit/visit_sparse.h"
#include "launch/launch_args.h"
#include "shadowgraph/device/kernel.h"
#include "shadowgraph/layers/sparse.h"

namespace shadowgraph {

struct StoreBlocks {
  ConstTensorView x;       // f32 [tokens, head_dim], pooled; what is not stored is not read
  ConstTensorView weight;  // f32 [head_dim], of the norm
  float eps = 1e-6F;
  ConstTensorView freqs;  // f32 [positions, rope_dim]; a block's is that of its first token
  std::span<const int32_t> positions;  // [tokens]
  std::span<const int64_t> out_loc;    // [tokens] slots; below first_slot: it ends no block
  WritableLatentPool pool;
  int32_t ratio = 0;  // tokens of a block
  int64_t first_slot = 1;

  bool drops(size_t token) const { return out_loc[token] < 0 || out_loc[token] < first_slot; }
  /// The position of the first token of a token's block.
  int64_t position(size_t token) const { return int64_t{positions[token]} + 1 - ratio; }
};
template <class V>
void visit_args(V& v, StoreBlocks& c) {
  v("x", c.x);
  v("weight", c.weight);
  v("freqs", c.freqs);
  v("pool", c.pool);
  v("positions", c.positions);
  v("out_loc", c.out_loc);
  v("eps", c.eps);
  v("ratio", c.ratio);
  v("first_slot", c.first_slot);
}

/// norm_rope, then pack_latents; f32 between them. Not ok: nothing is stored.
Status store_blocks(const StoreBlocks& call);
Status validate(const StoreBlocks& call);

/// On what memory holds when it runs. Where it is refused nothing is stored, and the footprint
/// holds the writes beyond the pool. Rows of spans are tokens: whose they are says `tokens`.
KernelLaunch store_blocks_launch(StoreBlocks call, const RequestRows& tokens = {.a_request = 0});

extern const Kernel kStoreBlocks;

}  // namespace shadowgraph
