#include "fuzz/laws.h"

#include <cmath>
#include <cstring>

#include "check/compare.h"
#include "core/choices.h"
#include "core/float_formats.h"
#include "core/laws.h"
#include "fuzz/arrange.h"
#include "fuzz/exact.h"
#include "fuzz/linear_laws.h"
#include "fuzz/merge_case.h"
#include "fuzz/sparse_laws.h"

namespace shadowgraph {
namespace {

/// Poison is NaN, and no legal case overflows: every result is finite (an LSE may be -inf).
Status check_finite(const Case& x, const RowResults& results) {
  Status status;
  const auto values = static_cast<int64_t>(results.out.size() / size_of(x.out_dtype));
  for (int64_t i = 0; i < values; ++i) {
    const float value = load_float(results.out.data(), x.out_dtype, i);
    if (std::isfinite(value)) continue;
    const int64_t width = results.heads * x.head_dim_vo;
    status.add(make_finding("num.poison", at("out", i / width, i % width), "finite",
                            std::to_string(value)));
    break;
  }
  return status;
}

Judgement judge_call(const ArrangedCall& call, const Arithmetic& arithmetic) {
  const auto judge_one = [&](const auto& c) {
    Result result;
    result.out = c.out;
    result.lse = c.lse.tensor;
    result.lse_sink = c.options.lse_sink;
    return judge(c, result, arithmetic, {.bounded = true});
  };
  return call.ragged() ? judge_one(call.ragged_call()) : judge_one(call.paged_call());
}

/// Cuts a slice so that every row keeps its visible range: under a causal mask the keys of the
/// first part end where its last row's do.
std::pair<Slice, Slice> cut(const Slice& s, const MaskShape& mask, int32_t at_q) {
  Slice first = s, second = s;
  first.q_end = second.q_begin = at_q;
  first.kv_len = kv_range(mask, at_q - 1).end;
  return {first, second};
}

/// The same values in another shape: other pages, layout, order, alignment, padding, threads,
/// instruction set; a prefill in chunks, and ragged for paged.
Arrangement vary(const Case& x, const RunOptions& options, Rng& rng) {
  Arrangement a = Arrangement::of(x);
  a.seed = rng.next();
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
  a.empty_requests = static_cast<int32_t>(rng.below(3));
  // Under a causal mask a chunk sees what the whole would have seen; a custom mask is not cut.
  const bool chunks = x.causal && x.mask == CustomMask::Kind::kNone && !a.decode;
  std::vector<Slice> slices;
  for (const Slice& s : a.slices) {
    if (!chunks || s.q_end < 2) {
      slices.push_back(s);
      continue;
    }
    const auto at_q = static_cast<int32_t>(1 + rng.below(static_cast<uint32_t>(s.q_end - 1)));
    const MaskShape mask = mask_of(x, x.requests[static_cast<size_t>(s.request)]);
    const auto [first, second] = cut(s, mask, at_q);
    slices.push_back(first);
    slices.push_back(second);
  }
  shuffle(slices, rng);
  a.slices = slices;
  a.options = vary_options(options, rng);
  a.options.lse_sink = x.lse_sink;
  return a;
}

std::string describe(const Arrangement& a) {
  std::string s = a.ragged ? "ragged" : "page " + std::to_string(a.page_size);
  if (!a.ragged && a.layout == CaseLayout::kPanels) s += " in panels";
  s += ", " + std::to_string(a.slices.size()) + " slices, " + std::to_string(a.empty_requests) +
       " empty requests, " + std::to_string(a.options.num_threads) + " threads";
  if (!a.options.isa.empty()) s += ", " + std::string(a.options.isa);
  if (!a.with_lse) s += ", no lse";
  return s + (a.through_store_kv ? ", store_kv" : "");
}

/// The variant's calls: all slices at once, or each in a call of its own.
Status run_variant(const Case& x, const LogicalData& data, const Arrangement& how, bool apart,
                   RowResults* results) {
  Status status;
  const size_t calls = apart ? how.slices.size() : 1;
  for (size_t i = 0; i < calls; ++i) {
    Arrangement one = how;
    if (apart) one.slices = {how.slices[i]};
    ArrangedCall call(x, data, one);
    status.add(call.run());
    if (status.ok()) call.collect(results);
  }
  return status;
}

Status compare_bits(const RowResults& a, const RowResults& b, const Arrangement& how) {
  Status status;
  const auto fail = [&](const char* field, size_t cell) {
    const auto row = static_cast<int64_t>(cell) / a.heads,
               head = static_cast<int64_t>(cell) % a.heads;
    status.add(make_finding("num.bits", at(field, row, head), "the bits of the case as generated",
                            "other bits with " + describe(how)));
  };
  for (size_t cell = 0; cell < a.lse.size(); ++cell) {
    const auto offset = static_cast<int64_t>(cell) * a.row_bytes;
    if (std::memcmp(a.out.data() + offset, b.out.data() + offset,
                    static_cast<size_t>(a.row_bytes)) != 0) {
      fail("out", cell);
      break;
    }
  }
  for (size_t cell = 0; how.with_lse && cell < a.lse.size(); ++cell) {
    if (std::memcmp(&a.lse[cell], &b.lse[cell], 4) != 0) {
      fail("lse", cell);
      break;
    }
  }
  return status;
}

}  // namespace

std::string RunOptions::flags() const {
  std::string s = arith == Arith::kFast ? " --arith fast" : "";
  if (!isa.empty()) s += " --isa " + std::string(isa);
  if (device != nullptr) s += " --device cuda";
  return s;
}

CallOptions vary_options(const RunOptions& options, Rng& rng) {
  CallOptions varied;
  // Rarely: teams of threads wait by spinning, and the workers already fill the cores.
  varied.num_threads = rng.below(48) == 0 ? 2 + static_cast<int>(rng.below(2)) : 1;
  // Fast arithmetic promises its bits within one instruction set only.
  varied.arith = options.arith;
  varied.isa = options.isa;
  if (options.arith == Arith::kPortable && rng.below(2)) {
    const auto isas = available_isas();
    // The generic set is slow where fused multiply-add is a library call: a taste of it is enough.
    const auto pick = rng.below(static_cast<uint32_t>(isas.size()));
    varied.isa = pick == 0 && rng.below(8) != 0 ? isas.back() : isas[pick];
  }
  return varied;
}

bool has_launch(const Case& x) {
  if (x.kernel == CaseKernel::kMergeStates)
    return x.requests[0].kv_len == 2 && x.lse_base == LseBase::kNatural;
  return is_attention(x.kernel);
}

Status check_case(const Case& x, const RunOptions& options) {
  if (x.kernel == CaseKernel::kMergeStates) return check_merge_case(x, options);
  if (x.kernel == CaseKernel::kLinear) return check_linear_case(x, options);
  if (x.kernel == CaseKernel::kSparse) return check_sparse_case(x, options);
  const LogicalData data = make_data(x);
  Arrangement how = Arrangement::of(x);
  how.options.arith = options.arith;
  how.options.isa = options.isa;
  ArrangedCall call(x, data, how, options.device);
  Status status = call.run();
  if (!status.ok()) return status;
  RowResults results(x);
  call.collect(&results);

  status.add(check_finite(x, results));
  status.add(judge_call(call, *find_arithmetic(options.arith == Arith::kFast ? "ours_fast"
                                                                             : "ours_portable"))
                 .findings);
  if (is_exact(x.data)) status.add(check_exact(x, data, results));

  Rng rng = Rng::stream(x.seed, 1);
  const Arrangement other = vary(x, options, rng);
  RowResults again(x);
  status.add(run_variant(x, data, other, rng.below(4) == 0, &again));
  status.add(compare_bits(results, again, other));
  return status;
}

}  // namespace shadowgraph
