// ForwardBatch: what the scheduler knows about one step. Metadata is made from nothing else.
// Facts: docs/metadata.md "Lengths". Tested by tests/attn/batch_test.cc.
#pragma once

#include <cstdint>
#include <span>

#include "shadowgraph/engine/forward_mode.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// What seq_lens count. One engine used the same field in both meanings, and each meaning was a bug
/// where the other was expected (docs/metadata.md "Lengths"); so a batch names its own.
enum class SeqLensKind : uint8_t {
  kFull,    // all keys of a request, the tokens of this step included
  kPrefix,  // the keys cached before this step; in a draft decode, before its first step
};

/// The meaning that engines use: the committed prefix for target verify and draft decode, full
/// lengths for every other mode.
constexpr SeqLensKind usual_seq_lens_kind(ForwardMode m) {
  return is_target_verify(m) || m == ForwardMode::kDraftDecode ? SeqLensKind::kPrefix
                                                               : SeqLensKind::kFull;
}

/// The canonical triple of one request; kv_len = prefix_len + q_len. In a draft decode it is the
/// triple of each of the request's topk branches.
struct RequestExtent {
  int32_t prefix_len = 0;  // keys cached before this step
  int32_t q_len = 0;       // new tokens: each is a query, and a key that is appended
  int32_t kv_len = 0;      // keys that attention may see

  bool operator==(const RequestExtent&) const = default;
};

/// req_to_token: row r, column c holds the slot of token c of the request in pool row r.
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
  int32_t num_steps = 0;         // tokens of a branch at the end of the draft
  int32_t num_draft_tokens = 0;  // queries per request in target verify
  int32_t step = 0;  // step of a draft decode, from 0; in it each branch has step + 1 tokens
  // Target verify with topk > 1: 0 or 1, request by request [num_draft_tokens, prefix +
  // num_draft_tokens]. Every draft token sees the prefix
  std::span<const uint8_t> custom_mask;
  // The same tree for recurrent layers, [batch, num_draft_tokens] each: the first child and the
  // next sibling of every token, -1: none. May be empty
  std::span<const int32_t> retrieve_next_token = {}, retrieve_next_sibling = {};
};

/// Slots of recurrent states. A request has one slot number, the same in every pool of states.
struct StateInfo {
  // [rows of req_to_token] slot of each row (req_index_to_mamba_index); slot 0 belongs to no
  // request. Empty: no layer has states
  std::span<const int32_t> slots = {};
  // A prefill may leave a snapshot of its state for the prefix cache. track_slots [batch]: the slot
  // that gets it, -1: no snapshot. track_lens [batch]: how many tokens of the request the snapshot
  // may cover; it is taken at the last multiple of the layer's chunk behind the prefix. Empty: no
  // request leaves a snapshot
  std::span<const int32_t> track_slots = {}, track_lens = {};
};

/// Views only; the runtime owns the memory.
struct ForwardBatch {
  ForwardMode mode = ForwardMode::kDecode;
  SeqLensKind seq_lens_kind = SeqLensKind::kFull;
  std::span<const int32_t>
      req_pool_indices;               // [batch] row of each request in req_to_token; may be empty
  std::span<const int32_t> seq_lens;  // [batch] tokens, see seq_lens_kind
  // [batch] new tokens; empty where the mode implies them: 1 in decodes, num_draft_tokens in target
  // verify
  std::span<const int32_t> extend_lens;
  // [batch] tokens of each request's whole prompt, for prompts that come in chunks; at least the
  // request's keys. Empty: equal to the request's keys
  std::span<const int32_t> orig_seq_lens;
  // [sum of new tokens] slot of each new token; may be empty. In a draft decode [batch, topk,
  // num_steps]: the slots of all steps
  std::span<const int64_t> out_cache_loc;
  std::span<const int64_t> positions;  // [sum of new tokens]; may be empty
  TokenTable req_to_token;  // a row holds the encoder's tokens first, if there is an encoder
  // Maps a slot of the full pool to its slot in the sliding-window pool, 0 where the token is
  // evicted. Empty: there is one pool
  std::span<const int64_t> full_to_swa;
  std::span<const int32_t> encoder_lens;  // [batch] tokens; empty: no encoder
  std::span<const int64_t>
      encoder_out_cache_loc;  // slots of the encoder's tokens in cross-attention layers
  // Multi-item scoring, in extends only. Entries item_indptr[i] to item_indptr[i + 1] - 1 are the
  // places of request i's delimiters among its new tokens, in ascending order. A token behind a
  // delimiter sees the tokens before the first delimiter, and its own item up to itself; a
  // delimiter sees only the tokens before the first delimiter. Example: new tokens `a b | c d | e`,
  // delimiters {2, 5}: d sees the prefix, a, b, c and d; e sees the prefix, a, b and e. Empty: no
  // items
  std::span<const int32_t> item_delimiters;
  // [batch + 1]; in a slice of a batch the first entry need not be 0
  std::span<const int32_t> item_indptr;
  SpecInfo spec;
  StateInfo states;

  int64_t size() const { return static_cast<int64_t>(seq_lens.size()); }
  /// New tokens of a request; in a draft decode, of one of its branches.
  int32_t q_len(int64_t request) const;
  /// Tokens of a request's encoder; 0: it has none.
  int32_t encoder_len(int64_t request) const {
    return encoder_lens.empty() ? 0 : encoder_lens[static_cast<size_t>(request)];
  }
  /// A request's delimiters, as places among its new tokens. Requires a batch that validate()
  /// accepts.
  std::span<const int32_t> delimiters(int64_t request) const;
  /// Requires a batch that validate() accepts.
  RequestExtent extent(int64_t request) const;
  /// Tokens of the whole prompt; in a decode, the tokens so far. Requires a batch that validate()
  /// accepts.
  int32_t prompt_len(int64_t request) const;
  /// Requests [first, first + count) with their tokens and masks. Requires a batch that validate()
  /// accepts.
  ForwardBatch slice(int64_t first, int64_t count) const;
};

/// Checks that lengths are not negative, that prefix + new = full, that every span has its length,
/// and that no sum overflows int32; that pool rows lie in req_to_token and each request's keys in
/// its row; that only extends have items, with delimiters among the request's new tokens.
Status validate(const ForwardBatch& batch);

}  // namespace shadowgraph
