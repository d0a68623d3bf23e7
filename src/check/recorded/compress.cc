// Judging recorded steps of the compressor.
#include "check/bounds/compress_bound.h"
#include "check/recorded/case_judge.h"

namespace shadowgraph {
namespace {

/// GPU kernels: f32, ex2.approx and a fast division and root, pooling in one pass over weights
/// that are relative to the largest score.
constexpr CompressArithmetic kGpuCompressor = {
    .u = 0x1p-24, .exp_error = 0x1p-21, .root_error = 0x1p-21};

class CompressJudge : public CaseJudge {
 public:
  using CaseJudge::CaseJudge;

  void judge(const Compress& given) {
    Compress call = given, truth = given;
    call.state = memory_.copy(given.state, c_.states_before);
    truth.state = memory_.copy(given.state, c_.states_before);
    call.out = memory_.of(given.out);
    if (!take_refused(compress(call))) return;
    verdict_.rows += call.out.shape[0];
    EachJudge out = each("out");
    const std::vector<float> states =
        compress_truth(truth, [&](int64_t token, const PoolTruth& pool) {
          take_row(&out, call.out, token, pool.pooled,
                   [&](const CompressArithmetic& a) { return pool_bound(pool, a); });
        });
    settle(out);
    same_states(call.state, states, Whose::kOurs);
    same_states(c_.gpu().states, states, Whose::kGpu);
    same_states(c_.reference.states, states, Whose::kReference);
  }

  void judge(const PoolNormRope& given) {
    PoolNormRope call = given;
    call.out = memory_.of(given.out);
    if (!take_refused(pool_norm_rope(call))) return;
    verdict_.rows += call.out.shape[0];
    EachJudge out = each("out");
    for (int64_t block = 0; block < call.out.shape[0]; ++block) {
      const PoolTruth pool = pool_truth(given, block);
      const NormTruth truth = norm_truth(pool.pooled, given.weight, given.eps, given.freqs, block);
      // A reference's eps may not have been rounded to f32.
      CompressArithmetic reference;
      reference.root_error +=
          0x1p-24 * static_cast<double>(given.eps) / (2 * truth.root * truth.root);
      take_row(
          &out, call.out, block, truth.out,
          [&](const CompressArithmetic& a) {
            return norm_bound(truth, pool_bound(pool, a), given.weight, given.freqs, block, a);
          },
          reference);
    }
    settle(out);
  }

 private:
  /// One row of out, ours and theirs. bound(arithmetic): before the last rounding.
  template <class Bound>
  void take_row(EachJudge* j, const ConstTensorView& ours, int64_t row, const Eigen::ArrayXd& right,
                const Bound& bound, const CompressArithmetic& reference = {}) {
    const Recorded &got = c_.gpu(), &ref = c_.reference;
    const Eigen::ArrayXd of_ours = bound(CompressArithmetic()), of_gpu = bound(kGpuCompressor);
    const Eigen::ArrayXd of_reference = bound(reference);
    for (int64_t c = 0; c < right.size(); ++c) {
      const int64_t flat = row * right.size() + c;
      const auto take = [&](ArrayJudge* judge, const ConstTensorView& t, double error) {
        judge->take(row, c, element(t, flat), right[c], with_rounding(right[c], error, t.dtype));
      };
      take(&j->ours, ours, of_ours[c]);
      take(&j->gpu, got.out, of_gpu[c]);
      take(&j->reference, ref.out, of_reference[c]);
    }
  }

  /// Copies, and rows that nobody writes.
  void same_states(const ConstTensorView& got, const std::vector<float>& right, Whose whose) {
    same(
        array(whose, "state"), whose, std::ssize(right), got.shape[2],
        [&](int64_t i) { return element(got, i); },
        [&](int64_t i) { return right[static_cast<size_t>(i)]; });
  }
};

}  // namespace

RecordedVerdict judge_call(const Compress& call, const RecordedCase& c) {
  return judged<CompressJudge>(call, c);
}
RecordedVerdict judge_call(const PoolNormRope& call, const RecordedCase& c) {
  return judged<CompressJudge>(call, c);
}

}  // namespace shadowgraph
