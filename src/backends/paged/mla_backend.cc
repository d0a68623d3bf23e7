#include "backends/paged/mla_backend.h"

#include <algorithm>

#include "attn/page_table.h"
#include "launch/row_numbers.h"

namespace shadowgraph {

Status MlaBackend::check(const Limits& limits) const {
  Status status = PagedBackend::check(limits);
  for (const LayerKind& layer : limits.model.layers) {
    if (layer.params.num_kv_heads > 1)
      refuse(&status, "layers.num_kv_heads", "<= 1", layer.params.num_kv_heads);
    if (layer.params.window_left >= 0)
      refuse(&status, "layers.window_left", "-1", layer.params.window_left);
  }
  return status;
}

int64_t MlaBackend::table_keys(const Limits& limits) const {
  // The window of a request with one new token ends max_q_len - 1 keys behind its own.
  const int64_t keys = int64_t{limits.max_kv_len} + std::max(0, limits.max_q_len - 1);
  const int64_t unit = limits.model.page_size * column_multiple(limits.model.page_size);
  return pages_for(keys, unit) * unit;
}

void MlaBackend::bind_own(Binder& binder, const Limits& limits) const {
  binder.ints(kSeqLensK, "seq_lens_k", {limits.rows});
  if (is_draft_extend(limits.mode, DraftExtendV2::kIncluded))
    binder.scratch(kOwnLens, "own_lens", DType::kI32, {limits.rows}, 1);
}

std::span<const int32_t> MlaBackend::kernel_lens(Stream& stream, const Meta& meta) const {
  const std::span<const int32_t> told = elements<int32_t>(meta[kSeqLensK]);
  if (!meta.has(kOwnLens)) return told;
  RowLens c;
  c.lens = told, c.counts = query_counts(meta), c.plus = -meta.limits.max_q_len;
  c.out = written<int32_t>(meta[kOwnLens]);
  stream.launch(row_lens_launch(c, {1, meta.limits.first_row}));
  return c.out;
}

void MlaBackend::fill_own(const ForwardBatch& batch, const Limits& limits, Filler& filler) const {
  const std::span<int32_t> lens = filler.ints(kSeqLensK);
  for (int32_t i = 0; i < limits.rows; ++i)
    lens[static_cast<size_t>(i)] = seq_len_k(batch, limits, i);
}

int32_t MlaBackend::seq_len_k(const ForwardBatch& batch, const Limits& limits, int32_t row) {
  return row_of(batch, limits, row).extent.prefix_len + limits.max_q_len;
}

}  // namespace shadowgraph
