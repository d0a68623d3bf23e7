#include "check/recorded/same_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "check/recorded/row_inputs.h"
#include "core/float_formats.h"
#include "core/laws.h"
#include "oracle/sparse_oracle.h"

namespace shadowgraph {
namespace {

Status run_engine(const PagedAttention& c) { return attention_with_kvcache(c); }
Status run_engine(const RaggedAttention& c) { return attention_varlen(c); }
Status run_engine(const SparseAttention& c) { return sparse_attention(c); }
Status run_engine(const MergeStates<LseBase::kLog2>& c) { return merge_states(c); }

/// Whether the engine accepts the call, and makes rows like those of `recorded` of it.
bool is_accepted(AnyCall any, const ConstTensorView& recorded) {
  std::vector<float> out(static_cast<size_t>(recorded.numel()));
  return std::visit(
      [&](auto& call) {
        call.options.num_threads = 1;
        call.out = TensorView(out.data(), DType::kF32,
                              {recorded.shape[0], recorded.shape[1], recorded.shape[2]});
        return run_engine(call).ok();
      },
      any);
}

bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// The oracle's results of rows `from` to `from` + `count`, by row and head.
using OracleResults = std::map<std::pair<int64_t, int32_t>, std::pair<double, Eigen::ArrayXd>>;
OracleResults results_of(const AnyCall& any, int64_t from, int64_t count) {
  OracleResults results;
  const auto keep = [&](const OracleRow& row) {
    if (row.row < from || row.row >= from + count) return;
    results[{row.row - from, row.head}] = {row.lse_with_sink, row.out};
  };
  std::visit(
      [&](const auto& call) {
        if constexpr (std::is_same_v<std::decay_t<decltype(call)>, SparseAttention>)
          for_each_row(call, SparseKeys::kSeen, keep);
        else
          for_each_row(call, keep);
      },
      any);
  return results;
}

/// The first row, of this case, whose inputs are not the other's, and what differs; -1: none.
std::pair<int64_t, std::string> other_inputs(const RecordedCase& c) {
  const SameRows& rows = *c.same_rows;
  if (rows.calls.empty()) return {-1, ""};
  const RowInputs inputs(c.attention().calls[0], rows.from, rows.count);
  const RowInputs its_inputs(rows.calls[0], 0, rows.count);
  for (int64_t i = 0; i < rows.count; ++i)
    if (std::string what = inputs.differing(its_inputs, i); !what.empty())
      return {rows.from + i, "others: " + what};
  const OracleResults mine = results_of(c.attention().calls[0], rows.from, rows.count);
  const OracleResults its = results_of(rows.calls[0], 0, rows.count);
  for (const auto& [place, result] : mine) {
    const auto at = its.find(place);
    const bool same = at != its.end() && same_number(at->second.first, result.first) &&
                      std::equal(result.second.data(), result.second.data() + result.second.size(),
                                 at->second.second.data(), same_number);
    if (!same)
      return {rows.from + place.first, "others: the two rows have different results in float64"};
  }
  return {-1, ""};
}

int64_t element_at(const ConstTensorView& t, int64_t row, int64_t col) {
  const int64_t dim = t.rank == 3 ? t.shape[2] : 1;
  return t.rank == 3 ? t.offset(row, col / dim, col % dim) : t.offset(row, col);
}

void compare_bits(const std::string& field, const SameRows& rows, const ConstTensorView& mine,
                  const ConstTensorView& its, const ResultAxes& axes, Status* findings) {
  if (!mine.defined() || !its.defined()) return;
  const int64_t width = mine.shape[1] * (mine.rank == 3 ? mine.shape[2] : 1);
  int64_t first = -1, differing = 0;
  for (int64_t i = 0; i < rows.count * width; ++i) {
    if (same_element(mine, element_at(mine, rows.from + i / width, i % width), its,
                     element_at(its, i / width, i % width)))
      continue;
    if (first < 0) first = i;
    ++differing;
  }
  judged("num.bits", rows.count * width);
  if (differing == 0) return;
  const auto text = [&](const ConstTensorView& t, int64_t row) {
    char number[40];
    std::snprintf(
        number, sizeof number, "%.9g",
        static_cast<double>(load_float(t.data, t.dtype, element_at(t, row, first % width))));
    return std::string(number);
  };
  const int64_t row = first / width, col = first % width;
  const int64_t dim = mine.rank == 3 ? mine.shape[2] : 1;
  const std::vector<int64_t> index = mine.rank == 3
                                         ? axes.out(rows.from + row, col / dim, col % dim)
                                         : axes.lse(rows.from + row, col);
  findings->add(make_finding("num.bits", at(field, index),
                             text(its, row) + ", as row " + std::to_string(row) + " of " + rows.of,
                             text(mine, rows.from + row) + " (" + std::to_string(differing) +
                                 " of " + std::to_string(rows.count * width) +
                                 " elements have other bits)"));
}

}  // namespace

bool same_element(const ConstTensorView& a, int64_t i, const ConstTensorView& b, int64_t j) {
  const auto size = static_cast<int64_t>(size_of(a.dtype));
  if (std::memcmp(a.data + i * size, b.data + j * size, static_cast<size_t>(size)) == 0)
    return true;
  return std::isnan(load_float(a.data, a.dtype, i)) && std::isnan(load_float(b.data, b.dtype, j));
}

Status judge_same_rows(const RecordedCase& c) {
  Status findings;
  const SameRows& rows = *c.same_rows;
  if (!rows.calls.empty() && !is_accepted(rows.calls[0], rows.out)) {
    findings.add(make_finding("vector.case", at("rows_of"), "a case that the engine accepts",
                              '"' + rows.of + '"'));
    return findings;
  }
  if (auto [row, what] = other_inputs(c); row >= 0) {
    findings.add(
        make_finding("vector.case", at("rows_of", row),
                     "the inputs of row " + std::to_string(row - rows.from) + " of " + rows.of,
                     std::move(what)));
    return findings;
  }
  compare_bits(c.gpu().name + ".out", rows, c.gpu().out, rows.out, c.gpu().axes, &findings);
  compare_bits(c.gpu().name + ".lse", rows, c.gpu().lse, rows.lse, c.gpu().axes, &findings);
  return findings;
}

}  // namespace shadowgraph
