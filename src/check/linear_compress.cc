// Judges recorded results of DeepSeek-V4's compressor.
#include "check/compress_bound.h"
#include "check/linear_judge.h"

namespace shadowgraph {
namespace {

/// Arithmetic of GPU kernels: f32, ex2.approx and a fast division and root; they pool in one pass
/// over weights relative to the largest score.
constexpr CompressArithmetic kGpu = {.u = 0x1p-24, .exp_error = 0x1p-21, .root_error = 0x1p-21};

class CompressJudge : public LinearCaseJudge {
 public:
  using LinearCaseJudge::LinearCaseJudge;

  void judge() {
    std::visit([this](const auto& c) { judge_case(c); }, std::get<CompressCase>(vector_.call));
  }

 private:
  struct OutJudges {
    ArrayJudge ours{"num.bound", "ours.out"}, gpu{"num.recorded", "gpu.out"},
        reference{"num.reference", "ref.out"};
  };

  /// One row of out, ours and theirs. bound(arithmetic): before the last rounding.
  template <class Bound>
  void take_row(OutJudges* j, const ConstTensorView& ours, int64_t row, const Eigen::ArrayXd& right,
                const Bound& bound, const CompressArithmetic& reference = {}) {
    const LinearArrays &got = vector_.recorded, &ref = vector_.reference;
    const Eigen::ArrayXd of_ours = bound(CompressArithmetic()), of_gpu = bound(kGpu);
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
  void settle_out(const OutJudges& j) {
    settle(j.ours, &verdict_.ours.out), settle(j.gpu, &verdict_.gpu.out);
    settle(j.reference, &verdict_.reference.out);
  }

  void judge_case(const Compress& given) {
    Compress call = given, truth = given;
    for (Compress* c : {&call, &truth}) {
      c->state = memory_.of(given.state);
      copy_elements(vector_.states_before, c->state);
    }
    call.out = memory_.of(given.out);
    if (!take_refused(compress(call))) return;
    verdict_.rows += call.out.shape[0];
    OutJudges out;
    const std::vector<float> states =
        compress_truth(truth, [&](int64_t token, const PoolTruth& pool) {
          take_row(&out, call.out, token, pool.pooled,
                   [&](const CompressArithmetic& a) { return pool_bound(pool, a); });
        });
    settle_out(out);
    same_states(call.state, states, "num.bound", "ours.state", &verdict_.ours.out);
    same_states(vector_.recorded.states, states, "num.recorded", "gpu.state", &verdict_.gpu.out);
    same_states(vector_.reference.states, states, "num.reference", "ref.state",
                &verdict_.reference.out);
  }

  /// Copies, and rows that nobody writes.
  void same_states(const ConstTensorView& got, const std::vector<float>& right, LawId law,
                   const char* field, std::optional<double>* ratio) {
    ArrayJudge j(law, field);
    const int64_t of_row = got.shape[2];
    for (int64_t i = 0; i < std::ssize(right); ++i)
      j.take(i / of_row, i % of_row, element(got, i), right[static_cast<size_t>(i)], 0);
    settle(j, ratio);
  }

  void judge_case(const PoolNormRope& given) {
    PoolNormRope call = given;
    call.out = memory_.of(given.out);
    if (!take_refused(pool_norm_rope(call))) return;
    verdict_.rows += call.out.shape[0];
    OutJudges out;
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
    settle_out(out);
  }
};

}  // namespace

VectorVerdict judge_compress(const LinearVector& vector) {
  CompressJudge judge(vector);
  judge.judge();
  return judge.verdict();
}

}  // namespace shadowgraph
