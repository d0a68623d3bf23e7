// PagedBackend: what the siblings of FlashAttention have in common: one dense table of pages,
// lengths that count the new keys, one launch a layer. A backend says what it serves and adds what
// its engine's kernel reads besides. Facts: docs/metadata.md "FlashAttention", "Siblings". Tested
// by tests/backends/paged_backends_test.cc.
#pragma once

#include <string>

#include "backends/fill/buffer_rows.h"
#include "backends/fill/rows.h"
#include "shadowgraph/attention/attention.h"

namespace shadowgraph {

class PagedBackend : public Backend {
 public:
  /// Meta's first buffers.
  enum BufferId : uint8_t {
    kKvLens,        // [rows] keys, the new ones included
    kCuSeqlensQ,    // [rows + 1]
    kPageTable,     // [rows, pages]
    kSwaPageTable,  // [rows, pages], ids of the window pool
    kOutCacheLoc,   // [tokens]
    kSwaOutCacheLoc,
    kPoolRows,     // [rows], where a launch gathers the tables; padding: 0
    kRowCounters,  // [rows] of a workspace, 0 between launches, where counts_rows()
    kFirstOwn      // where a backend's own begin
  };
  static constexpr RowTables kTables{
      .lens = kKvLens, .table = kPageTable, .swa_table = kSwaPageTable, .pool_rows = kPoolRows};
  /// Meta::scalars, padding rows counted.
  enum ScalarId : uint8_t { kMaxSeqLenQ, kMaxSeqLenK, kSumSeqLensQ, kNumScalars };

  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override;
  Status fill(const ForwardBatch& batch, Meta& meta) const override;
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override;
  std::vector<KeyList> key_lists(const Meta& meta, const LayerKind& kind) const override;

 protected:
  /// What bind asks: serves(), and nothing that has no table here (encoder, local layers, context
  /// parallelism).
  virtual Status check(const Limits& limits) const { return serves(info(), limits); }
  /// The keys that a row of the table has columns for.
  virtual int64_t table_keys(const Limits& limits) const { return limits.max_kv_len; }
  virtual size_t num_buffers() const { return kFirstOwn; }
  /// Blocks of a row's keys count themselves, and the last of them merges.
  virtual bool counts_rows() const { return false; }
  virtual void bind_own(Binder& /*binder*/, const Limits& /*limits*/) const {}
  /// kCuSeqlensQ: filled where it is of lifetime per_step.
  virtual void bind_offsets(Binder& binder, const Limits& limits) const;
  /// Binds, and sets what a graph freezes before any batch is known.
  static Status finish(Binder& binder, const Limits& limits, Meta* meta);
  /// After the common buffers.
  virtual void fill_own(const ForwardBatch& /*batch*/, const Limits& /*limits*/,
                        Filler& /*filler*/) const {}

  /// [rows] keys as attention is called with; launches what makes them of what the engine's kernel
  /// is told.
  virtual std::span<const int32_t> kernel_lens(Stream& /*stream*/, const Meta& meta) const {
    return elements<int32_t>(meta[kKvLens]);
  }
  /// The parts of forward: the store of what a layer's step brings, if anything, and its attention
  /// over [rows] lengths and [rows + 1] query offsets (none: one query a row).
  static void store(Stream& stream, const Meta& meta, const LayerIo& io);
  static PagedAttention attention_of(const Meta& meta, const LayerIo& io,
                                     std::span<const int32_t> kv_lens,
                                     std::span<const int32_t> cu_seqlens_q);
  virtual void attend(Stream& stream, const Meta& meta, const LayerIo& io,
                      std::span<const int32_t> kv_lens,
                      std::span<const int32_t> cu_seqlens_q) const;
};

/// Rows of the buffers and scalars that all have.
inline constexpr auto kPagedBuffers = std::to_array<BufferInfo>({
    {PagedBackend::kKvLens, Role::kKeyLens},
    {PagedBackend::kCuSeqlensQ, Role::kQueryOffsets},
    {PagedBackend::kOutCacheLoc, Role::kStored},
    {PagedBackend::kSwaOutCacheLoc, Role::kStoredInWindow},
    {PagedBackend::kPoolRows, Role::kPoolRows},
    {PagedBackend::kMaxSeqLenQ, Role::kLongestQuery},
    {PagedBackend::kMaxSeqLenK, Role::kLongestKeys, PagedBackend::kKvLens},
    {PagedBackend::kSumSeqLensQ, Role::kAllQueries},
});

}  // namespace shadowgraph
