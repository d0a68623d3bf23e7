#include "fuzz/call/attention_laws.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "check/mistakes/call_scene.h"
#include "core/float_formats.h"
#include "fuzz/call/row_ladder.h"

namespace shadowgraph {
namespace {

bool is_untouched(const std::vector<std::byte>& row) {
  return !row.empty() && std::ranges::all_of(row, [](std::byte b) { return b == kUnwritten; });
}

/// Every row is written. Poison is NaN, and no legal case overflows: every result is finite (an LSE
/// may be -inf), but where NaN is due.
Status check_each_row(const AttentionCase& x, const RowResults& results, bool nan_out) {
  Status status;
  const int64_t width = int64_t{x.num_qo_heads} * x.head_dim_vo;
  judged("num.poison", std::ssize(results.out));
  for (size_t row = 0; row < results.out.size(); ++row) {
    const auto where = [&](int64_t i) {
      return at("out",
                std::vector{static_cast<int64_t>(row), i / x.head_dim_vo, i % x.head_dim_vo});
    };
    if (is_untouched(results.out[row])) {
      status.add(make_finding("num.write_set", where(0), "written", "as before the call"));
      return status;
    }
    for (int64_t i = 0; i < width && !nan_out; ++i) {
      const float value = load_float(results.out[row].data(), x.out_dtype, i);
      if (std::isfinite(value)) continue;
      status.add(make_finding("num.poison", where(i), "finite", std::to_string(value)));
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

/// A page size at which the last pages of all requests take little memory.
int32_t bounded_page(const AttentionCase& x, int32_t page_size, int32_t least) {
  constexpr int64_t kMostElements = 2 << 20;
  const int64_t pages = std::ssize(x.requests) + 3;
  const int64_t slots = pages * x.num_kv_heads * (x.head_dim_qk + x.head_dim_vo);
  while (page_size > least && page_size * slots > kMostElements) page_size = page_size / 2;
  return std::max(page_size, least);
}

struct AttentionFamily {
  using Arrangement = AttentionArrangement;
  using Scene = AttentionScene;
  using Results = RowResults;
  static constexpr auto make_data = make_attention_data;
  static Status judge(const Case& x, const AttentionScene& scene) {
    return judge_attention(x, scene);
  }
  static constexpr auto vary = vary_attention;
};

}  // namespace

AttentionArrangement vary_attention(const Case& c, const RunOptions& options, Rng& rng) {
  const auto& x = std::get<AttentionCase>(c.call);
  AttentionArrangement a = AttentionArrangement::of(c);
  // Under a causal mask a chunk sees what the whole would have seen.
  CutStep step;
  const CaseTerms& t = x.terms;
  const bool whole = t.request_causal || t.bidirectional || t.qq_bias;  // depend on its last keys
  if (x.causal && !a.decode && !whole)
    step = [](const RowPiece& row) { return row.end < 2 ? 0 : 1; };
  vary_rows(step, rng, &a);
  a.far = false;
  if (a.calls.size() == 2 && rng.below(3) != 0) join_calls(&a, rng);
  if (!a.decode && rng.below(2)) a.ragged = !a.ragged;
  if (x.kv_dtype == DType::kI8) a.ragged = false;
  constexpr int32_t kPageSizes[] = {1, 2, 3, 4, 5, 8, 16, 32, 64, 128, 256, 512};
  a.page_size = bounded_page(x, kPageSizes[rng.below(std::size(kPageSizes))], 1);
  a.layout = static_cast<KvLayout>(rng.below(x.head_dim_qk == x.head_dim_vo ? 4 : 2));
  if (x.layout == KvLayout::kMlaLatent && rng.below(2)) a.layout = x.layout;
  if (rng.below(3) == 0) {
    a.layout = KvLayout::kPanels;
    const int32_t panels = 1 + static_cast<int32_t>(rng.below(5));
    a.page_size = bounded_page(x, kPanelTokens * panels, kPanelTokens);
    a.page_size -= a.page_size % kPanelTokens;
  }
  a.table = rng.below(2) ? PageTable::Form::kCsr : PageTable::Form::kDense;
  a.through_store_kv = !a.ragged && a.layout != KvLayout::kMlaLatent && rng.below(4) == 0;
  a.with_lse = rng.below(8) != 0;
  a.planned = !a.ragged && rng.below(4) == 0;
  a.workspace = rng.below(2) == 0;
  a.options = vary_options(options, rng);
  // Threads share the keys of a row: its partial results lie in the scratch.
  if (a.workspace && rng.below(4) == 0) a.options.num_threads = 2 + static_cast<int>(rng.below(4));
  a.options.lse_sink = x.lse_sink;
  a.in_records = rng.below(3) == 0;
  a.padded = !a.decode && rng.below(4) == 0;
  a.through_copy_kv = !a.ragged && a.layout != KvLayout::kMlaLatent && rng.below(4) == 0;
  return a;
}

namespace {

KernelNumbers our_numbers(const Case& x, const AttentionScene& scene) {
  const bool fast =
      std::visit([](const auto& call) { return call.options.arith == Arith::kFast; }, scene.call());
  KernelNumbers numbers = {*find_arithmetic(fast ? "ours_fast" : "ours_portable")};
  numbers.sees_nan = std::get<AttentionCase>(x.call).nan;
  return numbers;
}

template <class Call>
Result result_of(const Call& call, const KernelNumbers& numbers) {
  return {call.out, call.lse.tensor, numbers.lse_base, call.options.lse_sink};
}

}  // namespace

Status judge_attention(const Case& x, const AttentionScene& scene) {
  return judge_attention(x, scene, our_numbers(x, scene), {.bounded = true});
}

Status judge_attention(const Case& x, const AttentionScene& scene, const KernelNumbers& numbers,
                       const JudgeOptions& how) {
  const auto& attention = std::get<AttentionCase>(x.call);
  RowResults results(x);
  scene.collect(&results);
  Status status = check_each_row(attention, results, numbers.sees_nan || numbers.empty_row.nan_out);
  if (is_exact(x.data)) status.add(check_exact(attention, scene.data(), results, numbers));
  const auto judge_call = [&](const auto& call) {
    return judge(call, result_of(call, numbers), numbers.arithmetic, how).findings;
  };
  status.add(std::visit(judge_call, scene.call()));
  return status;
}

void name_mistakes(const AttentionScene& scene, const KernelNumbers& numbers, Status* status) {
  const auto is_output = [](const Finding& f) {
    const bool of_values = f.id.starts_with("num.") && f.id != "num.write_set";
    return of_values && (f.where.field.starts_with("out") || f.where.field.starts_with("lse"));
  };
  if (std::ranges::none_of(status->findings(), is_output)) return;
  const std::vector<Explanation> named = std::visit(
      [&](const auto& call) {
        return diagnose_call(call, result_of(call, numbers), numbers.arithmetic);
      },
      scene.call());
  for (Finding& f : status->findings())
    if (is_output(f)) f.diagnosis = named;
}

Status check_attention_case(const Case& x, const RunOptions& options) {
  Status status = check_rows<AttentionFamily>(x, options);
  if (status.ok() || !options.diagnose) return status;
  const AttentionData data = make_attention_data(x);
  AttentionArrangement how = AttentionArrangement::of(x);
  how.options.arith = options.arith, how.options.isa = options.isa;
  how.device = options.device;
  AttentionScene scene(x, data, how);
  scene.lay(0);
  if (scene.run().ok()) name_mistakes(scene, our_numbers(x, scene), &status);
  return status;
}

}  // namespace shadowgraph
