// Judging what models make once, or for each batch: gates, norms, slopes, chunk lists.
#include <cmath>

#include "check/bounds/rounding.h"
#include "check/recorded/case_judge.h"

namespace shadowgraph {
namespace {

/// A few operations in double, of which a subtraction may cancel to 1 / 2^8 (of a model's layers).
constexpr double kSlopeInDouble = 0x1p-45;

class TableJudge : public CaseJudge {
 public:
  using CaseJudge::CaseJudge;

  void judge(const DecayGate& given) {
    DecayGate gate = given;
    gate.log_decay = memory_.of(given.log_decay), gate.beta = memory_.of(given.beta);
    if (!take_refused(decay_gate(gate))) return;
    const GateTruth truth = gate_truth(given);
    verdict_.rows += std::ssize(truth.log_decay);
    const auto compare = [&](const ConstTensorView& log_decay, const ConstTensorView& beta,
                             const RecurrentArithmetic& a, Whose whose, DType beta_type) {
      ArrayJudge of_decay = array(whose, "log_decay"), of_beta = array(whose, "beta");
      compare_gate(given, truth, &a, log_decay, beta, beta_type, &of_decay, &of_beta);
      settle(of_decay, whose), settle(of_beta, whose);
    };
    compare(gate.log_decay, gate.beta, *find_recurrent_arithmetic("ours"), Whose::kOurs,
            DType::kF32);
    // The kernel rounds beta to b's type before it stores it as f32.
    const Recorded &gpu = c_.gpu(), &ref = c_.reference;
    compare(gpu.log_decay, gpu.beta, {}, Whose::kGpu, given.b.dtype);
    compare(ref.log_decay, ref.beta, *find_recurrent_arithmetic("float64_recurrence"),
            Whose::kReference, DType::kF32);
  }

  void judge(const L2Norm& norm) {
    const int64_t rows = norm.x.shape[0], dim = norm.x.shape[1];
    verdict_.rows += rows;
    const ConstTensorView &got = c_.gpu().out, &ref = c_.reference.out;
    ArrayJudge gpu = array(Whose::kGpu, "out"), reference = array(Whose::kReference, "out");
    for (int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (int64_t i = 0; i < dim; ++i) {
        const double x = element(norm.x, r * dim + i);
        squares += x * x;
      }
      for (int64_t i = 0; i < dim; ++i) {
        const int64_t flat = r * dim + i;
        const double right =
            element(norm.x, flat) / std::sqrt(squares + static_cast<double>(norm.eps));
        // A sum of squares in any order, whose root halves its error; root and division within 2
        // ulp each.
        const double error =
            std::abs(right) * (gamma_of(static_cast<double>(dim) + 1, 0x1p-24) / 2 + 4 * 0x1p-23);
        gpu.take(r, i, element(got, flat), right, with_rounding(right, error, got.dtype));
        // The reference's eps may not have been rounded to f32.
        reference.take(r, i, element(ref, flat), right,
                       with_rounding(right, std::abs(right) * 0x1p-24, ref.dtype));
      }
    }
    settle(gpu, Whose::kGpu), settle(reference, Whose::kReference);
  }

  void judge(const SlopeTables& tables) {
    for (size_t i = 0; i < tables.recorded.size(); ++i)
      judge_slopes(tables.recorded[i], tables.reference[i]);
  }

  void judge(const ChunkLists& lists) {
    for (const ChunkLists::One& one : lists.batches) {
      std::vector<int32_t> indices(one.indices.size()), offsets(one.offsets.size());
      ChunkList list{0, indices, offsets};
      if (!take_refused(chunk_list(one.cu_seqlens_q, one.chunk_size, &list))) continue;
      ArrayJudge j("num.exact", "chunks");
      j.take(0, 0, static_cast<double>(list.size), static_cast<double>(one.indices.size()), 0);
      for (size_t i = 0; i < indices.size(); ++i) {
        j.take(static_cast<int64_t>(i), 0, indices[i], one.indices[i], 0);
        j.take(static_cast<int64_t>(i), 1, offsets[i], one.offsets[i], 0);
      }
      ++verdict_.rows;
      settle(j, Whose::kOurs);
    }
  }

 private:
  void judge_slopes(const ConstTensorView& got, const ConstTensorView& ref) {
    const auto layers = static_cast<int32_t>(got.shape[0]);
    const int64_t heads = got.shape[1];
    EachJudge j = each("slopes");
    std::vector<float> slopes(static_cast<size_t>(heads));
    for (int32_t layer = 0; layer < layers; ++layer) {
      const std::vector<double> right = slope_truth(layer, layers, heads);
      take_refused(lightning_slopes(layer, layers, slopes));
      for (int64_t h = 0; h < heads; ++h) {
        const double x = right[static_cast<size_t>(h)];
        j.ours.take(layer, h, slopes[static_cast<size_t>(h)], x,
                    with_rounding(x, x * kSlopeInDouble, DType::kF32));
        // A power, a scale and their product, each rounded to f32.
        j.gpu.take(layer, h, element(got, layer * heads + h), x, gamma_of(3, 0x1p-24) * x);
        j.reference.take(layer, h, element(ref, layer * heads + h), x,
                         with_rounding(x, x * kSlopeInDouble, ref.dtype));
      }
    }
    verdict_.rows += layers;
    settle(j);
  }
};

}  // namespace

RecordedVerdict judge_call(const DecayGate& call, const RecordedCase& c) {
  return judged<TableJudge>(call, c);
}
RecordedVerdict judge_call(const L2Norm& call, const RecordedCase& c) {
  return judged<TableJudge>(call, c);
}
RecordedVerdict judge_call(const SlopeTables& tables, const RecordedCase& c) {
  return judged<TableJudge>(tables, c);
}
RecordedVerdict judge_call(const ChunkLists& lists, const RecordedCase& c) {
  return judged<TableJudge>(lists, c);
}

}  // namespace shadowgraph
