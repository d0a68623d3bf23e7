#include "launch/block_launch.h"

#include <algorithm>
#include <string>
#include <vector>

#include "attn/tensor_rows.h"
#include "attn/validate/tensor_check.h"
#include "attn/validate/validate_sparse.h"
#include "kernels/spans.h"
#include "kernels/sparse/sparse_attention.h"
#include "launch/checked_launch.h"
#include "launch/sparse_launch.h"
#include "shadowgraph/layers/compress.h"

namespace shadowgraph {
namespace {

/// What is left where norm and rotation are done: all tokens' rows, those of blocks alone read.
PackLatents pack_of(const StoreBlocks& c) {
  PackLatents pack;
  pack.latents = c.x, pack.out_cache_loc = c.out_loc, pack.pool = c.pool;
  pack.first_slot = c.first_slot;
  return pack;
}

Footprint footprint_of(const StoreBlocks& c) {
  Footprint spans = pack_latents_footprint(pack_of(c));
  spans.push_back({c.weight.data, 0, c.weight.shape[0], sizeof(float), Access::kRead});
  for (size_t t = 0; t < c.out_loc.size(); ++t) {
    if (c.drops(t)) continue;
    const auto row = static_cast<int32_t>(t);
    append(&spans, {c.positions.data(), row, 1, sizeof(int32_t), Access::kRead, row});
    append(&spans, {c.freqs.data, c.freqs.offset(c.position(t)), c.freqs.shape[1], sizeof(float),
                    Access::kRead, row});
  }
  return spans;
}

Footprint refused_footprint(const StoreBlocks& c) {
  Footprint spans;
  add_whole(&spans, c.out_loc);
  add_whole(&spans, c.positions);
  for (size_t t = 0; t < c.out_loc.size(); ++t)
    if (!c.drops(t))
      add_missing_slot(&spans, c.pool, c.out_loc[t], Access::kWrite, static_cast<int64_t>(t));
  return spans;
}

struct BlocksLaunch : CheckedLaunch<StoreBlocks> {
  static Status run(const StoreBlocks& c) { return store_blocks(c); }
  static Footprint footprint(const StoreBlocks& c) { return footprint_of(c); }
  static Footprint refused(const StoreBlocks& c) { return refused_footprint(c); }
};

}  // namespace

constinit const Kernel kStoreBlocks = checked_kernel<BlocksLaunch>("store_blocks");

Status validate(const StoreBlocks& call) {
  Status status = validate(pack_of(call));
  TensorCheck c(&status);
  const int64_t dim = call.x.rank == 2 ? call.x.shape[1] : kAny;
  c.input("weight", call.weight, {dim}, {DType::kF32});
  if (!c.input("freqs", call.freqs, {kAny, kAny}, {DType::kF32})) return status;
  if (!c.span("positions", call.positions)) return status;
  if (call.positions.size() != call.out_loc.size()) {
    c.fail("len.batch", at("positions"), std::to_string(call.out_loc.size()),
           std::to_string(call.positions.size()));
    return status;
  }
  for (size_t t = 0; t < call.out_loc.size(); ++t) {
    if (call.drops(t)) continue;  // its position is not read
    const int64_t position = call.position(t);
    if (position >= 0 && position < call.freqs.shape[0]) continue;
    c.fail("len.capacity", at("positions", t),
           std::to_string(call.ratio - 1) + " to " +
               std::to_string(call.freqs.shape[0] + call.ratio - 2),
           std::to_string(call.positions[t]));
  }
  return status;
}

Status store_blocks(const StoreBlocks& call) {
  Status status = validate(call);
  if (!status.ok()) return status;
  const int64_t dim = call.x.shape[1];
  std::vector<float> latents(call.out_loc.size() * static_cast<size_t>(dim));
  std::vector<int64_t> slots;
  for (size_t t = 0; t < call.out_loc.size() && status.ok(); ++t) {
    if (call.drops(t)) continue;
    NormRope norm;
    norm.x = rows_of(call.x, static_cast<int64_t>(t), 1);
    norm.weight = call.weight, norm.eps = call.eps;
    norm.freqs = rows_of(call.freqs, call.position(t), 1);
    norm.out =
        TensorView(latents.data() + slots.size() * static_cast<size_t>(dim), DType::kF32, {1, dim});
    status = norm_rope(norm);
    slots.push_back(call.out_loc[t]);
  }
  if (!status.ok()) return status;
  PackLatents pack = pack_of(call);
  pack.latents = ConstTensorView(latents.data(), DType::kF32, {std::ssize(slots), dim});
  pack.out_cache_loc = slots;
  return pack_latents(pack);
}

KernelLaunch store_blocks_launch(StoreBlocks call, const RequestRows& tokens) {
  call.first_slot = std::max<int64_t>(1, call.first_slot);
  return launch_of(kStoreBlocks, call, tokens, std::ssize(call.out_loc));
}

}  // namespace shadowgraph
