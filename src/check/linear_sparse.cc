// Judging recorded attention over chosen keys, and packed latents.
#include <cmath>
#include <limits>

#include "check/linear_judge.h"
#include "check/rounding.h"
#include "check/sparse_compare.h"
#include "core/float_formats.h"
#include "oracle/sparse_oracle.h"

namespace shadowgraph {
namespace {

/// Error of a division or logarithm on a GPU: 2 ulp and what a flush adds.
constexpr double kGpuDivision = 0x1p-21;

class SparseJudge : public LinearCaseJudge {
 public:
  using LinearCaseJudge::LinearCaseJudge;

  void judge(const SparseAttention& given) {
    SparseAttention call = given;
    call.out = memory_.of(given.out);
    const int64_t tokens = call.q.shape[0], heads = call.q.shape[1];
    call.lse = NaturalLse(memory_.of(TensorView(nullptr, DType::kF32, {tokens, heads})));
    if (!take_refused(sparse_attention(call))) return;
    const auto result = [&](const ConstTensorView& out, const ConstTensorView& lse) {
      return Result{out, lse, LseBase::kNatural, given.options.lse_sink};
    };
    JudgeOptions how;
    how.prefix = "ours.";
    judge_result(given, result(call.out, call.lse.tensor), "ours_sparse", how, &verdict_.ours);
    judge_result(given, result(vector_.recorded.out, vector_.recorded.lse), vector_.kernel,
                 {"num.recorded", "num.recorded", true, "gpu."}, &verdict_.gpu);
    judge_result(given, result(vector_.reference.out, vector_.reference.lse), "float64",
                 {"num.reference", "num.reference", true, "ref."}, &verdict_.reference);
  }

  void judge(const PackLatents& given) {
    PackLatents call = given;
    call.pool.data = memory_.of(given.pool.data);
    const TensorView before = memory_.of(given.pool.data);
    if (!take_refused(pack_latents(call))) return;
    verdict_.rows += std::ssize(given.out_cache_loc);
    judge_pool(call, call.pool, 0, "num.bound", "ours.", &verdict_.ours.out);
    check_untouched(call, before);
    LatentPool recorded = call.pool;
    recorded.data = vector_.recorded.states;
    judge_pool(call, recorded, kGpuDivision, "num.recorded", "gpu.", &verdict_.gpu.out);
    judge_stored(call, recorded);
    judge_readings(call, recorded);
    judge_scale_reference(call);
  }

 private:
  void judge_result(const SparseAttention& call, const Result& result, std::string_view kernel,
                    const JudgeOptions& how, ErrorRatios* ratios) {
    const Arithmetic* arithmetic = find_arithmetic(kernel);
    if (arithmetic == nullptr) {
      verdict_.findings.add(make_finding("num.recorded", at("kernel"), "a line of arithmetics.inc",
                                         std::string(kernel)));
      return;
    }
    Judgement j = shadowgraph::judge(AnyCall(call), result, *arithmetic, how);
    if (result.out.defined()) ratios->out = j.error_over_bound;
    if (result.lse.defined()) ratios->lse = j.lse_error_over_bound;
    if (ratios == &verdict_.ours) verdict_.rows += j.rows, verdict_.empty_rows += j.empty_rows;
    verdict_.unbounded_rows += j.unbounded_rows;
    verdict_.findings.add(std::move(j.findings));
    for (const std::string& note : j.notes) verdict_.notes.push_back(how.prefix + ' ' + note);
  }

  static int64_t slot_of(const PackLatents& call, int64_t token) {
    return call.out_cache_loc[static_cast<size_t>(token)];
  }

  void judge_pool(const PackLatents& call, const LatentPool& pool, double relative, LawId law,
                  const std::string& who, std::optional<double>* ratio) {
    LatentJudges j(law, who);
    compare_latents(call, pool, relative, &j);
    for (const ArrayJudge* a : {&j.scales, &j.codes, &j.rope}) settle(*a, ratio);
  }

  /// Slots that nobody names keep their bytes.
  void check_untouched(const PackLatents& call, const ConstTensorView& before) {
    std::vector<bool> written(static_cast<size_t>(call.pool.slots()), false);
    for (const int64_t slot : call.out_cache_loc)
      if (slot >= 0) written[static_cast<size_t>(slot)] = true;
    const bool paged = call.pool.layout == LatentLayout::kV4;
    for (int64_t slot = 0; slot < call.pool.slots(); ++slot) {
      if (written[static_cast<size_t>(slot)]) continue;
      same_bytes(call.pool, before, call.pool.latent_at(slot), paged ? kV4Bytes : kDsaBytes, slot);
      if (paged) same_bytes(call.pool, before, call.pool.scales_at(slot), kV4Scales, slot);
    }
  }
  void same_bytes(const LatentPool& pool, const ConstTensorView& before, int64_t first,
                  int64_t count, int64_t slot) {
    if (std::memcmp(pool.data.data + first, before.data + first, static_cast<size_t>(count)) == 0)
      return;
    verdict_.findings.add(make_finding("num.write_set", at("ours.pool", slot),
                                       "a slot that keeps its bytes", "others"));
  }

  /// What the recorded kernel had before it stored it lies in the pool.
  void judge_stored(const PackLatents& call, const LatentPool& pool) {
    const LinearArrays& got = vector_.recorded;
    ArrayJudge scales("num.recorded", "gpu.stored_scales"),
        codes("num.recorded", "gpu.stored_codes");
    ArrayJudge rope("num.recorded", "gpu.stored_rope");
    for (int64_t token = 0; token < std::ssize(call.out_cache_loc); ++token) {
      const int64_t slot = slot_of(call, token);
      if (slot < 0) continue;
      const std::byte* latent = pool.data.data + pool.latent_at(slot);
      for (int64_t g = 0; got.scales.defined() && g < got.scales.shape[1]; ++g)
        scales.take(token, g, latent_scale(pool, slot, g), number(got.scales, token, g), 0);
      for (int64_t i = 0; got.codes.defined() && i < got.codes.shape[1]; ++i)
        codes.take(token, i, std::to_integer<int>(latent[i]), number(got.codes, token, i), 0);
      for (int64_t i = 0; got.rope.defined() && i < got.rope.shape[1]; ++i)
        rope.take(token, i, load_float(latent + kV4Codes, DType::kBF16, i),
                  number(got.rope, token, i), 0);
    }
    for (const ArrayJudge* a : {&scales, &codes, &rope}) settle(*a, &verdict_.gpu.out);
  }
  static double number(const ConstTensorView& t, int64_t row, int64_t col) {
    if (t.dtype == DType::kU8) return std::to_integer<int>(*t.at(row, col));
    return element(t, row * t.shape[1] + col);
  }

  /// The pool as the recorded reader saw it, and what it stands for.
  void judge_readings(const PackLatents& call, const LatentPool& pool) {
    const ConstTensorView &got = vector_.recorded.out, &ref = vector_.reference.out;
    ArrayJudge gpu("num.recorded", "gpu.out"), reference("num.reference", "ref.out");
    for (int64_t token = 0; token < std::ssize(call.out_cache_loc); ++token) {
      if (slot_of(call, token) < 0) continue;
      const std::vector<double> right = latent_of(pool, slot_of(call, token));
      for (int64_t i = 0; i < pool.head_dim(); ++i) {
        const double x = right[static_cast<size_t>(i)];
        if (got.defined()) gpu.take(token, i, number(got, token, i), x, 0);
        if (ref.defined()) reference.take(token, i, number(ref, token, i), x, 0);
      }
    }
    settle(gpu, &verdict_.gpu.out), settle(reference, &verdict_.reference.out);
  }

  void judge_scale_reference(const PackLatents& call) {
    const ConstTensorView& ref = vector_.reference.scales;
    if (!ref.defined()) return;
    const bool dsa = call.pool.layout == LatentLayout::kDsa;
    ArrayJudge scales("num.reference", "ref.scales");
    for_each_latent_group(call, [&](const LatentGroup& g) {
      const double right = dsa ? g.amax / 448 : v4_scale_byte(g.amax);
      scales.take(g.token, g.index, number(ref, g.token, g.index), right,
                  dsa ? with_rounding(right, right * 0x1p-52, ref.dtype) : 0);
    });
    settle(scales, &verdict_.reference.out);
  }
};

template <class Call>
VectorVerdict judged(const LinearVector& vector, const Call& call) {
  SparseJudge judge(vector);
  judge.judge(call);
  return judge.verdict();
}

}  // namespace

VectorVerdict judge_linear_sparse(const LinearVector& vector) {
  if (const auto* call = std::get_if<SparseAttention>(&vector.call)) return judged(vector, *call);
  return judged(vector, std::get<PackLatents>(vector.call));
}

}  // namespace shadowgraph
