#include "backends/paged/paged_backend.h"

#include <algorithm>

#include "backends/fill/longest_query.h"
#include "core/laws.h"
#include "launch/attention_launch.h"
#include "launch/counters_launch.h"

namespace shadowgraph {
namespace {

const LayerKind& kind_of(const Meta& meta, const LayerIo& io) {
  return meta.limits.model.layers[static_cast<size_t>(io.kind)];
}

}  // namespace

void PagedBackend::bind_offsets(Binder& binder, const Limits& limits) const {
  binder.query_offsets(kCuSeqlensQ, "cu_seqlens_q", limits.rows);
}

Status PagedBackend::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  Status status = check(limits);
  if (!status.ok()) return status;
  Binder b(*this, arena, limits, num_buffers(), kNumScalars);
  b.ints(kKvLens, "kv_lens", {limits.rows});
  bind_offsets(b, limits);
  b.tables(kTables, table_keys(limits), limits.model.page_size, limits.model.swa_pool);
  b.out_cache_loc(kOutCacheLoc, kSwaOutCacheLoc);
  if (counts_rows()) b.zeros(kRowCounters, "row_counters", limits.rows);
  bind_own(b, limits);
  return finish(b, limits, meta);
}

Status PagedBackend::finish(Binder& binder, const Limits& limits, Meta* meta) {
  Status status = binder.bind(meta);
  if (status.ok()) meta->scalars[kMaxSeqLenQ] = limits.max_q_len;
  return status;
}

Status PagedBackend::fill(const ForwardBatch& batch, Meta& meta) const {
  const Limits& limits = meta.limits;
  Status status = fits(batch, limits);
  if (status.ok()) status = translates(batch, limits, limits.model.page_size);
  if (!status.ok()) return status;
  Filler f(meta);
  const std::span<int32_t> lens = f.ints(kKvLens);
  std::span<int32_t> cu_q;
  if (meta[kCuSeqlensQ].lifetime == Lifetime::kPerStep) cu_q = f.ints(kCuSeqlensQ);
  if (!cu_q.empty()) cu_q[0] = 0;
  int32_t longest = 0, queries = 0;
  for (int32_t i = 0; i < limits.rows; ++i) {
    const RequestRow row = row_of(batch, limits, i);
    const auto at = static_cast<size_t>(i);
    lens[at] = row.extent.kv_len;
    longest = std::max(longest, row.extent.kv_len);
    queries += row.extent.q_len;
    if (!cu_q.empty()) cu_q[at + 1] = queries;
    f.tables(kTables, batch, i, row, row.extent.kv_len);
  }
  f.out_cache_loc(batch, kOutCacheLoc, kSwaOutCacheLoc);
  meta.scalars[kMaxSeqLenQ] = longest_query(batch);
  meta.scalars[kMaxSeqLenK] = longest;
  meta.scalars[kSumSeqLensQ] = queries;
  fill_own(batch, limits, f);
  return f.take_status();
}

std::vector<KeyList> PagedBackend::key_lists(const Meta& meta, const LayerKind& kind) const {
  const bool swa = in_window_pool(meta.limits.model, kind);
  return {table_of_keys(swa ? kSwaPageTable : kPageTable, kKvLens, kCuSeqlensQ)};
}

void PagedBackend::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  launch_gather(stream, meta, kTables, step);
  const std::span<const int32_t> lens = kernel_lens(stream, meta);
  for (const LayerIo& io : step.layers) {
    store(stream, meta, io);
    attend(stream, meta, io, lens, elements<int32_t>(meta[kCuSeqlensQ]));
  }
}

void PagedBackend::store(Stream& stream, const Meta& meta, const LayerIo& io) {
  const Limits& limits = meta.limits;
  const bool swa = in_window_pool(limits.model, kind_of(meta, io));
  launch_store(stream, io, meta[swa ? kSwaOutCacheLoc : kOutCacheLoc], token_rows(limits));
}

PagedAttention PagedBackend::attention_of(const Meta& meta, const LayerIo& io,
                                          std::span<const int32_t> kv_lens,
                                          std::span<const int32_t> cu_seqlens_q) {
  const LayerKind& kind = kind_of(meta, io);
  const Buffer& table = meta[in_window_pool(meta.limits.model, kind) ? kSwaPageTable : kPageTable];
  PagedAttention call;
  call.q = io.q;
  call.cache = io.cache;
  call.pages = PageTable::dense(elements<int32_t>(table), table.shape[1], kv_lens);
  call.cu_seqlens_q = cu_seqlens_q;
  call.params = kind.params;
  call.out = io.out;
  call.lse = io.lse;
  call.max_seqlen_q = cu_seqlens_q.empty() ? 1 : meta.limits.max_q_len;
  return call;
}

void PagedBackend::attend(Stream& stream, const Meta& meta, const LayerIo& io,
                          std::span<const int32_t> kv_lens,
                          std::span<const int32_t> cu_seqlens_q) const {
  stream.launch(
      attention_launch(attention_of(meta, io, kv_lens, cu_seqlens_q), {1, meta.limits.first_row}));
  if (!meta.has(kRowCounters)) return;
  stream.launch(
      counted_rows_launch({written<int32_t>(meta[kRowCounters]), cu_seqlens_q, io.out, io.lse},
                          {1, meta.limits.first_row}));
}

}  // namespace shadowgraph
