// A layer of DeepSeek-V4 in a runner's world: pools of latents and of the compressor's states, with
// owners, slot by slot. What a token leaves in them is a function of the tokens up to it. What a
// history has stored before it begins, or elsewhere, is computed here. Judged against each request
// computed alone (v4_reference.h) from what its slots must hold, whole pools too. Tested by
// tests/check/v4_world_test.cc.
#pragma once

#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "check/worlds/layer_buffers.h"
#include "check/worlds/layer_world.h"
#include "check/worlds/row_contents.h"
#include "check/worlds/slot_owners.h"
#include "check/worlds/v4_reference.h"
#include "core/choices.h"

namespace shadowgraph {

class V4World final : public LayerWorld {
 public:
  V4World(const LayerPlace& place, const V4Layer& layer);

  Status bind() override;
  void receive(const Step& step, const ForwardBatch& batch, bool first) override;
  Status begin_step(const Step& step, const ForwardBatch& batch, bool first) override;
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
    // Bytes that were computed, by the chain behind which they are stored; contents by slot
    std::unordered_map<Chain, std::vector<std::byte>> made;
    std::map<int64_t, TokenContent> held;

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
  /// Rows of an input, of the tokens that bring them.
  std::vector<float> rows_of_tokens(const Buffer& input, std::span<const TokenContent> t) const;

  // One slot of a shelf.
  static std::vector<std::byte> bytes_of_slot(const Shelf& shelf, int64_t slot,
                                              const std::vector<std::byte>& pool);
  void own(Shelf& shelf, int64_t slot, OwnerId owner);
  void disown(Shelf& shelf, int64_t slot);
  void share(Shelf& shelf, int64_t slot, OwnerId owner);
  void retire_undefined(const Shelf& shelf);
  int64_t state_row(const V4Places& places, int32_t position) const;
  /// Does a slot that for_stored or for_read gives for the position hold a block?
  bool is_block(const Shelf& shelf, int64_t slot, const V4Places& places, int32_t p) const;

  void own_request(const V4Places& places, const RequestExtent& extent, OwnerId owner);
  /// fn(shelf, slot, position) of what is stored for its tokens from first on, in order; a block's
  /// position is its last token's.
  template <class Fn>
  void for_stored(const V4Places& places, int32_t first, int32_t end, Fn fn);
  /// The same of all that a request's next token may read.
  template <class Fn>
  void for_read(const V4Places& places, int32_t prefix_len, Fn fn);
  std::span<const TokenContent> tokens_of(int64_t request) const {
    return contents_.keys[static_cast<size_t>(request)];
  }
  /// These tokens of a request were computed elsewhere.
  void arrive(const ForwardBatch& batch, int64_t request, int32_t first, int32_t end);
  void arrive_all(const ForwardBatch& batch, bool first);
  /// Takes from the pools what the tokens from first on leave there; of latents from first_latent
  /// on.
  void note(const V4Places& places, std::span<const TokenContent> tokens, int32_t first,
            int32_t first_latent, HostLatents& pools);
  /// key: of what is made.
  Status check_read(Shelf& shelf, int64_t slot, Chain key, const TokenContent& content);
  Status check_reads(const ForwardBatch& batch);
  Status check_still() const;
  Status compare_pools(HostLatents& want) const;

  const LayerPlace place_;
  const V4Layer layer_;
  Arena scope_;
  Rng rng_;
  uint64_t salt_;              // of what tokens bring
  HostCopies copies_, moves_;  // of inputs, and of what pools hold
  V4Tensors whole_;            // over all tokens
  Buffer q_, latents_, kv_score_, ape_, weight_, freqs_, index_scores_, sinks_, out_;
  Shelf tokens_, blocks_, state_;  // of kUnified tokens_ are all latents
  mutable TensorsOfTokens<V4Tensors> described_;
  RowContents contents_;        // of the step
  HostLatents before_, right_;  // the step, and if all is right
  HostLatents known_;           // since the last step
};

}  // namespace shadowgraph
