#include "fuzz/call/sparse_laws.h"

#include "fuzz/call/row_ladder.h"

namespace shadowgraph {
namespace {

struct SparseFamily {
  using Arrangement = SparseArrangement;
  using Scene = SparseScene;
  using Results = RowResults;
  static constexpr auto make_data = make_sparse_data;
  static constexpr auto judge = judge_sparse;
  static constexpr auto vary = vary_sparse;
};

}  // namespace

SparseArrangement vary_sparse(const Case& x, const RunOptions& options, Rng& rng) {
  SparseArrangement a = SparseArrangement::of(x);
  CutStep step;  // what the first of two calls leaves in the state the second goes on from
  if (std::get<SparseCase>(x.call).call == SparseCase::Call::kCompress)
    step = [](const RowPiece& row) { return row.end < 2 ? 0 : 1; };
  vary_rows(step, rng, &a);
  a.far = false;
  for (bool& ragged : a.ragged) ragged = rng.below(2) == 0;
  for (int32_t& size : a.page_size) size = 1 + static_cast<int32_t>(rng.below(17));
  a.holes = rng.below(3) != 0, a.with_lse = rng.below(8) != 0;
  a.paged = rng.below(2) != 0, a.row_list = rng.below(2) != 0;
  const LseSink sink = a.options.lse_sink;
  a.options = vary_options(options, rng);
  a.options.lse_sink = sink;
  return a;
}

Status check_sparse_case(const Case& x, const RunOptions& options) {
  return check_rows<SparseFamily>(x, options);
}

}  // namespace shadowgraph
