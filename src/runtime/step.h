// Step: one batch that owns what its views show, and what the host does to the KV before it.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/content.h"
#include "runtime/draft_tree.h"
#include "runtime/state_move.h"
#include "shadowgraph/device/annotations.h"
#include "shadowgraph/engine/batch.h"

namespace shadowgraph {

struct Step {
  ForwardMode mode = ForwardMode::kIdle;
  SeqLensKind seq_lens_kind = SeqLensKind::kFull;
  std::vector<OwnerId> requests;  // of each row of the batch
  // The fields of ForwardBatch
  std::vector<int32_t> req_pool_indices, seq_lens, extend_lens, orig_seq_lens, encoder_lens;
  std::vector<int64_t> out_cache_loc, positions, encoder_out_cache_loc, full_to_swa;
  std::vector<int32_t> item_delimiters, item_indptr;
  std::vector<int32_t> req_to_token;
  int64_t width = 0;  // of req_to_token's rows
  DraftShape draft;
  int32_t draft_step = 0;
  std::vector<uint8_t> custom_mask;
  /// To be made before the step, one after the other, in every layer and both pools.
  std::vector<SlotCopy> copies;
  // Recurrent layers: fields of ForwardBatch, and what becomes of states before the step
  std::vector<int32_t> state_slots, track_slots, track_lens;
  std::vector<int32_t> retrieve_next_token, retrieve_next_sibling;
  std::vector<StateMove> state_moves;
  /// The token of each query, as positions: of each new token, and in a draft decode of each
  /// branch.
  std::vector<int32_t> input_ids;
  /// Steps before this one that may still run when it is made.
  int32_t in_flight = 0;
  /// The tokens that the step's slots must hold, by the book of contents (contents.h).
  StepChains chains;

  /// Views of this.
  ForwardBatch batch() const {
    ForwardBatch b;
    b.mode = mode, b.seq_lens_kind = seq_lens_kind;
    b.req_pool_indices = req_pool_indices, b.seq_lens = seq_lens, b.extend_lens = extend_lens;
    b.orig_seq_lens = orig_seq_lens;
    b.out_cache_loc = out_cache_loc, b.positions = positions;
    b.req_to_token = {req_to_token, width};
    b.full_to_swa = full_to_swa;
    b.encoder_lens = encoder_lens, b.encoder_out_cache_loc = encoder_out_cache_loc;
    b.item_delimiters = item_delimiters, b.item_indptr = item_indptr;
    b.spec.topk = draft.topk, b.spec.num_steps = draft.num_steps;
    b.spec.num_draft_tokens = draft.num_draft_tokens, b.spec.step = draft_step;
    b.spec.custom_mask = custom_mask;
    b.spec.retrieve_next_token = retrieve_next_token;
    b.spec.retrieve_next_sibling = retrieve_next_sibling;
    b.states = {state_slots, track_slots, track_lens};
    return b;
  }
};

}  // namespace shadowgraph
