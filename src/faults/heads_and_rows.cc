// Faults of which rows and heads a kernel computes.

#include <cstring>

#include "attn/page_table.h"
#include "faults/one_head.h"
#include "faults/substitutes.h"
#include "kernels/spans.h"

namespace shadowgraph {
namespace {

constexpr int64_t kTileQueries = 4;

/// A row's values, or its LSEs, in another row; outside of the view it is only noted.
void copy_row(const TensorView& t, int64_t from, int64_t to, SlippedRun& run) {
  if (!t.defined()) return;
  const int64_t count = t.rank == 3 ? t.shape[2] : 1;
  for (int64_t head = 0; head < t.shape[1]; ++head) {
    run.note({t.data, t.offset(to, head), count, element_bytes(t.dtype), Access::kWrite});
    if (!run.noted() && to < t.shape[0])
      std::memcpy(t.at(to, head), t.at(from, head), static_cast<size_t>(count) * size_of(t.dtype));
  }
}

/// Offsets of the queries of a call whose rows are tokens; empty: one a request.
std::span<const int32_t> queries_of(const PagedAttention& c) { return c.cu_seqlens_q; }
std::span<const int32_t> queries_of(const RaggedAttention& c) { return c.cu_seqlens_q; }
std::span<const int32_t> queries_of(const TritonExtend& c) { return c.qo_indptr; }
std::span<const int32_t> queries_of(const TritonDecode&) { return {}; }
std::span<const int32_t> queries_of(const TiledAttention& c) {
  return c.plan.split_kv ? std::span<const int32_t>() : c.qo_indptr;
}

/// What a tile has beyond its request's last query is taken for that query.
void store_whole_tiles(const KernelLaunch& clean, SlippedRun& run) {
  run.launch(clean);
  KernelLaunch copy = clean;
  change_attention(&copy, [&](auto& c) {
    const std::span<const int32_t> indptr = queries_of(c);
    for (size_t i = 0; i + 1 < indptr.size(); ++i) {
      const int64_t begin = indptr[i], end = indptr[i + 1];
      if (begin < 0 || end <= begin || end > c.out.shape[0]) continue;
      const int64_t whole = begin + pages_for(end - begin, kTileQueries) * kTileQueries;
      for (int64_t row = end; row < whole; ++row) {
        copy_row(c.out, end - 1, row, run);
        copy_row(c.lse.tensor, end - 1, row, run);
      }
    }
    return false;
  });
}

bool has_tiles(const KernelLaunch& launch) {
  KernelLaunch copy = launch;
  return change_attention(&copy, [](auto& c) { return !queries_of(c).empty(); });
}

/// fn(head) for every block's head, as many blocks as heads.
template <class Fn>
void for_heads(const AttentionParams& p, Fn fn) {
  const int64_t group = p.num_qo_heads / p.num_kv_heads;
  for (int64_t block = 0; block < p.num_qo_heads; ++block) {
    const int64_t head = block % group * group + block / group;
    if (head < p.num_qo_heads) fn(head, head / group);
  }
}

void take_kv_head(PagedAttention& c, int64_t head) { c.cache = one_head(c.cache, head); }
void take_kv_head(RaggedAttention& c, int64_t head) {
  c.k = one_head(c.k, head), c.v = one_head(c.v, head);
}
template <class Call>
bool take_head(Call& c, int64_t head, int64_t kv_head) {
  if constexpr (requires { take_kv_head(c, kv_head); }) {
    take_kv_head(c, kv_head);
    c.q = one_head(c.q, head), c.out = one_head(c.out, head), c.lse = one_head(c.lse, head);
    c.params = one_head(c.params, head);
  }
  return true;
}

void heads_by_group_size(const KernelLaunch& clean, SlippedRun& run) {
  KernelLaunch launch = clean;
  change_attention(&launch, [&](auto& all) {
    for_heads(all.params, [&](int64_t head, int64_t kv_head) {
      launch = clean;
      change_attention(&launch, [&](auto& c) { return take_head(c, head, kv_head); });
      run.launch(launch);
    });
    return false;
  });
}

bool has_groups(const KernelLaunch& launch) {
  KernelLaunch copy = launch;
  const auto grouped = [](const AttentionParams& p) {
    const int32_t group = p.num_qo_heads / p.num_kv_heads;
    return group > 1 && group != p.num_kv_heads;
  };
  const auto paged = [&](PagedAttention& c) { return c.plan.empty() && grouped(c.params); };
  const auto ragged = [&](RaggedAttention& c) { return grouped(c.params); };
  return change_attention(&copy, Overloaded{[](auto&) { return false; }, paged, ragged});
}

constexpr Fault kHeadsAndRowsFaults[] = {
    // A tile of queries, here of 4, is stored whole: rows of nobody, too.
    {"K07", "OOBW", "Rows of a tile that are nobody's are stored", "llama.cpp#7465 llama.cpp#7479",
     "row.of_request", stand_in<store_whole_tiles, has_tiles>()},
    // Which head a block computes is found by the size of a group, where the number of KV heads is
    // meant. It strikes kernels whose grid has a block for each head.
    {"K56", "GQA", "Heads are found by the size of a group where the number of KV heads is meant",
     "HipKittens#22", "heads.mapped row.unwritten", stand_in<heads_by_group_size, has_groups>()},
};

}  // namespace

std::span<const Fault> themes::heads_and_rows() { return kHeadsAndRowsFaults; }

}  // namespace shadowgraph
