// Backend: the twin of one engine's attention backend, in three verbs. bind declares buffers, fill
// writes them from a batch on the host, forward launches. Eager, capture and replay are these same
// calls; what differs is a value in Limits. See docs/architecture.md, "One path". Tested by
// tests/backends/.
//
//   meta   = backend.bind(arena, limits)        sees no batch
//   backend.fill(batch, meta)                   allocates nothing
//   arena.upload(stream)
//   backend.forward(stream, meta, step)         launches only; recorded, or run at once
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "shadowgraph/attention/kv_cache.h"
#include "shadowgraph/attention/lse.h"
#include "shadowgraph/attention/params.h"
#include "shadowgraph/device/arena.h"
#include "shadowgraph/device/graph.h"
#include "shadowgraph/engine/batch.h"
#include "shadowgraph/layers/layer_kind.h"

namespace shadowgraph {

class Backend;

/// Dual-chunk attention (Qwen-1M). Facts: docs/metadata.md "Dual chunks".
struct DualChunkConfig {
  int32_t chunk_size = 0, local_size = 0;
  // Tokens that the model was trained for; keys of longer requests are stored times a factor. 0: no
  // factor
  int32_t original_max_position = 0;

  constexpr int32_t chunk_len() const { return chunk_size - local_size; }
};

/// How an engine cuts a row's keys into partial results that are merged by their LSE, and which GPU
/// its planner assumes. Facts: docs/metadata.md "FlashInfer", "Triton".
struct SplitConfig {
  // Keys of a chunk, the same for every batch (deterministic inference); 0: the engine's own rule,
  // which depends on the batch and its padding
  int32_t fixed_size = 0;
  bool off = false;           // true: rows are never cut
  int32_t min_size = 128;     // keys of the smallest chunk that FlashInfer's rule takes
  int32_t max_splits = 8;     // parts of a row by Triton's rule
  int32_t num_sms = 132;      // multiprocessors of the GPU (H100, H200)
  int32_t blocks_per_sm = 2;  // blocks of a decode that run at once
};

/// What stays the same from step to step.
struct ModelConfig {
  int32_t max_context_len = 0;  // tokens of a request, without drafts
  int32_t page_size = 1;        // a power of two
  int32_t max_encoder_len = 0;  // 0: no encoder
  int32_t attention_chunk = 0;  // 0: no local layers
  DualChunkConfig dual_chunk;   // for dual-chunk layers
  // Sliding-window layers have a pool of their own (ForwardBatch::full_to_swa)
  bool swa_pool = false;
  // Decode context parallelism over dcp_size ranks. This rank holds the tokens c of a request with
  // c mod dcp_size = dcp_rank, each at slot / dcp_size of its pool. page_size is the pool's; a page
  // of req_to_token has dcp_size times as many tokens
  int32_t dcp_rank = 0, dcp_size = 1;
  int32_t topk = 1, num_steps = 0, num_draft_tokens = 0;  // speculation; 0 steps: none
  std::vector<LayerKind> layers;                          // LayerIo::kind indexes them
  // How an engine pads a row of a graph: get_cuda_graph_seq_len_fill_value
  int32_t seq_len_fill = 1;
  // Two-batch overlap: if one half of the prompts would have less than this share of the tokens,
  // the cut goes through the middle, inside a request; 0: never. At most 0.5
  float two_chunk_below = 0.0f;
  // The first launches of a step gather page tables from req_to_token on the device; fill does not
  // make them. Padding then has row 0
  bool in_graph_tables = false;
  // The MLA layers of a prefill attend over ragged K and V, and to the prefix in chunks of this
  // many tokens of all requests together. If all keys together are no more than that, one call has
  // them all. 0: the layers attend over pages, as in every other step
  int32_t prefix_chunk_tokens = 0;
  // Prefills leave snapshots of recurrent states (ForwardBatch::states.track_slots)
  bool track_states = false;
  // A prefill attends to its own new tokens over ragged K and V and to the prefix over the cache,
  // and merges the two results (FlashInfer's use_ragged). It stores its tokens after that
  bool ragged_prefill = false;
  SplitConfig split;
};

/// What metadata is bound for: the capacity of every buffer, and what a graph pins. Eager steps are
/// bound for exactly what the batch needs, a graph for what any batch of its bucket may need.
struct Limits {
  ModelConfig model;
  ForwardMode mode = ForwardMode::kDecode;
  int32_t rows = 0;         // requests: the bucket
  int32_t tokens = 0;       // query tokens of all requests
  int32_t max_q_len = 1;    // queries of one request, at most; baked into launches
  int32_t max_kv_len = 0;   // keys of one request, drafts included, at most: the width of tables
  int64_t sum_kv_lens = 0;  // keys of all requests; 0: rows * max_kv_len
  int32_t step = 0;         // step of a draft decode
  // Tokens of one request from its first delimiter on; 0: no batch has items
  int32_t max_items_len = 0;
  // Two-batch overlap: requests and tokens of the first half; 0: nothing to split
  int32_t split_rows = 0, split_tokens = 0;
  bool split_request = false;  // request split_rows is in both halves
  int32_t first_row = 0;       // in a half: index of its first request in the step

  /// Exactly what the batch needs.
  static Limits exact(const ForwardBatch& batch, const ModelConfig& model);
  /// A bucket of `rows` requests, each with q_len queries (draft extend: at most). step: of a draft
  /// decode.
  static Limits bucket(ForwardMode mode, int32_t rows, int32_t q_len, const ModelConfig& model,
                       int32_t step = 0);
};

/// Metadata that a backend has bound, as plain data. A copy names the same buffers.
struct Meta {
  const Backend* backend = nullptr;  // the backend that bound these buffers; it outlives them
  Limits limits;
  Arena arena;                  // the scope of the buffers
  std::vector<Buffer> buffers;  // numbered by the backend; no data: this mode has no such buffer
  std::vector<int32_t> units;   // for buffers that are tables: tokens that a column stands for
  std::vector<int64_t> scalars;
  std::vector<Meta> children;  // parts of a composed backend
  std::vector<int32_t> host;   // scratch of a composed backend's fill

  const Buffer& operator[](size_t i) const { return buffers[i]; }
  bool has(size_t i) const { return i < buffers.size() && buffers[i].data != nullptr; }
};

/// The tensors of one layer on the device. q is [tokens, num_qo_heads, head_dim_qk], out is like q.
/// k and v, [tokens, num_kv_heads, ...], are what this step stores; undefined if it stores nothing.
/// Rows behind the batch's tokens are padding.
///
/// An MLA layer's k is [tokens, 1, latent + rope], and v is a view of its first head_dim_vo; its
/// cache is KvCache::mla_latent. k and v are also given if the prefix is read in chunks or apart
/// from the step's own tokens (ModelConfig::ragged_prefill). A dual-chunk layer's q is [tokens, 5 *
/// num_qo_heads, head_dim_qk]: one copy for each DualChunkQuery, in order.
struct LayerIo {
  int32_t kind = 0;  // index into ModelConfig::layers
  ConstTensorView q, k, v;
  TensorView out;
  NaturalLse lse;  // optional
  KvCache cache;   // the pool that this layer's kind uses
  // Tensors of a layer that is not dense attention. Their header says which of the members above
  // the layer uses, too
  LayerTensors own = {};
};

/// The copies of a query. Each is rotated for positions of its own; sparse prefills use the
/// critical ones.
enum class DualChunkQuery : uint8_t { kIntra, kSucc, kInter, kSuccCritical, kInterCritical };
inline constexpr int32_t kDualChunkQueries = 5;
/// Heads of LayerIo::q.
constexpr int32_t query_heads(const LayerKind& kind) {
  return kind.params.num_qo_heads * (kind.dual_chunk ? kDualChunkQueries : 1);
}

/// One step, layer by layer, and the tables of the pools on the device. A draft has num_steps - 1
/// steps, so layers holds all layers that many times, one step after the other.
struct StepIo {
  std::span<const LayerIo> layers;
  ConstTensorView req_to_token;  // int32 [rows, width]; for in_graph_tables
  ConstTensorView full_to_swa;   // int64 [slots]; the same
};

// How a buffer corresponds to an engine's field, for judging recorded metadata.

enum class FieldRule : uint8_t {
  kExact,     // live elements are equal
  kAtLeast,   // a bound: not below
  kConstant,  // as kExact, and already so at capture
  kBaked,     // a bound, at capture too: a graph freezes it for all its replays
  kDead,      // nothing reads it in this mode
};

enum class FieldShape : uint8_t {
  kRows,    // [rows], lengths
  kSlots,   // [rows], 64 bits wide: where the step's tokens are stored
  kIndptr,  // [rows + 1]
  kTable,   // [rows, columns]; of row i the columns of its first lens[i] tokens are live
  kScalar,  // of the host
  kList,    // CSR: of row i the elements indptr[i] to indptr[i + 1] are live, each a slot
  kMask,    // of row i [q_len, kv_len], 0 or 1: a byte each, or packed as CustomMask::kPacked
  kSizes,   // not the buffer, but its shape
  kSteps,   // [rows], how many elements an indptr has for each
};

struct Field {
  std::string_view recorded;  // the engine's name: "expand.page_table"
  int buffer = -1;            // Meta's; kScalar: Meta::scalars
  FieldShape shape = FieldShape::kRows;
  FieldRule rule = FieldRule::kExact;
  // kTable: the buffer that holds each row's length, in tokens; kList, kMask: its indptr
  int lens = -1;
  // kTable: how the engine's kernel reads the table: in pages of the model's size, or in slots. Not
  // the twin's own unit (Meta::units): both are expanded to slots before they are compared
  bool pages = true;
  std::string_view refs = {};  // of the law that a difference breaks: "fa.I-28 fa.I-34"
  // kRows: what padding, and every row of a capture, has at least. A tree's two halves may be empty
  // there: its capture has no mask and no drafts yet
  int32_t least = 0;
  std::optional<int32_t> most = {};  // kRows: and at most
  // kRows: into how many partial results, at the most, a row is cut: the third axis of this buffer
  int most_of = -1;
  // kIndptr: offsets into the step's query tokens, of which a graph has so many and no more
  bool of_queries = true;
  bool any_integers = false;  // else int32, where the twin's are: a kernel reads them so
  // kScalar: the value that a line without this field means. kMask: with a value here, a line
  // without a mask means a mask of ones
  std::optional<int64_t> unsaid = {};
  int keys = -1;  // kMask, packed: the indptr of its rows' keys
  // kRows, kIndptr, kTable: rows are virtual requests, and a step may need fewer than the twin has
  bool of_virtual = false;
};

// What a backend's own metadata means, for laws that judge it without a kernel.

/// What a buffer, or a scalar of the host, says about the step.
enum class Role : uint8_t {
  // Queries. A request may have several rows, which share its queries evenly
  kQueryOffsets,  // [rows + 1]
  kCutOffsets,  // [rows + 1] of rows that end where keys make them; each has queries of one request
  kQueryEnds,   // [rows] offsets without the first
  kQueryLens,   // [rows]
  // Keys, all that a request has on this rank
  kKeyOffsets,  // [rows + 1]
  kKeyLens,     // [rows]
  kFlatLens,    // [rows] of all ranks
  kWidthLens,   // [rows] the prefix, and as many keys as Limits::max_q_len says
  kSeenLens,    // [max_q_len, rows] keys that a query sees
  kPoolRows,    // [rows] of req_to_token
  // Slots that this step writes: of the pool, of the window's, of the encoder's tokens
  kStored,
  kStoredInWindow,
  kStoredOfEncoder,
  // Recurrent layers
  kStateSlots,      // [rows] padding -1
  kStateSlotsZero,  // [rows] padding 0, a slot of no request
  kInitialStates,   // [rows] bytes, 1: starts from its slot
  kDraftParents,    // [tokens] the earlier token of the same row
  kChunkIndices,    // Mamba2's ChunkList of a prefill; lens: what holds its size
  kChunkOffsets,
  kChunkCount,  // [1]
  kTokenRows,   // [tokens] which request each is of; seq_idx
  kTrackSlots,  // [rows] -1: no snapshot
  kOnes,        // all are 1
  kParts,       // FlashMLA's schedule [parts, 8], of lens
  kPartSplits,  // [rows + 1] splits of the rows before
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
  // Layers of DeepSeek-V4, each [tokens]; BufferRole::group says which blocks
  kTokenLens,  // the token itself counted
  kTokenPositions,
  kTokenPoolRows,
  kWindowSlots,    // [tokens, columns], the newest first, then -1
  kWindowSeen,     // how many of them
  kWindowStored,   // the token's own
  kBlockStored,    // of the block that it ends
  kBlocksWhole,    // blocks that it sees
  kBlocksClamped,  // at least 1
  kBlocksChosen,   // of these, index_topk at most
  kBlockSlots,     // [tokens, columns], then -1
  kStatePages,     // of its block
  kExtraPages,     // and of the block before, where both are pooled
  kLatentList,     // slots by lens, an indptr: of the window, then of blocks. group -1: no blocks
  kOwnRows,        // the step's own tokens by lens, an indptr
  kUnread,         // no law reads it: BufferRole::why
  // Scalars
  kLongestQuery,
  kLongestKeys,  // of lens
  kAllQueries,
  kWindow,  // -1, or what lists with keys before their window are planned with
  kUnreadScalar,
};

struct BufferRole {
  int buffer;  // Meta's; of a scalar Meta::scalars
  Role role;
  int lens = -1;              // the lengths that it is of: kLongestKeys, kParts, kPartSplits
  int group = -1;             // V4Group of the blocks that it is of
  std::string_view why = {};  // no law reads it
};

/// Keys that a layer's queries find, by Meta's buffers: row i is read by the queries from
/// queries[i] to queries[i + 1]. A layer may have several: a query's keys are those of all, one
/// list after the other.
struct KeyList {
  int keys = -1;         // a table, or slots by an indptr; -1: the step's own tokens, as they come
  int lens = -1;         // of a table [rows] keys; of slots [rows + 1] the indptr
  int queries = -1;      // [rows + 1]; -1: a request, of a draft each branch, has one row
  int32_t chunk = 0;     // of keys and lens, where their first axis is chunks
  bool masked = false;   // something beside it says which of its keys a query sees:
  bool packed = false;   // the mask has a bit for each key of the list, else a byte for every key
  int mask = -1;         // request by request [q_len, keys]
  int mask_indptr = -1;  // [rows + 1] bytes
  int depths = -1;       // [tokens] of a tree, where the mask has no window
  int items = -1;        // the first of three arrays, as FlashInfer::kItemPrefixLens
  int plan = -1;         // the first of the arrays of a plan, as FlashInfer::PlanId
  int split_kv = -1;     // its scalar
  int num_splits = -1;   // [rows] by Triton's rule
  int partial = -1;      // results of those: [rows, heads, splits]
};

/// A backend describes itself.
struct BackendInfo {
  std::string_view name;  // "flashattention"
  std::string_view about;
  std::span<const ForwardMode> modes;
  std::span<const int32_t> page_sizes;  // empty: every power of two
  bool tree = false;                    // topk > 1
  bool heads = true, latent = false;    // layers with their own K and V; LayerKind::mla
  bool swa_pool = false, encoder = false, local = false;  // ModelConfig and LayerKind
  bool window_with_encoder = true;  // layers may have a window in a model with cross-attention
  bool items = false;               // ForwardBatch::item_delimiters
  bool dual_chunk = false;          // LayerKind::dual_chunk, for all layers of a model
  bool dcp = false;                 // dcp_size > 1
  bool in_graph_tables = false;
  bool prefix_chunks = false;   // ModelConfig::prefix_chunk_tokens
  bool halves = false;          // ModelConfig::two_chunk_below
  bool whole_draft = false;     // its draft decode runs all steps of a draft, one after the other
  bool ragged_prefill = false;  // ModelConfig::ragged_prefill
  // Modes in which the cut of a row's keys depends on the batch and its padding, unless SplitConfig
  // fixes the cut. In these modes a replay has the bits of the eager step only on exact data or if
  // SplitConfig fixes the cut
  std::span<const ForwardMode> batch_splits = {};
  LseSink lse_sink = LseSink::kExcluded;  // whether the LSE in LayerIo::lse counts a sink
  // A graph serves requests with fewer queries than its bucket has per request. With dcp_size > 1
  // no graph does
  bool ragged_graphs = true;
  bool empty_padding = false;  // ModelConfig::seq_len_fill may be 0
  bool dense = true;           // serves layers of dense attention
  std::span<const RecurrentFamily> recurrent =
      {};                     // serves recurrent layers of these families; a model has one family
  bool track_states = false;  // ModelConfig::track_states
  bool sparse = false;        // serves layers of DeepSeek sparse attention
  std::span<const V4Pools> v4 = {};  // serves layers of DeepSeek-V4 with these pools
  bool shares_prefixes = true;       // requests may share a prefix
  std::span<const Field> fields;
  std::span<const BufferRole> roles = {};
};

/// A backend has no state: everything that changes is in Meta. Threads may use it with distinct
/// Metas.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const BackendInfo& info() const = 0;
  /// Declares every buffer that forward names, and writes the constant ones. Not ok: nothing is
  /// bound. backend.limits: this backend does not serve the limits; input.memory: the arena is
  /// full.
  virtual Status bind(const Arena& arena, const Limits& limits, Meta* meta) const = 0;
  /// Writes every element that a launch may read, padding rows included, and retires the rest. Not
  /// ok: nothing is written. batch.mode, batch.capacity, batch.field, and the findings of
  /// validate(batch).
  virtual Status fill(const ForwardBatch& batch, Meta& meta) const = 0;
  /// Launches the step: first metadata kernels, then store and attend, layer by layer. Requires
  /// tensors with the shapes of StepIo. The launches depend only on meta and step.
  virtual void forward(Stream& stream, const Meta& meta, const StepIo& step) const = 0;

  /// For each query token of the batch, the number of partial results that are merged into one; the
  /// error bound counts them. Depends on the batch and the limits that it is filled for. Empty: 1
  /// each.
  virtual std::vector<int32_t> merged_parts(const ForwardBatch& /*batch*/, const Limits& /*limits*/,
                                            const LayerKind& /*kind*/) const {
    return {};
  }

  /// The lists that hold the keys of a layer of this kind. Depends on what meta is bound for.
  virtual std::vector<KeyList> key_lists(const Meta& /*meta*/, const LayerKind& /*kind*/) const {
    return {};
  }
  using PartFn = std::function<Status(const Backend&, const ForwardBatch&, Meta&)>;
  /// Calls fn for each part of a composed backend with the batch and the metadata that fill gives
  /// the part, in fill's order, until a Status is not ok. A backend that fills by itself has no
  /// parts.
  virtual Status for_each_part(const ForwardBatch& /*batch*/, Meta& /*meta*/,
                               const PartFn& /*fn*/) const {
    return {};
  }
};

/// All backends of src/backends/backends.inc.
std::span<const Backend* const> all_backends();
/// nullptr if no backend has that name.
const Backend* find_backend(std::string_view name);

}  // namespace shadowgraph
