// A layer of DeepSeek-V4 in a runner's world: pools of latents and of the compressor's states, with
// owners, slot by slot. What a history has stored before it begins, or elsewhere, is written here.
// Judged against each request computed alone (v4_reference.h), whole pools too. Tested by
// tests/check/v4_world_test.cc.
#pragma once

#include <vector>

#include "check/worlds/layer_buffers.h"
#include "check/worlds/layer_world.h"
#include "check/worlds/slot_owners.h"
#include "check/worlds/v4_reference.h"
#include "core/choices.h"

namespace shadowgraph {

class V4World final : public LayerWorld {
 public:
  V4World(const LayerPlace& place, const V4Layer& layer);

  Status bind() override;
  void receive(const ForwardBatch& batch) override;
  void begin_step(const Step& step, const ForwardBatch& batch) override;
  void clear_outputs() override;
  void rewind() override;
  void begin_history(uint64_t number) override;
  void describe(int64_t tokens, size_t step, LayerIo* io) const override;
  Status judge_alone(const ForwardBatch& batch) override;

 private:
  /// What is stored, written and owned as one: a latent of a slot, or a row of states. A slot has
  /// one place in memory, or two.
  struct Shelf {
    Buffer buffer;
    WritableLatentPool pool;  // of latents; else the rows of states
    int64_t first = 0;        // below it all is padding's
    std::vector<uint8_t> defined, defined_before;
    SlotOwners owners;

    std::vector<Elements> places(int64_t slot) const;
    size_t size() const { return defined.size(); }
  };

  Status bind_pools();
  Status bind_inputs();
  void make_weights();
  void add_shelf(Shelf* shelf, const Buffer& buffer, LatentLayout layout, int32_t page_size,
                 int64_t first);
  std::vector<Shelf*> shelves();
  std::vector<const Shelf*> shelves() const;
  std::vector<std::byte>& bytes_of(const Shelf& shelf, HostLatents* pools) const;
  HostLatents contents() const;
  std::vector<float> numbers(int64_t count) {
    return layer_numbers(count, place_.options.data, rng_);
  }

  // One slot of a shelf.
  void write(Shelf& shelf, int64_t slot);
  void own(Shelf& shelf, int64_t slot, OwnerId owner);
  void disown(Shelf& shelf, int64_t slot);
  /// It has a value, and owner may read it.
  void need(Shelf& shelf, int64_t slot, OwnerId owner);
  void retire_undefined(const Shelf& shelf);
  int64_t state_row(const V4Places& places, int32_t position) const;

  /// All that a request's next token may read, and that this step stores.
  void prepare(const V4Places& places, const RequestExtent& extent, OwnerId owner);
  /// fn(shelf, slot) of what is stored for its tokens from first on, in order.
  template <class Fn>
  void for_stored(const V4Places& places, int32_t first, int32_t end, Fn fn);
  void arrive(const ForwardBatch& batch);
  Status compare_pools(HostLatents& want) const;

  const LayerPlace place_;
  const V4Layer layer_;
  Arena scope_;
  Rng rng_;
  HostCopies copies_;
  V4Tensors whole_;  // over all tokens
  Buffer q_, latents_, kv_score_, ape_, weight_, freqs_, index_scores_, sinks_, out_;
  Shelf tokens_, blocks_, state_;  // of kUnified tokens_ are all latents
  mutable TensorsOfTokens<V4Tensors> described_;
  HostLatents before_;  // the step
};

}  // namespace shadowgraph
