// The attention backend of an engine of our own: decodes and extends over a dense table of pages. A
// row of a graph's bucket that has no request is padding: it has the keys that the model's graphs
// are padded with, all in page 0, and is stored in slot 0.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shadowgraph/shadowgraph.h"

namespace my_engine {

using namespace shadowgraph;

/// A slip of the engine; kNone: it has none.
enum class Slip {
  kNone,
  kStaleTable,     // a replay keeps the table of pages of the replay before
  kPrefixLengths,  // a replay's lengths are those of the prefix: the new token is missing
};

class PagedEngine : public Backend {
 public:
  explicit PagedEngine(Slip slip = Slip::kNone) : slip_(slip) {}

  const BackendInfo& info() const override { return kInfo; }

  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override {
    const int32_t page_size = limits.model.page_size;
    const int64_t rows = limits.rows, pages = (limits.max_kv_len + page_size - 1) / page_size;
    const BufferSpec specs[kNumBuffers] = {
        {"kv_lens", DType::kI32, {rows}, Lifetime::kPerStep},
        {"cu_seqlens_q", DType::kI32, {rows + 1}, Lifetime::kPerStep},
        {"page_table", DType::kI32, {rows, pages}, Lifetime::kPerStep},
        {"out_cache_loc", DType::kI64, {limits.tokens}, Lifetime::kPerStep}};
    Meta made{.backend = this, .limits = limits, .arena = arena};
    made.units = {0, 0, page_size, 0};  // a column of the table is a page
    Status status = made.arena.bind(specs, &made.buffers);
    if (status.ok()) *meta = std::move(made);
    return status;
  }

  Status fill(const ForwardBatch& batch, Meta& meta) const override {
    const Limits& limits = meta.limits;
    Status status = validate(batch);
    if (status.ok() && batch.size() > limits.rows) status = too_many(batch.size(), limits.rows);
    if (!status.ok()) return status;
    const bool replay = limits.is_bucket() && batch.size() > 0;
    const bool stale = replay && slip_ == Slip::kStaleTable;
    const bool prefix_only = replay && slip_ == Slip::kPrefixLengths;
    for (size_t b = 0; b < kNumBuffers; ++b)
      if (b != kPageTable || !stale) meta.arena.begin_fill(meta[b]);
    std::span<int32_t> lens, cu_seqlens_q;
    std::span<int64_t> slots;
    status.add(meta.arena.stage(meta[kKvLens], meta[kKvLens].all(), &lens));
    status.add(meta.arena.stage(meta[kCuSeqlensQ], meta[kCuSeqlensQ].all(), &cu_seqlens_q));
    status.add(meta.arena.stage(meta[kOutCacheLoc], meta[kOutCacheLoc].all(), &slots));
    if (!status.ok()) return status;
    std::ranges::fill(slots, 0);
    size_t token = 0;
    cu_seqlens_q[0] = 0;
    for (int64_t i = 0; i < limits.rows; ++i) {
      const auto at = static_cast<size_t>(i);
      const Row row = row_of(batch, limits, i);
      lens[at] = prefix_only && !row.slots.empty() ? row.extent.prefix_len : row.extent.kv_len;
      cu_seqlens_q[at + 1] = cu_seqlens_q[at] + row.extent.q_len;
      for (int32_t t = row.extent.prefix_len; t < row.extent.kv_len && !row.slots.empty(); ++t)
        slots[token++] = row.slots[static_cast<size_t>(t)];
      if (!stale) status.add(fill_table(meta, i, row));
    }
    return status;
  }

  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override {
    const Buffer& table = meta[kPageTable];
    for (const LayerIo& io : step.layers) {
      StoreKv store;
      store.k = io.k, store.v = io.v, store.cache = io.cache;
      store.out_cache_loc = device<int64_t>(meta[kOutCacheLoc]);
      stream.launch(store_launch(store));
      PagedAttention call;
      call.q = io.q, call.out = io.out, call.lse = io.lse, call.cache = io.cache;
      call.pages =
          PageTable::dense(device<int32_t>(table), table.shape[1], device<int32_t>(meta[kKvLens]));
      call.cu_seqlens_q = device<int32_t>(meta[kCuSeqlensQ]);
      call.params = meta.limits.model.layers[static_cast<size_t>(io.kind)].params;
      call.max_seqlen_q = meta.limits.max_q_len;
      stream.launch(attention_launch(call));
    }
  }

  std::vector<KeyList> key_lists(const Meta& /*meta*/, const LayerKind& /*kind*/) const override {
    return {table_of_keys(kPageTable, kKvLens, kCuSeqlensQ)};
  }

 private:
  enum BufferId : uint8_t { kKvLens, kCuSeqlensQ, kPageTable, kOutCacheLoc, kNumBuffers };

  // The checker reads which steps the backend serves, and the meaning of its buffers.
  static constexpr ForwardMode kModes[] = {ForwardMode::kDecode, ForwardMode::kExtend};
  static constexpr BufferInfo kBuffers[] = {{.buffer = kKvLens, .role = Role::kKeyLens},
                                            {.buffer = kCuSeqlensQ, .role = Role::kQueryOffsets},
                                            {.buffer = kOutCacheLoc, .role = Role::kStored}};
  static constexpr BackendInfo kInfo{.name = "paged_engine",
                                     .about = "a dense table of pages",
                                     .modes = kModes,
                                     .buffers = kBuffers};

  /// A request's row of a bucket, or one of padding.
  struct Row {
    RequestExtent extent;
    std::span<const int32_t> slots;  // of its tokens; empty: padding
  };
  static Row row_of(const ForwardBatch& batch, const Limits& limits, int64_t i) {
    const bool decode = limits.mode == ForwardMode::kDecode;
    if (i >= batch.size()) return {{0, decode ? 1 : 0, limits.model.seq_len_fill}, {}};
    const int32_t pool_row = batch.req_pool_indices[static_cast<size_t>(i)];
    return {batch.extent(i), batch.req_to_token.row(pool_row)};
  }

  static Status too_many(int64_t requests, int64_t rows) {
    Finding f;
    f.id = "batch.capacity", f.where.field = "seq_lens";
    f.expected = "<= " + std::to_string(rows) + " requests", f.got = std::to_string(requests);
    Status status;
    status.add(std::move(f));
    return status;
  }

  /// The columns of a row's keys; those behind are retired.
  static Status fill_table(Meta& meta, int64_t i, const Row& row) {
    const Buffer& table = meta[kPageTable];
    const int32_t page_size = meta.limits.model.page_size;
    const Elements all = table.rows(i, 1);
    const int64_t pages = (row.extent.kv_len + page_size - 1) / page_size;
    std::span<int32_t> columns;
    Status status = meta.arena.stage(table, {all.first, pages}, &columns);
    for (size_t c = 0; c < columns.size(); ++c)
      columns[c] =
          row.slots.empty() ? 0 : row.slots[c * static_cast<size_t>(page_size)] / page_size;
    status.add(meta.arena.retire(table, {all.first + pages, all.count - pages}));
    return status;
  }

  template <class T>
  static std::span<const T> device(const Buffer& b) {
    return {reinterpret_cast<const T*>(b.data), static_cast<size_t>(b.numel())};
  }

  Slip slip_;
};

}  // namespace my_engine
