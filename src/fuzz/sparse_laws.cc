#include "fuzz/sparse_laws.h"

#include <utility>

#include "core/laws.h"
#include "fuzz/sparse_refusals.h"

namespace shadowgraph {
namespace {

/// Requests in two calls, some cut: what the first leaves in the state the second goes on from.
std::vector<std::vector<SparsePiece>> cut_rows(const std::vector<SparsePiece>& rows, Rng& rng) {
  std::vector<std::vector<SparsePiece>> calls(2);
  for (const SparsePiece& row : rows) {
    if (row.end < 2) {
      calls[rng.below(2)].push_back(row);
      continue;
    }
    SparsePiece first = row, second = row;
    first.end = second.begin =
        1 + static_cast<int32_t>(rng.below(static_cast<uint32_t>(row.end - 1)));
    calls[0].push_back(first), calls[1].push_back(second);
  }
  return calls;
}

}  // namespace

SparseArrangement vary_sparse(const Case& x, const RunOptions& options, Rng& rng) {
  SparseArrangement a = SparseArrangement::of(x);
  a.seed = rng.next();
  std::vector<SparsePiece> rows = a.calls[0];
  shuffle(rows, rng);
  const uint32_t form = rng.below(4);
  if (form == 2) {
    a.calls.clear();
    for (const SparsePiece& row : rows) a.calls.push_back({row});
  } else if (form == 3 && x.sparse.call == SparseCase::Call::kCompress) {
    a.calls = cut_rows(rows, rng);
  } else {
    a.calls = {rows};
  }
  a.idle_rows = static_cast<int32_t>(rng.below(3));
  a.poison_unread = rng.below(2) != 0;
  for (bool& ragged : a.ragged) ragged = rng.below(2) == 0;
  for (int32_t& size : a.page_size) size = 1 + static_cast<int32_t>(rng.below(17));
  a.holes = rng.below(3) != 0, a.with_lse = rng.below(8) != 0;
  a.paged = rng.below(2) != 0, a.row_list = rng.below(2) != 0;
  const LseSink sink = a.options.lse_sink;
  a.options = vary_options(options, rng);
  a.options.lse_sink = sink;
  return a;
}

Status compare_bits(const SparseResults& a, const SparseResults& b, const std::string& how) {
  Status status;
  const auto compare_all = [&](const char* field, const auto& mine, const auto& its, bool both) {
    for (size_t i = 0; i < mine.size(); ++i) {
      if (mine[i] == its[i] || (both && (mine[i].empty() || its[i].empty()))) continue;
      status.add(make_finding("num.bits", at(field, static_cast<int64_t>(i)),
                              "the bits of the case as generated", "other bits with " + how));
      return;
    }
  };
  compare_all("out", a.out, b.out, false);
  compare_all("lse, or what is stored,", a.beside, b.beside, true);
  return status;
}

Status check_sparse_case(const Case& x, const RunOptions& options) {
  const SparseData data = make_sparse_data(x);
  SparseArrangement how = SparseArrangement::of(x);
  how.options.isa = options.isa;
  SparseScene scene(x, data, how);
  scene.lay(0);
  Rng rng = Rng::stream(x.seed, 1);
  Status status = check_refusal(scene, sparse_breakages(), 12, rng);
  const Status ran = scene.run();
  status.add(ran);
  if (!ran.ok()) return status;
  status.add(judge_sparse(x, scene));
  SparseResults results(x), again(x);
  scene.collect(&results);

  const SparseArrangement other = vary_sparse(x, options, rng);
  SparseScene varied(x, data, other);
  Status variant;
  for (size_t i = 0; i < other.calls.size() && variant.ok(); ++i) {
    varied.lay(i);
    variant.add(varied.run());
    varied.collect(&again);
  }
  if (variant.ok()) variant = compare_bits(results, again, other.to_string());
  status.add(variant);
  return status;
}

}  // namespace shadowgraph
