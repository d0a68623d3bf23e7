#include "backends/paged/cutedsl_mla.h"

#include <algorithm>
#include <bit>

#include "attn/page_table.h"
#include "attn/tensor_rows.h"
#include "backends/fill/buffer_rows.h"
#include "core/laws.h"
#include "launch/row_numbers.h"

namespace shadowgraph {
namespace {

using Dsl = CuteDslMla;

constexpr auto kCuteDslMlaBuffers = with_family(
    kPagedBuffers,
    {field::table(Dsl::kPageTable, Dsl::kKvLens, "block_kv_indices", "fa.I-28 fa.I-85 fa.I-89"),
     recorded(Dsl::kSeqLensK, Role::kWidthLens, "seq_lens_k", "fa.I-19 fa.I-87 fa.I-89"),
     recorded(Dsl::kGlobalSeqLensK, Role::kFlatLens, "global_seq_lens_k", "fa.I-89"),
     recorded(Dsl::kSeqLensQ, Role::kQueryLens, "seq_lens_q", "fa.I-17"),
     recorded(Dsl::kMaxSeqLenQ, Role::kLongestQuery, "max_seq_len_q", "fa.I-18"),
     recorded(Dsl::kMaxSeqLenK, Role::kLongestKeys, "max_seq_len_k", "fa.I-21", Dsl::kKvLens)});

/// Lengths of one request as a rank of the limits has them.
struct Rank {
  explicit Rank(const ModelConfig& m) : rank(m.dcp_rank), size(m.dcp_size) {}
  int32_t local(int32_t len) const { return local_len(std::max(0, len), rank, size); }
  /// -1: another rank's, not stored here. Token c has a slot with the remainder of c.
  int64_t slot(int64_t slot) const { return slot % size == rank ? slot / size : -1; }

  int32_t rank, size;
};

/// batch.mode for every request that has not the queries of the limits.
Status alike(const ForwardBatch& batch, const Limits& limits) {
  Status status;
  for (int64_t i = 0; i < batch.size(); ++i) {
    if (batch.q_len(i) == limits.max_q_len) continue;
    status.add(make_finding("batch.mode", at("extend_lens", i), std::to_string(limits.max_q_len),
                            std::to_string(batch.q_len(i))));
  }
  return status;
}

/// Query t of every row of a view [rows * max_q_len, ...].
template <class View>
View every(const View& v, int32_t t, const Limits& limits) {
  return rows_of(v, t, limits.rows, limits.max_q_len);
}

}  // namespace

const BackendInfo& CuteDslMla::info() const {
  static const BackendInfo kInfo = [this] {
    BackendInfo info = TrtllmMla::info();
    info.name = "cutedsl_mla";
    info.about = "CuteDSL-MLA decode, context parallel (SGLang)";
    info.dcp = true, info.graph_storage = kOneTable;
    info.buffers = kCuteDslMlaBuffers;
    return info;
  }();
  return kInfo;
}

Status CuteDslMla::check(const Limits& limits) const {
  Status status = TrtllmMla::check(limits);
  const ModelConfig& m = limits.model;
  if (m.dcp_size < 1 || !std::has_single_bit(static_cast<uint32_t>(m.dcp_size)))
    refuse(&status, "dcp_size", "a power of two", m.dcp_size);
  if (m.dcp_rank < 0 || m.dcp_rank >= m.dcp_size)
    refuse(&status, "dcp_rank", "0 <= rank < dcp_size", m.dcp_rank);
  if (m.dcp_size > 1 && m.in_graph_tables)
    refuse(&status, "in_graph_tables", "no with more than one rank", 1);
  if (m.dcp_size > 1 && limits.tokens != int64_t{limits.rows} * limits.max_q_len)
    refuse(&status, "tokens", "rows * max_q_len with more than one rank", limits.tokens);
  return status;
}

Status CuteDslMla::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  const ModelConfig& m = limits.model;
  if (m.dcp_size == 1) return TrtllmMla::bind(arena, limits, meta);
  Status status = check(limits);
  if (!status.ok()) return status;
  Limits local = limits;
  local.max_kv_len = static_cast<int32_t>(pages_for(limits.max_kv_len, m.dcp_size));
  Binder b(*this, arena, limits, kNumBuffers, kNumScalars);
  b.ints(kKvLens, "kv_lens", {limits.rows});
  // A page holds page_size tokens of this rank, which lie among dcp_size times as many.
  b.table(kPageTable, "page_table", limits.rows, table_keys(local) * m.dcp_size,
          m.page_size * m.dcp_size);
  b.slots(kOutCacheLoc, "out_cache_loc", limits.tokens);
  bind_own(b, limits);
  b.ints(kGlobalSeqLensK, "global_seq_lens_k", {limits.rows});
  b.scratch(kVisibleLens, "visible_lens", DType::kI32, {limits.max_q_len, limits.rows}, 1);
  return finish(b, limits, meta);
}

Status CuteDslMla::fill(const ForwardBatch& batch, Meta& meta) const {
  const Limits& limits = meta.limits;
  if (limits.model.dcp_size == 1) return TrtllmMla::fill(batch, meta);
  Status status = fits(batch, limits);
  if (status.ok()) status = alike(batch, limits);
  if (!status.ok()) return status;
  const Rank rank(limits.model);
  Filler f(meta);
  const std::span<int32_t> lens = f.ints(kKvLens), lens_k = f.ints(kSeqLensK),
                           global_k = f.ints(kGlobalSeqLensK), lens_q = f.ints(kSeqLensQ);
  int32_t longest = 1;
  for (int32_t i = 0; i < limits.rows; ++i) {
    const RequestRow row = row_of(batch, limits, i);
    const RequestExtent& e = row.extent;
    const auto at = static_cast<size_t>(i);
    global_k[at] = e.kv_len;
    lens[at] = lens_k[at] = rank.local(e.kv_len);
    lens_q[at] = e.q_len;
    longest = std::max(longest, lens[at]);
    f.table_row(kPageTable, i, row.slots, int64_t{lens[at]} * rank.size);
  }
  meta.scalars[kMaxSeqLenK] = longest;
  meta.scalars[kSumSeqLensQ] = limits.tokens;
  f.out_cache_loc(batch, kOutCacheLoc, kSwaOutCacheLoc);
  for (int64_t& slot : f.slots(kOutCacheLoc)) slot = rank.slot(slot);
  return f.take_status();
}

std::vector<KeyList> CuteDslMla::key_lists(const Meta& meta, const LayerKind& kind) const {
  if (meta.limits.model.dcp_size == 1) return TrtllmMla::key_lists(meta, kind);
  KeyList list = table_of_keys(kPageTable, kKvLens, -1);
  list.masked = true;
  return {list};
}

void CuteDslMla::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  const Limits& limits = meta.limits;
  if (limits.model.dcp_size == 1) return TrtllmMla::forward(stream, meta, step);
  RankLens c;
  c.lens = elements<int32_t>(meta[kSeqLensK]);
  c.global_lens = elements<int32_t>(meta[kGlobalSeqLensK]);
  c.q_lens = elements<int32_t>(meta[kSeqLensQ]);
  c.rank = limits.model.dcp_rank, c.size = limits.model.dcp_size, c.max_q_len = limits.max_q_len;
  c.out = written<int32_t>(meta[kVisibleLens]);
  stream.launch(rank_lens_launch(c, {1, limits.first_row}));
  const std::span<const int32_t> visible = c.out;
  const auto rows = static_cast<size_t>(limits.rows);
  for (const LayerIo& io : step.layers) {
    store(stream, meta, io);
    for (int32_t t = 0; t < limits.max_q_len; ++t) {
      LayerIo of_query = io;
      of_query.q = every(io.q, t, limits);
      of_query.out = every(io.out, t, limits);
      of_query.lse.tensor = every(io.lse.tensor, t, limits);
      attend(stream, meta, of_query, visible.subspan(static_cast<size_t>(t) * rows, rows), {});
    }
  }
}

}  // namespace shadowgraph
