// Rows that tell the checker what a backend's buffers mean: each row says what laws of metadata
// read in it and how an engine's trace records it, and the key lists of a layer say which keys its
// queries find. Tables of rows are made with buffer_rows.h. Tested by tests/check/roles_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace shadowgraph {

enum class V4Group : uint8_t;

/// A role says what a buffer, or a scalar of the host, tells about the step.
enum class Role : uint8_t {
  kNone,  // another row says it, or Backend::key_lists does
  // Queries. A request may have several rows, which share its queries evenly
  kQueryOffsets,  // [rows + 1]
  kCutOffsets,  // [rows + 1] of rows that end where keys make them; each has queries of one request
  kQueryEnds,   // [rows] offsets without the first
  kQueryLens,   // [rows]
  // Keys, all that a request has on this rank
  kKeyOffsets,  // [rows + 1]
  kKeyEnds,     // [rows] offsets without the first
  kKeyLens,     // [rows]
  kPrefixLens,  // [rows] keys that were stored before the step
  kListedKeys,  // slots of each row's keys by lens, an indptr, beside the table that a kernel reads
  kListedInWindow,  // the same in the window's pool
  kFlatLens,        // [rows] of all ranks
  kWidthLens,       // [rows] the prefix, and as many keys as Limits::max_q_len says
  kFirstListed,     // [rows] tokens of the prefix before the row's list, by lens, an indptr
  kPoolRows,        // [rows] of req_to_token
  // Slots that this step writes: of the pool, of the window's, of the encoder's tokens
  kStored,
  kStoredInWindow,
  kStoredOfEncoder,
  // Recurrent layers
  kStateSlots,      // [rows] padding -1
  kStateSlotsZero,  // [rows] padding 0, a slot of no request
  kInitialStates,   // [rows] bytes, 1: starts from its slot
  kDraftParents,    // [tokens] the earlier token of the same row
  kChunkIndices,    // Mamba2's ChunkList of a prefill
  kChunkOffsets,
  kChunkCount,    // [1]
  kTokenRows,     // [tokens] which request each is of; seq_idx
  kTrackSlots,    // [rows] -1: no snapshot
  kTrackFinals,   // [rows] the slot whose state behind the step is the snapshot; -1: it is not
  kTrackChunks,   // [rows] which chunk's state it is, of all requests' chunks; -1: none
  kTrackWindows,  // [rows, conv_width - 1] tokens before it; 0: no snapshot, or of an earlier step
  // Mamba2 computes a request's tokens up to a snapshot inside a chunk once more, as one of two
  // rows
  kTrackCuts,        // [2 rows + 1] tokens before the snapshot's end, and before the request's
  kTrackCutSlots,    // [2 rows] the snapshot's slot; -1: nothing is computed
  kTrackCutInitial,  // [2 rows] bytes, 1: starts from kTrackCutFrom
  kTrackCutFrom,     // [rows] the slot that it starts from, -1: none
  kOnes,             // all are 1
  kParts,            // FlashMLA's schedule [parts, 8], of lens
  kPartSplits,       // [rows + 1] splits of the rows before
  kCounters,         // a workspace that is 0 between launches
  kRowSplits,  // FlashAttention's schedule [1 + rows]: 0, then the splits of each row, of lens
  // Dual-chunk layers, [rows]; in a prefill chunks cut the rows. Keys in the last query's chunk, in
  // the chunk before, in all chunks before that
  kIntraLens,
  kSuccLens,
  kInterLens,
  kFactors,  // [rows] f32, of keys that are stored
  // Sparse layers; t is a query token of the step
  kExpandedLens,    // [tokens] keys that it sees
  kChosenLens,      // [tokens] of these, how many it attends to
  kChosenOffsets,   // [tokens + 1] running sums of those
  kTokenOffsets,    // [tokens + 1] 0, 1, 2, ...
  kTokenTable,      // slots, a column each; a row for each token, of a prefill for each request
  kTokenPages,      // the same in pages
  kRequestOfToken,  // [tokens]
  kFirstKey,        // [tokens] where its request's keys begin among all
  kBehindKeys,      // [tokens] behind the last that it sees
  kFlatSlots,       // slots of all requests' keys, one after the other
  kChoice,          // [tokens, topk] positions, ascending, then -1
  kChosenSlots,     // [tokens, topk] where these are: slots, or places among all keys
  // Layers of DeepSeek-V4, each [tokens]; BufferInfo::group says which blocks
  kTokenLens,  // the token itself counted
  kTokenPositions,
  kTokenPoolRows,
  kWindowSlots,    // [tokens, columns], the newest first, then -1
  kWindowSeen,     // how many of them
  kWindowStored,   // the token's own
  kBlockStored,    // slot of the block that the token ends
  kBlocksWhole,    // blocks that it sees
  kBlocksClamped,  // at least 1
  kBlocksChosen,   // at most index_topk of these
  kBlockSlots,     // [tokens, columns], then -1
  kStatePages,     // state page of its block
  kExtraPages,     // and of the block before, where both are pooled
  kLatentList,     // slots by lens, an indptr: of the window, then of blocks, if any
  kOwnRows,        // the step's own tokens by lens, an indptr
  kUnread,         // no law reads it: BufferInfo::why
  // Scalars
  kLongestQuery,
  kLongestKeys,  // the largest of lens
  kAllQueries,
  kWindow,  // -1, or what lists with keys before their window are planned with
  kUnreadScalar,
};
constexpr bool is_scalar(Role role) { return role >= Role::kLongestQuery; }

/// How a recorded field is held against the twin's buffer.
enum class FieldRule : uint8_t {
  kExact,     // live elements are equal
  kAtLeast,   // a bound: not below
  kConstant,  // kExact, and equal at capture already
  kBaked,     // a bound, at capture too: a graph freezes it for all its replays
  kDead,      // nothing reads it in this mode
};

enum class FieldShape : uint8_t {
  kNone,    // no trace records it
  kRows,    // [rows], lengths
  kSlots,   // [rows], 64 bits wide: where the step's tokens are stored
  kIndptr,  // [rows + 1]
  kEnds,    // [rows], an indptr without its first 0
  kTable,   // [rows, columns]; of row i the columns of its first lens[i] tokens are live
  kScalar,  // a number of the host
  kList,    // CSR: of row i the elements indptr[i] to indptr[i + 1] are live, each a slot
  kMask,    // row i has [q_len, kv_len], 0 or 1: a byte each, or packed as CustomMask::kPacked
  kSizes,   // not the buffer, but its shape
  kSteps,   // [rows], how many elements an indptr has for each
};

/// A buffer or a scalar, and one field of a trace that records it. A buffer that is recorded under
/// several names has a row for each, and its role in the first.
struct BufferInfo {
  int buffer = -1;  // index into Meta::buffers, of a scalar into Meta::scalars; -1: the twin has no
                    // such thing
  Role role = Role::kNone;
  // The lengths that it is of: of a table in tokens, of a list or a mask its indptr; also of
  // kLongestKeys, kParts, kPartSplits, kRowSplits
  int lens = -1;
  std::optional<V4Group> group = {};  // the group whose blocks it describes
  std::string_view why = {};          // why no law reads it
  // Why no launch of the twin is given it, in modes of which none is (a bit for each ForwardMode):
  // the engine's kernels do not read it either
  std::string_view dead = {};
  uint32_t dead_in = 0;

  std::string_view recorded = {};  // the engine's name: "expand.page_table"; also of a dead buffer
  FieldShape shape = FieldShape::kNone;
  FieldRule rule = FieldRule::kExact;
  // kTable, kList: how the engine's kernel reads it: in pages of the model's size, or in slots. Not
  // the twin's own unit (Meta::units): both are expanded to slots before they are compared
  bool pages = true;
  bool of_window = false;      // kTable, kList: of the window's pool
  std::string_view refs = {};  // the law that a difference breaks stands on them: "fa.I-28 fa.I-34"
  // kRows: what padding, and every row of a capture, has at least; of_padding: Engine::padding_len.
  // A tree's two halves may be empty there: its capture has no mask and no drafts yet
  int32_t least = 0;
  bool of_padding = false;
  std::optional<int32_t> most = {};  // kRows: and at most
  bool of_last_page = false;         // kRows: tokens in the last page of each row of a plan's list
  // kRows: into how many partial results, at the most, a row is cut: the third axis of this buffer
  int most_of = -1;
  // kIndptr, kEnds: offsets into the step's query tokens, of which a graph has so many and no more
  bool of_queries = true;
  bool any_integers = false;  // else int32, where the twin's are: a kernel reads them so
  // kScalar: the value that a line without this field means. kMask: with a value here, a line
  // without a mask means a mask of ones
  std::optional<int64_t> unsaid = {};
  int keys = -1;  // kMask, packed: the indptr of its rows' keys
  // kRows, kIndptr, kTable: rows are virtual requests, and a step may need fewer than the twin has
  bool of_virtual = false;

  constexpr bool records(std::string_view name) const {
    return shape != FieldShape::kNone && recorded == name;
  }
};

// Parts of a key list, by Meta's buffers.

/// Which of its keys a query sees, request by request [q_len, keys].
struct KeyMask {
  int bits, indptr;     // [rows + 1] bytes
  bool packed = false;  // a bit for each key of the list, else a byte for every key of the request
  int depths = -1;      // [tokens] of a tree, whose mask has no window; -1: it has it
};

/// Items whose queries see only their own item's keys behind the prefix.
struct KeyItems {
  int prefix_lens;  // [rows] keys before the first delimiter
  int places;       // [rows, columns] of the tokens from there on, 0 of a delimiter
  int longest;      // [rows] the largest of a row
};

/// A plan (TilePlan) that cuts queries into tiles and keys into chunks.
struct KeyPlan {
  int request_indices, qo_tile_indices, kv_tile_indices, o_indptr, merge_indptr, kv_chunk_size,
      block_valid_mask;
  int split_kv;  // index into Meta::scalars
  int partial;   // [partial results, heads]
};

/// Into how many partial results Triton's rule cuts each row.
struct KeySplits {
  int num_splits;  // [rows]
  int partial;     // [rows, heads, splits]
};

/// Keys that a layer's queries find, by Meta's buffers: row i is read by the queries from
/// queries[i] to queries[i + 1]. A layer may have several: a query's keys are those of all, one
/// list after the other.
struct KeyList {
  enum class Kind : uint8_t {
    kTable,  // [rows, columns], and lens [rows] keys
    kSlots,  // by lens, an indptr [rows + 1]
    kChunk,  // the same, of one chunk of the first axis of keys and lens
    kOwn,    // the step's own tokens as they come, by lens, an indptr [rows + 1]
  };
  Kind kind = Kind::kTable;
  int keys = -1;  // kOwn: none
  int lens = -1;
  int queries = -1;  // [rows + 1]; -1: a request, of a draft each branch, has one row
  int32_t chunk = 0;
  bool masked = false;  // something beside the list says which of its keys a query sees
  std::optional<KeyMask> mask = {};
  std::optional<KeyItems> items = {};
  std::optional<KeyPlan> plan = {};
  std::optional<KeySplits> splits = {};
};

/// Calls fn with each buffer that a key list names.
template <class Fn>
constexpr void for_each_buffer(const KeyList& l, Fn fn) {
  const auto each = [&](auto... buffers) { (fn(buffers), ...); };
  each(l.keys, l.lens, l.queries);
  if (l.mask) each(l.mask->bits, l.mask->indptr, l.mask->depths);
  if (l.items) each(l.items->prefix_lens, l.items->places, l.items->longest);
  if (const auto& p = l.plan)
    each(p->request_indices, p->qo_tile_indices, p->kv_tile_indices, p->o_indptr, p->merge_indptr,
         p->kv_chunk_size, p->block_valid_mask, p->partial);
  if (l.splits) each(l.splits->num_splits, l.splits->partial);
}

/// The step's own tokens, by the offsets of its queries.
inline KeyList own_tokens(int indptr) {
  return {.kind = KeyList::Kind::kOwn, .lens = indptr, .queries = indptr};
}
inline KeyList table_of_keys(int table, int lens, int queries) {
  return {.kind = KeyList::Kind::kTable, .keys = table, .lens = lens, .queries = queries};
}
inline KeyList list_of_slots(int slots, int indptr, int queries) {
  return {.kind = KeyList::Kind::kSlots, .keys = slots, .lens = indptr, .queries = queries};
}

}  // namespace shadowgraph
