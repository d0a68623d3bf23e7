#include "fuzz/call/row_pieces.h"

#include <algorithm>

#include "core/laws.h"
#include "fuzz/call/far_memory.h"

namespace shadowgraph {
namespace {

constexpr size_t kMostCalls = 64;

/// Rows in two calls: some cut, so that the second goes on from what the first stored, some whole
/// in either.
std::vector<std::vector<RowPiece>> cut_rows(const std::vector<RowPiece>& rows, const CutStep& step,
                                            Rng& rng) {
  std::vector<std::vector<RowPiece>> calls(2);
  for (const RowPiece& row : rows) {
    const int32_t tokens = step(row);
    if (tokens == 0) {
      calls[rng.below(2)].push_back(row);
      continue;
    }
    RowPiece first = row, second = row;
    const int32_t cuts = (row.end - 1) / tokens;
    first.end = second.begin =
        tokens * (1 + static_cast<int32_t>(rng.below(static_cast<uint32_t>(cuts))));
    calls[0].push_back(first), calls[1].push_back(second);
  }
  return calls;
}

/// Elements of one row of the call's pool: a page, a state; 0: it has none.
int64_t pool_row(const AttentionCase& x) {
  return x.kernel == CaseKernel::kPrefillRagged
             ? 0
             : int64_t{x.page_size} * x.num_kv_heads * std::max(x.head_dim_qk, x.head_dim_vo);
}
int64_t pool_row(const MergeCase&) { return 0; }
int64_t pool_row(const RecurrentCase& x) {
  using Call = RecurrentCase::Call;
  if (x.call == Call::kGate) return 0;
  return x.call == Call::kConv1d ? int64_t{x.dim} * (x.width - 1)
                                 : int64_t{x.num_v_heads} * x.head_dim_k * x.head_dim_v;
}
int64_t pool_row(const SparseCase& x) {
  using Call = SparseCase::Call;
  switch (x.call) {
    case Call::kAttention:
    case Call::kPack: return x.head_dim;  // of a layout with pages more
    case Call::kStoreKeys:
    case Call::kGatherKeys:
    case Call::kLogits: return kIndexPageBytes;
    default: return 0;  // the compressor's oracle has a copy of all states
  }
}

}  // namespace

bool can_be_far(const Case& x) {
  constexpr int64_t kMostRows = int64_t{1} << 30;
  const int64_t row = std::visit([](const auto& call) { return pool_row(call); }, x.call);
  return row > 0 && far_rows(row) <= kMostRows;
}

void arrange_as(const Case& x, RowArrangement* how) {
  how->seed = x.seed;
  how->options.num_threads = 1 + x.more_threads;
  how->far = x.far && can_be_far(x) && far_memory_is_free();
}

std::string RowArrangement::describe_rows() const {
  size_t pieces = 0;
  for (const auto& call : calls) pieces += call.size();
  std::string s = std::to_string(calls.size()) + " calls of " + std::to_string(pieces) + " rows, " +
                  std::to_string(idle_rows) + " idle rows, " + std::to_string(options.num_threads) +
                  " threads";
  if (!options.isa.empty()) s += ", " + std::string(options.isa);
  if (far) s += ", far pools";
  return s;
}

void vary_rows(const CutStep& step, Rng& rng, RowArrangement* how) {
  how->seed = rng.next();
  std::vector<RowPiece> rows = how->calls[0];
  shuffle(rows, rng);
  const uint32_t form = rng.below(4);
  if (form == 2 && rows.size() <= kMostCalls) {
    how->calls.clear();
    for (const RowPiece& row : rows) how->calls.push_back({row});
  } else if (form == 3 && step) {
    how->calls = cut_rows(rows, step, rng);
  } else {
    how->calls = {rows};
  }
  how->idle_rows = static_cast<int32_t>(rng.below(3));
  how->poison_unread = rng.below(2) != 0;
}

Status compare_rows(const char* field, const RowBytes& a, const RowBytes& b, const std::string& how,
                    bool where_both) {
  Status status;
  judged("num.bits", std::ssize(a));
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (where_both && (a[i].empty() || b[i].empty()))) continue;
    status.add(make_finding("num.bits", at(field, static_cast<int64_t>(i)),
                            "the bits of the case as generated", "other bits with " + how));
    break;
  }
  return status;
}

Status compare_bits(const RowResults& a, const RowResults& b, const std::string& how) {
  Status status = compare_rows("out", a.out, b.out, how);
  status.add(compare_rows("lse, or what is stored,", a.beside, b.beside, how, true));
  return status;
}

}  // namespace shadowgraph
