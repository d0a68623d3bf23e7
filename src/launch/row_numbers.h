// Numbers of rows that the twin's attention call takes, made on the device of those that an
// engine's kernel is told. So whatever the engine's kernel reads, a launch reads. Facts:
// docs/metadata.md "Siblings", "DSA", "DeepSeek-V4", "Recurrent layers". Tested by
// tests/launch/row_numbers_test.cc.
#pragma once

#include <cstdint>
#include <span>

#include "launch/launch_args.h"
#include "shadowgraph/device/kernel.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// out[i] = of_lens * lens[i] + of_counts * n + plus, n = counts[i]; clamped to int32.
///
///   a window of queries   prefix + width keys, q of them new  ->  lens + q - width
///   two that must agree   lens, and offsets that step by it   ->  2 lens - step
struct RowLens {
  std::span<const int32_t> lens;    // [rows]
  std::span<const int32_t> counts;  // [rows], or [rows + 1] offsets whose steps are the counts
  int32_t of_lens = 1, of_counts = 1, plus = 0;
  std::span<int32_t> out = {};  // [rows]
};
template <class V>
void visit_args(V& v, RowLens& c) {
  v("lens", c.lens);
  v("counts", c.counts);
  v("out", c.out);
  v("of_lens", c.of_lens);
  v("of_counts", c.of_counts);
  v("plus", c.plus);
}
KernelLaunch row_lens_launch(const RowLens& call, const RequestRows& rows = {});

/// How many of the first len tokens a rank holds, where rank r of n holds the tokens c with c mod n
/// = r.
constexpr int32_t local_len(int32_t len, int32_t rank, int32_t size) {
  return len / size + (rank < len % size ? 1 : 0);
}

/// Keys of this rank that each query sees: of query t of row i those among the first global_lens[i]
/// - q_lens[i] + t + 1, and no more than lens[i].
struct RankLens {
  std::span<const int32_t> lens;         // [rows] keys of this rank
  std::span<const int32_t> global_lens;  // [rows] of all ranks
  std::span<const int32_t> q_lens;       // [rows]
  int32_t rank = 0, size = 1, max_q_len = 1, unused = 0;
  std::span<int32_t> out = {};  // [max_q_len, rows]
};
template <class V>
void visit_args(V& v, RankLens& c) {
  v("lens", c.lens);
  v("global_lens", c.global_lens);
  v("q_lens", c.q_lens);
  v("out", c.out);
  v("rank", c.rank);
  v("size", c.size);
  v("max_q_len", c.max_q_len);
}
KernelLaunch rank_lens_launch(const RankLens& call, const RequestRows& rows = {});

/// Offsets of rows of equally many tokens: a request's are what offsets say. A row behind the last
/// request, which by offsets has no tokens, begins at its number times `tokens`.
struct DenseRows {
  std::span<const int32_t> offsets;  // [rows + 1]
  std::span<int32_t> out = {};       // [rows + 1]
  int32_t tokens = 1, unused = 0;
};
template <class V>
void visit_args(V& v, DenseRows& c) {
  v("offsets", c.offsets);
  v("out", c.out);
  v("tokens", c.tokens);
}
KernelLaunch dense_rows_launch(const DenseRows& call, const RequestRows& rows = {});

/// Slots of whole blocks by the pages of a token's request: entry j < lens[t] of row t becomes
/// page_table[t, j / a_page] * a_page + j mod a_page, the others -1.
struct BlocksOfPages {
  ConstTensorView page_table;     // int32 [tokens, pages], contiguous
  std::span<const int32_t> lens;  // [tokens] whole blocks
  TensorView out;                 // int32 [tokens, columns], contiguous
  int32_t a_page = 1, unused = 0;
};
template <class V>
void visit_args(V& v, BlocksOfPages& c) {
  v("page_table", c.page_table);
  v("lens", c.lens);
  v("out", c.out);
  v("a_page", c.a_page);
}
KernelLaunch blocks_of_pages_launch(const BlocksOfPages& call, const RequestRows& tokens);

extern const Kernel kRowLens, kRankLens, kDenseRows, kBlocksOfPages;

}  // namespace shadowgraph
