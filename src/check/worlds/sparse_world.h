// A layer of sparse attention in a runner's world: a pool of latents, pages of index keys, owners
// of their slots, new inputs each step. Judged against each request computed alone
// (sparse_reference.h) from what its keys must be (sparse_contents.h), and whole pools against what
// its new tokens make of them. Tested by
// tests/check/sparse_world_test.cc.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "check/canonical.h"
#include "check/worlds/layer_buffers.h"
#include "check/worlds/layer_world.h"
#include "check/worlds/row_contents.h"
#include "check/worlds/slot_owners.h"
#include "check/worlds/sparse_contents.h"
#include "check/worlds/sparse_reference.h"
#include "core/choices.h"

namespace shadowgraph {

class SparseWorld final : public LayerWorld {
 public:
  SparseWorld(const LayerPlace& place, const SparseLayer& layer);

  Status bind() override;
  void receive(const Step& step, const ForwardBatch& batch, bool first) override;
  Status begin_step(const Step& step, const ForwardBatch& batch, bool first) override;
  void clear_outputs() override;
  void rewind() override;
  void begin_history(uint64_t number) override;
  void describe(int64_t tokens, size_t step, LayerIo* io) const override;
  Status judge_alone(const ForwardBatch& batch) override;

 private:
  Status bind_buffers();
  void read_step(const Step& step, const ForwardBatch& batch);
  void adopt();
  /// Another engine computed the new tokens.
  void arrive();
  void give();
  void own_rows(std::span<const OwnerId> owners);
  /// A slot's parts of a pool's buffer, one of latents or two of index keys.
  std::vector<Elements> places(const Buffer& pool, int32_t slot) const;
  /// The first so many rows.
  void randomise(const Buffer& b, int64_t rows);
  void write_slot(int32_t slot, int32_t number);
  bool holds(int32_t slot, int32_t number) const;
  std::string told(int32_t slot) const;
  void fill_slot(int32_t slot, uint8_t byte);
  void own(int32_t slot, OwnerId owner, bool alone);

  Status check_still() const;
  Status check_reads() const;
  Status compare_pool(const Buffer& b, std::span<const std::byte> want) const;
  /// The first slot behind page 0 whose bytes differ; -1: none.
  int32_t first_other(const Buffer& b, std::span<const std::byte> want) const;

  const LayerPlace place_;
  const SparseLayer layer_;
  Arena scope_;
  Rng rng_;
  HostCopies copies_, moves_;  // of inputs, and of what pools hold
  Buffer index_q_, index_weights_, index_k_, index_k_scale_, q_, k_, out_, lse_;
  Buffer index_pages_, latents_;
  SparseTensors whole_;  // over all tokens
  mutable TensorsOfTokens<SparseTensors> described_;
  SlotOwners owners_;
  SparseContents contents_;
  std::map<int32_t, int32_t> held_;         // by slot, the number of its content
  CanonicalRows rows_;                      // of the step
  std::vector<std::vector<int32_t>> keys_;  // as rows_.keys: what each is, if all is right
  std::vector<int32_t> fresh_;              // [tokens] what the step stores
  HostSparsePools before_, known_;          // the step, and since the last one
};

}  // namespace shadowgraph
