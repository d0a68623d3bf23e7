// Judging recorded packing of latents.
#include <cmath>

#include "check/bounds/rounding.h"
#include "check/bounds/sparse_compare.h"
#include "check/recorded/case_judge.h"
#include "core/float_formats.h"
#include "oracle/sparse_oracle.h"

namespace shadowgraph {
namespace {

/// Error of a division or logarithm on a GPU: 2 ulp and what a flush adds.
constexpr double kGpuDivision = 0x1p-21;

class LatentsJudge : public CaseJudge {
 public:
  using CaseJudge::CaseJudge;

  void judge(const PackLatents& given) {
    PackLatents call = given;
    call.pool.data = memory_.of(given.pool.data);
    const TensorView before = memory_.of(given.pool.data);
    if (!take_refused(pack_latents(call))) return;
    verdict_.rows += std::ssize(given.out_cache_loc);
    judge_pool(call, call.pool, 0, Whose::kOurs);
    check_untouched(call, before);
    LatentPool recorded = call.pool;
    recorded.data = c_.gpu().states;
    judge_pool(call, recorded, kGpuDivision, Whose::kGpu);
    judge_stored(call, recorded);
    judge_readings(call, recorded);
    judge_scale_reference(call);
  }

 private:
  static int64_t slot_of(const PackLatents& call, int64_t token) {
    return call.out_cache_loc[static_cast<size_t>(token)];
  }

  void judge_pool(const PackLatents& call, const LatentPool& pool, double relative, Whose whose) {
    LatentJudges j(law_of(whose), prefix_of(whose));
    compare_latents(call, pool, relative, &j);
    for (const ArrayJudge* a : {&j.scales, &j.codes, &j.rope}) settle(*a, whose);
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
    judged("num.write_set");
    if (std::memcmp(pool.data.data + first, before.data + first, static_cast<size_t>(count)) == 0)
      return;
    verdict_.findings.add(make_finding("num.write_set", at("ours.pool", slot),
                                       "a slot that keeps its bytes", "others"));
  }

  /// What the recorded kernel had before it stored it lies in the pool.
  void judge_stored(const PackLatents& call, const LatentPool& pool) {
    const Recorded& got = c_.gpu();
    ArrayJudge scales = array(Whose::kGpu, "stored_scales"),
               codes = array(Whose::kGpu, "stored_codes"), rope = array(Whose::kGpu, "stored_rope");
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
    for (const ArrayJudge* a : {&scales, &codes, &rope}) settle(*a, Whose::kGpu);
  }
  static double number(const ConstTensorView& t, int64_t row, int64_t col) {
    if (t.dtype == DType::kU8) return std::to_integer<int>(*t.at(row, col));
    return element(t, row * t.shape[1] + col);
  }

  /// The pool as the recorded reader saw it, and what it stands for.
  void judge_readings(const PackLatents& call, const LatentPool& pool) {
    const ConstTensorView &got = c_.gpu().out, &ref = c_.reference.out;
    ArrayJudge gpu = array(Whose::kGpu, "out"), reference = array(Whose::kReference, "out");
    for (int64_t token = 0; token < std::ssize(call.out_cache_loc); ++token) {
      if (slot_of(call, token) < 0) continue;
      const std::vector<double> right = latent_of(pool, slot_of(call, token));
      for (int64_t i = 0; i < pool.head_dim(); ++i) {
        const double x = right[static_cast<size_t>(i)];
        if (got.defined()) gpu.take(token, i, number(got, token, i), x, 0);
        if (ref.defined()) reference.take(token, i, number(ref, token, i), x, 0);
      }
    }
    settle(gpu, Whose::kGpu), settle(reference, Whose::kReference);
  }

  void judge_scale_reference(const PackLatents& call) {
    const ConstTensorView& ref = c_.reference.scales;
    if (!ref.defined()) return;
    const bool dsa = call.pool.layout == LatentLayout::kDsa;
    ArrayJudge scales = array(Whose::kReference, "scales");
    for_each_latent_group(call, [&](const LatentGroup& g) {
      const double right = dsa ? g.amax / 448 : v4_scale_byte(g.amax);
      scales.take(g.token, g.index, number(ref, g.token, g.index), right,
                  dsa ? with_rounding(right, right * 0x1p-52, ref.dtype) : 0);
    });
    settle(scales, Whose::kReference);
  }
};

}  // namespace

RecordedVerdict judge_call(const PackLatents& call, const RecordedCase& c) {
  return judged<LatentsJudge>(call, c);
}

}  // namespace shadowgraph
