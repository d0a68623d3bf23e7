// A layer of sparse attention in a runner's world: a pool of latents, pages of index keys, owners
// of their slots, new inputs each step. Judged against each request computed alone
// (sparse_reference.h), and whole pools against what its new tokens make of them. Tested by
// tests/check/sparse_world_test.cc.
#pragma once

#include <string>
#include <vector>

#include "check/canonical.h"
#include "check/worlds/layer_buffers.h"
#include "check/worlds/layer_world.h"
#include "check/worlds/slot_owners.h"
#include "check/worlds/sparse_reference.h"
#include "core/choices.h"

namespace shadowgraph {

class SparseWorld final : public LayerWorld {
 public:
  SparseWorld(const LayerPlace& place, const SparseLayer& layer);

  Status bind() override;
  void receive(const ForwardBatch& batch) override;
  void begin_step(const Step& step, const ForwardBatch& batch) override;
  void clear_outputs() override;
  void rewind() override;
  void begin_history(uint64_t number) override {
    owners_.forget_all();
    rng_ = place_.rng_of(number);
  }
  void describe(int64_t tokens, size_t step, LayerIo* io) const override;
  Status judge_alone(const ForwardBatch& batch) override;

 private:
  Status bind_buffers();
  CanonicalRows rows_of_step(const ForwardBatch& batch) const;
  /// A slot's parts of a pool's buffer, one of latents or two of index keys.
  std::vector<Elements> places(const Buffer& pool, int32_t slot) const;
  /// Numbers of the buffer's type; positive: scales.
  std::vector<std::byte> numbers(DType dtype, int64_t count, bool positive = false);
  /// The first so many rows.
  void randomise(const Buffer& b, int64_t rows, bool positive = false);
  void write_slot(int32_t slot);
  void fill_slot(int32_t slot, uint8_t byte);
  void own(int32_t slot, OwnerId owner, bool alone);

  Status compare_pool(const Buffer& b, std::span<const std::byte> want) const;

  const LayerPlace place_;
  const SparseLayer layer_;
  Arena scope_;
  Rng rng_;
  HostCopies copies_;
  Buffer index_q_, index_weights_, index_k_, index_k_scale_, q_, k_, out_, lse_;
  Buffer index_pages_, latents_;
  SparseTensors whole_;  // over all tokens
  mutable TensorsOfTokens<SparseTensors> described_;
  SlotOwners owners_;
  std::vector<int32_t> stored_;  // by this step
  HostSparsePools before_;       // the step
};

}  // namespace shadowgraph
