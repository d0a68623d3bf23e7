// ForwardBatch: what the scheduler knows about one step; the only input of metadata.
// Source: spec backends-flashattention-family 1.2, 1.3. Tested by tests/attn/batch_test.cc.
#pragma once

#include <cstdint>
#include <span>

#include "shadowgraph/forward_mode.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// What seq_lens count. The same field meant both in one engine, and each reading was a bug in the
/// other's place (spec backends-flashattention-family 0.2); so the batch says it.
enum class SeqLensKind : uint8_t {
  kFull,    // all keys once this step has stored its own
  kPrefix,  // the keys that were cached before this step; of a draft decode, before its first step
};

/// What engines pass: the committed prefix for target verify and draft decode, else full lengths.
constexpr SeqLensKind usual_seq_lens_kind(ForwardMode m) {
  return is_target_verify(m) || m == ForwardMode::kDraftDecode ? SeqLensKind::kPrefix
                                                               : SeqLensKind::kFull;
}

/// The canonical triple of one request; kv_len = prefix_len + q_len. Of a draft decode the triple
/// of each of its topk branches.
struct RequestExtent {
  int32_t prefix_len = 0;  // keys cached before this step
  int32_t q_len = 0;       // new tokens: queries, and keys appended
  int32_t kv_len = 0;      // keys visible to attention

  bool operator==(const RequestExtent&) const = default;
};

/// req_to_token: row r, column c is the slot of token c of pool row r.
struct TokenTable {
  std::span<const int32_t> slots;  // [rows, width], row-major
  int64_t width = 0;

  int64_t rows() const { return width == 0 ? 0 : static_cast<int64_t>(slots.size()) / width; }
  std::span<const int32_t> row(int64_t r) const {
    return slots.subspan(static_cast<size_t>(r * width), static_cast<size_t>(width));
  }
};

/// Speculative decoding with a draft tree (EAGLE).
struct SpecInfo {
  int32_t topk = 1;              // branches that a draft decode follows
  int32_t num_steps = 0;         // tokens a branch has at the end
  int32_t num_draft_tokens = 0;  // queries of each request in target verify
  int32_t step = 0;              // of a draft decode, from 0: each branch has step + 1 tokens
  // Target verify with topk > 1, 0 or 1: request by request [num_draft_tokens, prefix +
  // num_draft_tokens]; the prefix is seen by all
  std::span<const uint8_t> custom_mask;
  // The same tree for recurrent layers, [batch, num_draft_tokens] each: a token's first child and
  // its next sibling, -1: none. May be empty
  std::span<const int32_t> retrieve_next_token = {}, retrieve_next_sibling = {};
};

/// Recurrent layers: a request has one slot, of the same number in every pool of states.
struct StateInfo {
  // [rows of req_to_token] the slot of each (req_index_to_mamba_index); slot 0 is nobody's. Empty:
  // no layer has states
  std::span<const int32_t> slots = {};
  // [batch] where a prefill leaves a snapshot of its state for the prefix cache, -1: nowhere, and
  // how many of the request's tokens it may be behind: it is taken at the last multiple of the
  // layer's chunk behind the prefix. Empty: no request has any
  std::span<const int32_t> track_slots = {}, track_lens = {};
};

/// Views only; the runtime owns the memory.
struct ForwardBatch {
  ForwardMode mode = ForwardMode::kDecode;
  SeqLensKind seq_lens_kind = SeqLensKind::kFull;
  std::span<const int32_t>
      req_pool_indices;               // [batch] row of each request in req_to_token; may be empty
  std::span<const int32_t> seq_lens;  // [batch] tokens, see seq_lens_kind
  // [batch] new tokens; empty where the mode says it: decodes 1, target verify num_draft_tokens
  std::span<const int32_t> extend_lens;
  // [batch] tokens of each whole prompt that comes in chunks, its keys at least; empty: those
  std::span<const int32_t> orig_seq_lens;
  // [sum of new tokens] slot of each new token, may be empty; of a draft decode [batch, topk,
  // num_steps], the slots of all steps
  std::span<const int64_t> out_cache_loc;
  std::span<const int64_t> positions;  // [sum of new tokens]; may be empty
  TokenTable req_to_token;             // with an encoder: its tokens come first in a row
  // Slot of the full pool -> slot of the sliding-window pool, 0 where it is evicted; empty: one
  // pool
  std::span<const int64_t> full_to_swa;
  std::span<const int32_t> encoder_lens;           // [batch] tokens; empty: no encoder
  std::span<const int64_t> encoder_out_cache_loc;  // where cross-attention layers store theirs
  // Multi-item scoring, of extends: places of delimiters among a request's new tokens, ascending,
  // those of request i from item_indptr[i] to item_indptr[i + 1]. A token behind one sees what
  // stands before the first, and its own item up to itself; a delimiter sees the former alone.
  // Empty: no items
  std::span<const int32_t> item_delimiters;
  // [batch + 1]; of a slice the first need not be 0
  std::span<const int32_t> item_indptr;
  SpecInfo spec;
  StateInfo states;

  int64_t size() const { return static_cast<int64_t>(seq_lens.size()); }
  /// New tokens of a request; of a draft decode, of one branch.
  int32_t q_len(int64_t request) const;
  /// Of a request: places among its new tokens. Requires a batch that validate() accepts.
  std::span<const int32_t> delimiters(int64_t request) const;
  /// Requires a batch that validate() accepts.
  RequestExtent extent(int64_t request) const;
  /// Tokens of the whole prompt, of a decode those so far. Requires the same.
  int32_t prompt_len(int64_t request) const;
  /// Requests [first, first + count), tokens and mask with them. Requires a valid batch.
  ForwardBatch slice(int64_t first, int64_t count) const;
};

/// Lengths non-negative, prefix + new = full, spans of the lengths they should have, no int32
/// overflow; pool rows inside req_to_token and every key that a request has inside its row; items
/// of extends alone, their delimiters among the new tokens.
Status validate(const ForwardBatch& batch);

}  // namespace shadowgraph
