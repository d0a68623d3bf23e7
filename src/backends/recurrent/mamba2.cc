#include "backends/recurrent/mamba2.h"

#include <algorithm>

#include "backends/recurrent/recurrent_families.h"
#include "launch/recurrent_launch.h"
#include "launch/state_launch.h"

namespace shadowgraph {
namespace {

constexpr RecurrentFamily kMamba2Families[] = {RecurrentFamily::kMamba2};

constexpr auto kMamba2Buffers =
    with_family(kRecurrentBuffers, {{Mamba2::kSeqIdx, Role::kTokenRows},
                                    {Mamba2::kChunkIndices, Role::kChunkIndices},
                                    {Mamba2::kChunkOffsets, Role::kChunkOffsets},
                                    {Mamba2::kChunkCount, Role::kChunkCount},
                                    {Mamba2::kAgainRows, Role::kTrackCuts},
                                    {Mamba2::kAgainSlots, Role::kTrackCutSlots},
                                    {Mamba2::kAgainInitial, Role::kTrackCutInitial},
                                    {Mamba2::kAgainFrom, Role::kTrackCutFrom}});

constexpr RecurrentRules kMamba2Rules{
    .info = recurrent_info("mamba2", "state space duality over state slots, behind a convolution",
                           kMamba2Families, /*tree=*/true, kMamba2Buffers),
    .pad = PadRow::kFromZero,
    .pad_in_verify = PadRow::kFromZero,
    .keeps_padding = false,
    .chunk_grid = ChunkGrid::kTokens};

int64_t most_runs(const Limits& limits) {
  return limits.tokens / state_chunk_size(limits.model) + 2 * int64_t{limits.rows} + 1;
}

}  // namespace

Mamba2::Mamba2() : RecurrentBackend(kMamba2Rules) {}

void Mamba2::bind_own(Binder& b, const Limits& limits) const {
  if (!is_state_prefill(limits.mode)) return;
  const int64_t rows = limits.rows;
  b.ints(kSeqIdx, "seq_idx", {limits.tokens});
  b.ints(kChunkIndices, "chunk_indices", {most_runs(limits)});
  b.ints(kChunkOffsets, "chunk_offsets", {most_runs(limits)});
  b.ints(kChunkCount, "num_chunks", {1});
  if (!limits.model.track_states) return;
  b.ints(kAgainRows, "track_rows", {2 * rows + 1});
  b.ints(kAgainSlots, "track_row_slots", {2 * rows});
  b.list(kAgainInitial, "track_has_initial", 2 * rows, DType::kU8);
  b.ints(kAgainFrom, "track_from", {rows});
}

void Mamba2::fill_own(const ForwardBatch& batch, const Meta& meta, Filler& f) const {
  if (!meta.has(kSeqIdx)) return;
  const auto seq_idx = f.ints(kSeqIdx);
  const int32_t chunk = state_chunk_size(meta.limits.model);
  const int64_t room = most_runs(meta.limits);
  const auto indices = f.list<int32_t>(kChunkIndices, 0, room);
  const auto offsets = f.list<int32_t>(kChunkOffsets, 0, room);
  size_t runs = 0;
  int32_t token = 0;
  for (int64_t i = 0; i < batch.size(); ++i) {
    const int32_t end = token + batch.extent(i).q_len;
    for (int32_t first = token; token < end; ++token) {
      seq_idx[static_cast<size_t>(token)] = static_cast<int32_t>(i);
      if (token != first && token % chunk != 0) continue;
      indices[runs] = token / chunk;
      offsets[runs++] = token % chunk;
    }
  }
  f.retire_behind(kSeqIdx, token);
  f.retire_behind(kChunkIndices, static_cast<int64_t>(runs));
  f.retire_behind(kChunkOffsets, static_cast<int64_t>(runs));
  f.ints(kChunkCount)[0] = static_cast<int32_t>(runs);
  if (meta.has(kAgainRows)) fill_again(batch, meta, f);
}

/// Snapshots that lie on the grid are taken from chunk_states, counted as that is; of the others
/// the tokens before them are run once more.
void Mamba2::fill_again(const ForwardBatch& batch, const Meta& meta, Filler& f) const {
  const auto rows = f.ints(kAgainRows), slots = f.ints(kAgainSlots), from = f.ints(kAgainFrom);
  const auto initial = f.list<uint8_t>(kAgainInitial, 0, 2 * int64_t{meta.limits.rows});
  const auto chunks = f.ints(kTrackChunks), finals = f.ints(kTrackFinal);
  const int32_t chunk = state_chunk_size(meta.limits.model);
  int32_t begin = 0, runs = 0;
  rows[0] = 0;
  for (int64_t i = 0; i < meta.limits.rows; ++i) {
    const auto row = static_cast<size_t>(i);
    const bool live = i < batch.size();
    const RequestExtent e = live ? batch.extent(i) : RequestExtent{};
    const int32_t after = tracked(batch, meta.limits, i), at = begin + after;
    const bool inside = after > 0 && after < e.q_len;
    const bool again = inside && at % chunk != 0;
    chunks[row] = inside && !again ? runs + at / chunk - begin / chunk : -1;
    if (inside) finals[row] = -1;
    rows[2 * row + 1] = at, rows[2 * row + 2] = begin + e.q_len;
    slots[2 * row] = again ? batch.states.track_slots[row] : -1;
    slots[2 * row + 1] = -1;
    initial[2 * row] = e.prefix_len > 0, initial[2 * row + 1] = 0;
    const auto pool_row = static_cast<size_t>(again ? batch.req_pool_indices[row] : 0);
    from[row] = again && e.prefix_len > 0 ? batch.states.slots[pool_row] : -1;
    if (e.q_len > 0) runs += (begin + e.q_len - 1) / chunk - begin / chunk + 1;
    begin += e.q_len;
  }
}

void Mamba2::track_own(Stream& stream, const Meta& meta, const LinearAttention& call,
                       const TensorView& out) const {
  const RequestRows requests{1, meta.limits.first_row};
  stream.launch(copy_states_launch({call.states, call.states, elements<int32_t>(meta[kAgainFrom]),
                                    elements<int32_t>(meta[kTrackSlots])},
                                   requests));
  LinearAttention again = call;
  again.rows.cu_seqlens_q = elements<int32_t>(meta[kAgainRows]);
  again.rows.state_indices = elements<int32_t>(meta[kAgainSlots]);
  again.rows.has_initial_state = elements<uint8_t>(meta[kAgainInitial]);
  again.rows.pad = PadRow::kSkip;
  again.chunk_states = {};
  again.z = {}, again.skip = {};
  again.out = out;
  stream.launch(recurrent_launch({again}, {2, meta.limits.first_row}));
}

void Mamba2::recur(Stream& stream, const Meta& meta, const LinearAttention& call) const {
  if (!meta.has(kSeqIdx)) return RecurrentBackend::recur(stream, meta, call);
  const TokenChunks chunks{elements<int32_t>(meta[kSeqIdx]), elements<int32_t>(meta[kChunkIndices]),
                           elements<int32_t>(meta[kChunkOffsets]),
                           elements<int32_t>(meta[kChunkCount])};
  stream.launch(recurrent_launch({call, chunks}, {1, meta.limits.first_row}));
}

}  // namespace shadowgraph
