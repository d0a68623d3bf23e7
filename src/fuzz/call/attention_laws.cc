#include "fuzz/call/attention_laws.h"

#include <cmath>

#include "check/bounds/compare.h"
#include "core/float_formats.h"
#include "fuzz/call/attention_exact.h"
#include "fuzz/call/row_ladder.h"

namespace shadowgraph {
namespace {

/// Poison is NaN, and no legal case overflows: every result is finite (an LSE may be -inf).
Status check_finite(const AttentionCase& x, const RowResults& results) {
  Status status;
  const int64_t width = int64_t{x.num_qo_heads} * x.head_dim_vo;
  judged("num.poison", std::ssize(results.out));
  for (size_t row = 0; row < results.out.size(); ++row) {
    for (int64_t i = 0; i < width; ++i) {
      const float value = load_float(results.out[row].data(), x.out_dtype, i);
      if (std::isfinite(value)) continue;
      status.add(make_finding("num.poison", at("out", static_cast<int64_t>(row), i), "finite",
                              std::to_string(value)));
      return status;
    }
  }
  return status;
}

/// All pieces in one call: a causal mask lets the chunks of a prefill be rows of one batch.
void join_calls(AttentionArrangement* how, Rng& rng) {
  std::vector<RowPiece> all;
  for (const auto& call : how->calls) all.insert(all.end(), call.begin(), call.end());
  shuffle(all, rng);
  how->calls = {all};
}

struct AttentionFamily {
  using Arrangement = AttentionArrangement;
  using Scene = AttentionScene;
  using Results = RowResults;
  static constexpr auto make_data = make_attention_data;
  static constexpr auto judge = judge_attention;
  static constexpr auto vary = vary_attention;
};

}  // namespace

AttentionArrangement vary_attention(const Case& c, const RunOptions& options, Rng& rng) {
  const auto& x = std::get<AttentionCase>(c.call);
  AttentionArrangement a = AttentionArrangement::of(c);
  // Under a causal mask a chunk sees what the whole would have seen; a custom mask is not cut.
  CutStep step;
  const CaseTerms& t = x.terms;
  const bool whole = t.request_causal || t.bidirectional || t.qq_bias;  // depend on its last keys
  if (x.causal && x.mask == CustomMask::Kind::kNone && !a.decode && !whole)
    step = [](const RowPiece& row) { return row.end < 2 ? 0 : 1; };
  vary_rows(step, rng, &a);
  if (a.calls.size() == 2 && rng.below(3) != 0) join_calls(&a, rng);
  if (!a.decode && rng.below(2)) a.ragged = !a.ragged;
  if (x.kv_dtype == DType::kI8) a.ragged = false;
  constexpr int32_t kPageSizes[] = {1, 2, 3, 4, 5, 8, 16, 32, 64, 128, 256};
  a.page_size = kPageSizes[rng.below(11)];
  a.layout = static_cast<CaseLayout>(rng.below(x.head_dim_qk == x.head_dim_vo ? 4 : 2));
  if (x.layout == CaseLayout::kMlaLatent && rng.below(2)) a.layout = x.layout;
  if (rng.below(3) == 0) {
    a.layout = CaseLayout::kPanels;
    a.page_size = kPanelTokens * (1 + static_cast<int32_t>(rng.below(5)));
  }
  a.table = rng.below(2) ? PageTable::Form::kCsr : PageTable::Form::kDense;
  a.through_store_kv = !a.ragged && a.layout != CaseLayout::kMlaLatent && rng.below(4) == 0;
  a.with_lse = rng.below(8) != 0;
  a.planned = !a.ragged && rng.below(4) == 0;
  a.workspace = rng.below(2) == 0;
  a.options = vary_options(options, rng);
  a.options.lse_sink = x.lse_sink;
  a.in_records = rng.below(3) == 0;
  a.padded = !a.decode && rng.below(4) == 0;
  a.through_copy_kv = !a.ragged && a.layout != CaseLayout::kMlaLatent && rng.below(4) == 0;
  return a;
}

Status judge_attention(const Case& x, const AttentionScene& scene) {
  const auto& attention = std::get<AttentionCase>(x.call);
  RowResults results(x);
  scene.collect(&results);
  Status status = check_finite(attention, results);
  const auto judge_call = [](const auto& call) {
    const Result result{call.out, call.lse.tensor, LseBase::kNatural, call.options.lse_sink};
    const bool fast = call.options.arith == Arith::kFast;
    return judge(call, result, *find_arithmetic(fast ? "ours_fast" : "ours_portable"),
                 {.bounded = true})
        .findings;
  };
  status.add(std::visit(judge_call, scene.call()));
  if (is_exact(x.data)) status.add(check_exact(attention, scene.data(), results));
  return status;
}

Status check_attention_case(const Case& x, const RunOptions& options) {
  return check_rows<AttentionFamily>(x, options);
}

}  // namespace shadowgraph
