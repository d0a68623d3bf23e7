#include "backends/recurrent/recurrent_backend.h"

#include <algorithm>
#include <string>
#include <utility>

#include "attn/page_table.h"
#include "attn/tensor_rows.h"
#include "backends/paged/paged_backend.h"
#include "core/laws.h"
#include "launch/recurrent_launch.h"
#include "launch/recurrent_layer_launch.h"
#include "launch/row_numbers.h"

namespace shadowgraph {
namespace {

const RecurrentLayer* first_layer(const ModelConfig& model) {
  for (const LayerKind& kind : model.layers)
    if (const RecurrentLayer* layer = recurrent_of(kind)) return layer;
  return nullptr;
}

/// The slot of a row's request; -1: the batch does not say.
int32_t state_slot(const ForwardBatch& batch, int64_t i) {
  const auto row = static_cast<size_t>(batch.req_pool_indices[static_cast<size_t>(i)]);
  return row < batch.states.slots.size() ? batch.states.slots[row] : -1;
}

/// Kernels that find row i's tokens at i times their number need as many of each.
Status has_all_tokens(const ForwardBatch& batch, const Limits& limits) {
  Status status;
  for (int64_t i = 0; i < batch.size(); ++i) {
    const int32_t q_len = batch.q_len(i);
    if (q_len != limits.max_q_len)
      status.add(make_finding("batch.mode", at("extend_lens", i), std::to_string(limits.max_q_len),
                              std::to_string(q_len)));
  }
  return status;
}

/// A chain, for padding.
void fill_chain(std::span<int32_t> next, int64_t steps) {
  for (size_t t = 0; t < next.size(); ++t) {
    const auto j = static_cast<int64_t>(t) % steps + 1;
    next[t] = j < steps ? static_cast<int32_t>(j) : -1;
  }
}

void fill_tree(const ForwardBatch& batch, const Limits& limits, Filler& f) {
  const auto next = f.ints(RecurrentBackend::kNextToken);
  const auto sibling = f.ints(RecurrentBackend::kNextSibling);
  fill_chain(next, limits.max_q_len);
  std::ranges::fill(sibling, -1);
  std::ranges::copy(batch.spec.retrieve_next_token, next.begin());
  std::ranges::copy(batch.spec.retrieve_next_sibling, sibling.begin());
}

/// Sizes that the kernels know.
void check_sizes(const RecurrentLayer& l, Status* status) {
  for (const auto& [field, size] :
       {std::pair("num_k_heads", l.num_k_heads), std::pair("num_v_heads", l.num_v_heads),
        std::pair("head_dim_k", l.head_dim_k), std::pair("head_dim_v", l.head_dim_v)})
    if (size < 1) refuse(status, field, ">= 1", size);
  if (l.num_k_heads > 0 && l.num_v_heads % l.num_k_heads != 0)
    refuse(status, "num_v_heads", "a multiple of num_k_heads", l.num_v_heads);
  const bool lightning = l.family == RecurrentFamily::kLightning;
  // no edge: the widest convolution that there is
  if (lightning ? l.conv_width != 0 : l.conv_width < 2 || l.conv_width > 8)
    refuse(status, "conv_width", lightning ? "0" : "2 to 8", l.conv_width);
}

}  // namespace

Status has_states(const ForwardBatch& batch, const Limits& limits, bool dense_rows) {
  Status status;
  const auto missing = [&](const char* field, int64_t i) {
    status.add(make_finding("batch.field", at(field, i), "given", "missing"));
  };
  for (int64_t i = 0; i < batch.size(); ++i) {
    if (batch.req_pool_indices.empty()) return missing("req_pool_indices", i), status;
    if (state_slot(batch, i) < 0) missing("states.slots", i);
  }
  if (is_verify_tree(limits) && batch.size() > 0 && batch.spec.retrieve_next_token.empty())
    missing("spec.retrieve_next_token", 0);
  if (is_verify_tree(limits) && batch.size() > 0 && batch.spec.retrieve_next_sibling.empty())
    missing("spec.retrieve_next_sibling", 0);
  if (dense_rows) status.add(has_all_tokens(batch, limits));
  return status;
}

int32_t state_chunk_size(const ModelConfig& model) {
  const RecurrentLayer* layer = first_layer(model);
  return layer == nullptr ? 1 : std::max(1, layer->chunk_size);
}

int32_t conv_history(const ModelConfig& model) {
  const RecurrentLayer* layer = first_layer(model);
  return layer == nullptr || !layer->has_conv() ? 0 : layer->conv_width - 1;
}

int32_t RecurrentBackend::tracked(const ForwardBatch& batch, const Limits& limits, int64_t i) {
  const auto row = static_cast<size_t>(i);
  if (i >= batch.size() || batch.states.track_slots.empty()) return 0;
  if (batch.states.track_slots[row] < 0) return 0;
  const RequestExtent e = batch.extent(i);
  const int64_t behind = int64_t{batch.states.track_lens[row]} - e.prefix_len;
  const auto tokens = static_cast<int32_t>(std::clamp<int64_t>(behind, 0, e.q_len));
  const int32_t chunk = state_chunk_size(limits.model);
  return tokens / chunk * chunk;
}

Status RecurrentBackend::check(const Limits& limits) const {
  Status status = serves(info(), limits);
  const ModelConfig& m = limits.model;
  for (const LayerKind& kind : m.layers) {
    const RecurrentLayer* layer = recurrent_of(kind);
    if (layer == nullptr) continue;
    check_sizes(*layer, &status);
    if (layer->chunk_size != state_chunk_size(m))
      refuse(&status, "chunk_size", "the same in all layers", layer->chunk_size);
    if (layer->has_conv() && layer->conv_width - 1 != conv_history(m))
      refuse(&status, "conv_width", "the same in all layers", layer->conv_width);
    if (m.track_states && layer->conv_width > layer->chunk_size)
      refuse(&status, "chunk_size", ">= conv_width", layer->chunk_size);
  }
  return status;
}

void RecurrentBackend::bind_layers(Binder& b, const Limits& limits) const {
  const int64_t tokens = limits.tokens;
  const bool tracks = is_state_prefill(limits.mode) && limits.model.track_states;
  for (size_t kind = 0; kind < limits.model.layers.size(); ++kind) {
    const RecurrentLayer* layer = recurrent_of(limits.model.layers[kind]);
    if (layer == nullptr) continue;
    const int64_t heads = layer->num_v_heads, dim_k = layer->head_dim_k, dim_v = layer->head_dim_v;
    const auto f32 = [&](ScratchId id, const char* name, std::initializer_list<int64_t> shape) {
      const int64_t granule = *(shape.end() - 1);
      const size_t buffer = kFirstOwn + num_own() + kind * kNumScratch + id;
      b.scratch(static_cast<int>(buffer), name + std::to_string(kind), DType::kF32, shape,
                std::max<int64_t>(1, granule));
    };
    if (layer->has_conv()) f32(kConvOut, "conv_out", {tokens, layer->conv_dim()});
    if (layer->family == RecurrentFamily::kKda) {
      f32(kLogDecay, "log_decay", {tokens, heads, dim_k});
    } else if (layer->family != RecurrentFamily::kLightning) {
      f32(kLogDecay, "log_decay", {tokens, heads});
    }
    if (layer->family != RecurrentFamily::kLightning) f32(kBeta, "beta", {tokens, heads});
    if (!tracks) continue;
    const int64_t chunks = tokens / layer->chunk_size + 2 * int64_t{limits.rows};
    if (layer->family == RecurrentFamily::kLightning) {
      f32(kChunkStates, "chunk_states", {chunks, heads, dim_k, dim_v});
    } else {
      f32(kChunkStates, "chunk_states", {chunks, heads, dim_v, dim_k});
    }
    if (rules_.chunk_grid == ChunkGrid::kTokens)
      f32(kTrackOut, "track_out", {tokens, heads, dim_v});
  }
}

Status RecurrentBackend::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  Status status = check(limits);
  if (!status.ok()) return status;
  Binder b(*this, arena, limits, kFirstOwn + num_own() + limits.model.layers.size() * kNumScratch);
  const int64_t rows = limits.rows;
  b.ints(kQueryStartLoc, "query_start_loc", {rows + 1});
  b.ints(kStateIndices, "mamba_cache_indices", {rows});
  if (is_state_prefill(limits.mode)) {
    b.list(kInitialStates, "has_initial_states", rows, DType::kU8);
    if (limits.model.track_states) {
      b.ints(kTrackSlots, "track_slots", {rows});
      if (conv_history(limits.model) > 0)
        b.ints(kTrackConv, "track_conv_indices", {rows, conv_history(limits.model)});
      b.ints(kTrackFinal, "track_ssm_final", {rows});
      b.ints(kTrackChunks, "track_ssm_chunks", {rows});
    }
  } else if (rules_.dense_rows) {
    b.scratch(kDenseRows, "dense_rows", DType::kI32, {rows + 1}, 1);
  }
  if (is_verify_tree(limits)) {
    b.ints(kNextToken, "retrieve_next_token", {limits.tokens});
    b.ints(kNextSibling, "retrieve_next_sibling", {limits.tokens});
    b.scratch(kParents, "retrieve_parent_token", DType::kI32, {limits.tokens}, 1);
  }
  bind_own(b, limits);
  bind_layers(b, limits);
  return b.bind(meta);
}

void RecurrentBackend::fill_rows(const ForwardBatch& batch, const Meta& meta, Filler& f) const {
  const auto start = f.ints(kQueryStartLoc);
  const auto slots = f.ints(kStateIndices);
  std::span<uint8_t> initial;
  if (meta.has(kInitialStates)) initial = f.list<uint8_t>(kInitialStates, 0, meta.limits.rows);
  start[0] = 0;
  for (int64_t i = 0; i < meta.limits.rows; ++i) {
    const auto row = static_cast<size_t>(i);
    const bool live = i < batch.size();
    start[row + 1] = start[row] + (live ? batch.extent(i).q_len : 0);
    slots[row] = live ? state_slot(batch, i) : rules_.pad_slot;
    if (!initial.empty()) initial[row] = live && batch.extent(i).prefix_len > 0;
  }
}

void RecurrentBackend::fill_tracks(const ForwardBatch& batch, const Meta& meta, Filler& f) const {
  const auto targets = f.ints(kTrackSlots), final_from = f.ints(kTrackFinal);
  const auto chunk_from = f.ints(kTrackChunks);
  std::span<int32_t> windows;
  if (meta.has(kTrackConv)) windows = f.ints(kTrackConv);
  const int32_t chunk = state_chunk_size(meta.limits.model);
  const int32_t history = conv_history(meta.limits.model);
  int32_t begin = 0, chunks = 0;  // tokens, and chunks of each request's own grid, before the row
  for (int64_t i = 0; i < meta.limits.rows; ++i) {
    const auto row = static_cast<size_t>(i);
    const int32_t q_len = i < batch.size() ? batch.extent(i).q_len : 0;
    const int32_t after = tracked(batch, meta.limits, i);
    targets[row] = after > 0 ? batch.states.track_slots[row] : -1;
    final_from[row] = after > 0 && after == q_len ? state_slot(batch, i) : -1;
    chunk_from[row] = after > 0 && after < q_len ? chunks + after / chunk : -1;
    for (int32_t w = 0; w < history && !windows.empty(); ++w) {
      const int32_t token = after == 0 ? 0 : begin + after - history + w;
      windows[row * static_cast<size_t>(history) + static_cast<size_t>(w)] = std::max(0, token);
    }
    begin += q_len;
    chunks += static_cast<int32_t>(pages_for(q_len, chunk));
  }
}

Status RecurrentBackend::fill(const ForwardBatch& batch, Meta& meta) const {
  Status status = fits(batch, meta.limits);
  if (status.ok()) status = has_states(batch, meta.limits, meta.has(kDenseRows));
  if (!status.ok()) return status;
  Filler f(meta);
  fill_rows(batch, meta, f);
  if (meta.has(kNextToken)) fill_tree(batch, meta.limits, f);
  if (meta.has(kTrackSlots)) fill_tracks(batch, meta, f);
  fill_own(batch, meta, f);
  return f.take_status();
}

/// One layer's launches.
class RecurrentBackend::Layer {
 public:
  Layer(const RecurrentBackend& backend, Stream& stream, const Meta& meta, const LayerIo& io)
      : backend_(backend),
        stream_(stream),
        meta_(meta),
        io_(io),
        layer_(*recurrent_of(meta.limits.model.layers[static_cast<size_t>(io.kind)])),
        tensors_(*std::get<const RecurrentTensors*>(io.own)) {
    prefill_ = is_state_prefill(meta.limits.mode);
    verify_ = is_target_verify(meta.limits.mode);
  }

  void run() {
    RecurrentCall call{layer_, tensors_, rows(), requests()};
    call.q = io_.q, call.k = io_.k, call.v = io_.v, call.out = io_.out;
    call.conv_out = scratch(kConvOut), call.log_decay = scratch(kLogDecay);
    call.beta = scratch(kBeta), call.chunk_states = scratch(kChunkStates);
    if (verify_) {
      call.draft_conv_states = draft_rows(tensors_.draft_conv_states);
      call.draft_states = draft_rows(tensors_.draft_states);
    }
    call.verify = verify_, call.keeps_padding = backend_.rules_.keeps_padding;
    call.chunk_grid = backend_.rules_.chunk_grid;
    if (meta_.has(kParents)) call.parents = elements<int32_t>(meta_[kParents]);
    launch_conv(stream_, call);
    launch_gate_of(stream_, call);
    const LinearAttention linear = linear_of(call);
    if (meta_.has(kTrackSlots)) backend_.track_own(stream_, meta_, linear, scratch(kTrackOut));
    backend_.recur(stream_, meta_, linear);
    if (!meta_.has(kTrackSlots)) return;
    StateTracks tracks{elements<int32_t>(meta_[kTrackSlots]),
                       {},
                       elements<int32_t>(meta_[kTrackFinal]),
                       elements<int32_t>(meta_[kTrackChunks])};
    if (meta_.has(kTrackConv)) tracks.windows = elements<int32_t>(meta_[kTrackConv]);
    launch_tracks(stream_, call, tracks);
  }

 private:
  RequestRows requests() const { return {1, meta_.limits.first_row}; }

  /// The rows of the half of a batch that this metadata is bound for.
  TensorView draft_rows(const TensorView& t) const {
    return t.defined() ? rows_of(t, meta_.limits.first_row, meta_.limits.rows) : t;
  }

  StateRows rows() const {
    StateRows rows;
    rows.cu_seqlens_q =
        elements<int32_t>(meta_[meta_.has(kDenseRows) ? kDenseRows : kQueryStartLoc]);
    rows.state_indices = elements<int32_t>(meta_[kStateIndices]);
    if (prefill_) rows.has_initial_state = elements<uint8_t>(meta_[kInitialStates]);
    rows.pad = verify_ ? backend_.rules_.pad_in_verify : backend_.rules_.pad;
    return rows;
  }

  TensorView scratch(ScratchId id) const {
    const Buffer& b = backend_.scratch(meta_, static_cast<size_t>(io_.kind), id);
    return b.data == nullptr ? TensorView{} : b.view();
  }

  const RecurrentBackend& backend_;
  Stream& stream_;
  const Meta& meta_;
  const LayerIo& io_;
  const RecurrentLayer& layer_;
  const RecurrentTensors& tensors_;
  bool prefill_ = false, verify_ = false;
};

void RecurrentBackend::recur(Stream& stream, const Meta& meta, const LinearAttention& call) const {
  stream.launch(recurrent_launch({call}, {1, meta.limits.first_row}));
}

void RecurrentBackend::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  if (meta.limits.tokens == 0) return;
  if (meta.has(kDenseRows))
    stream.launch(dense_rows_launch({elements<int32_t>(meta[kQueryStartLoc]),
                                     written<int32_t>(meta[kDenseRows]), meta.limits.max_q_len},
                                    {1, meta.limits.first_row}));
  if (meta.has(kParents)) {
    const Buffer& parents = meta[kParents];
    stream.launch(parents_launch(
        {elements<int32_t>(meta[kNextToken]),
         elements<int32_t>(meta[kNextSibling]),
         {reinterpret_cast<int32_t*>(parents.data), static_cast<size_t>(parents.numel())},
         meta.limits.max_q_len},
        {1, meta.limits.first_row}));
  }
  for (const LayerIo& io : step.layers) Layer(*this, stream, meta, io).run();
}

}  // namespace shadowgraph
