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
#include <span>
#include <string_view>
#include <vector>

#include "shadowgraph/attention/kv_cache.h"
#include "shadowgraph/attention/lse.h"
#include "shadowgraph/attention/params.h"
#include "shadowgraph/device/arena.h"
#include "shadowgraph/device/graph.h"
#include "shadowgraph/engine/batch.h"
#include "shadowgraph/engine/engine.h"
#include "shadowgraph/engine/limits.h"
#include "shadowgraph/layers/layer_kind.h"

namespace shadowgraph {

class Backend;
struct BufferInfo;
struct KeyList;

/// Metadata that a backend has bound, as plain data. A copy names the same buffers.
struct Meta {
  const Backend* backend = nullptr;  // the backend that bound these buffers; it outlives them
  Limits limits = {};
  Arena arena = {};  // the scope of the buffers
  std::vector<Buffer> buffers =
      {};  // numbered by the backend; no data: this mode has no such buffer
  std::vector<int32_t> units = {};  // for buffers that are tables: tokens that a column stands for
  std::vector<int64_t> scalars = {};
  std::vector<Meta> children = {};  // parts of a composed backend
  std::vector<int32_t> host = {};   // scratch of a composed backend's fill

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

/// Buffers that graphs of several modes take from one allocation, or that no two buckets share. All
/// other buffers have an allocation for each mode, as large as its largest bucket needs, and each
/// bucket has the first elements.
struct GraphStorage {
  std::span<const ForwardMode> modes = {};         // those that share; empty: each has its own
  std::span<const std::string_view> buffers = {};  // endings of their names; empty: all
  bool by_rows = false;                            // each bucket has its own
  std::string_view why;                            // what the engine allocates
};

/// A member of a layer that a list of keys, or the plan over it, is made of.
enum class PlanKey : uint8_t {
  kHeads,   // num_qo_heads, num_kv_heads, head dims
  kWindow,  // window_left, of those that have a window
};

/// A backend describes itself.
struct BackendInfo {
  std::string_view name;  // "flashattention"
  std::string_view about;
  std::span<const ForwardMode> modes = {};
  std::span<const int32_t> page_sizes = {};  // empty: every power of two
  bool tree = false;                         // topk > 1
  bool heads = true, latent = false;         // layers with their own K and V; LayerKind::mla
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
  bool fixed_splits = true;  // SplitConfig can fix that cut
  // Members in which layers of dense attention agree that share a list or a plan: it is made of
  // them
  std::span<const PlanKey> plan_keys = {};
  bool sinks = false;                     // AttentionParams::sinks of its layers
  LseSink lse_sink = LseSink::kExcluded;  // whether the LSE in LayerIo::lse counts a sink
  // A graph serves requests with fewer queries than its bucket has per request. With dcp_size > 1
  // no graph does
  bool ragged_graphs = true;
  const Engine* engine = &kSglang;  // whose conventions its padding and its slots follow
  bool dense = true;                // serves layers of dense attention
  std::span<const RecurrentFamily> recurrent =
      {};                     // serves recurrent layers of these families; a model has one family
  bool track_states = false;  // ModelConfig::track_states
  bool sparse = false;        // serves layers of DeepSeek sparse attention
  std::span<const V4Pools> v4 = {};  // serves layers of DeepSeek-V4 with these pools
  bool shares_prefixes = true;       // requests may share a prefix
  // A composed backend's parts have theirs. Constants are of one mode always
  std::span<const GraphStorage> graph_storage = {};
  // The rows say what its buffers and scalars mean; the checker reads them
  std::span<const BufferInfo> buffers = {};
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

  /// Whether the LSE of a step in that mode counts a sink.
  virtual LseSink lse_sink(ForwardMode /*mode*/) const { return info().lse_sink; }

  /// The lists that hold the keys of a layer of this kind, for the checker. Depends on what meta is
  /// bound for.
  virtual std::vector<KeyList> key_lists(const Meta& meta, const LayerKind& kind) const;
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
