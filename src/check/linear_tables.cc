#include "check/linear_judge.h"
#include "check/rounding.h"

namespace shadowgraph {
namespace {

/// Of a few operations in double, of which a subtraction may cancel to 1 / 2^8 (of a model's
/// layers).
constexpr double kTablesInDouble = 0x1p-45;

class TableJudge : public LinearCaseJudge {
 public:
  using LinearCaseJudge::LinearCaseJudge;

  void judge() {
    std::visit([this](const auto& call) { judge_call(call); }, vector_.call);
  }

 private:
  template <class Other>
  void judge_call(const Other&) {}  // judged elsewhere: judge_linear_vector

  void judge_call(const CausalConv1d& given) {
    CausalConv1d call = given, truth = given;
    truth.states = memory_.of(given.states);
    copy_elements(vector_.states_before, truth.states);
    call.states = memory_.of(given.states);
    copy_elements(vector_.states_before, call.states);
    call.out = memory_.of(given.out);
    call.draft.states = memory_.of(given.draft.states);
    if (call.draft.states.defined() && vector_.draft_states_before.defined())
      copy_elements(vector_.draft_states_before, call.draft.states);
    check_parents();
    if (!take_refused(causal_conv1d(call))) return;
    verdict_.rows += truth.x.shape[0];
    const ConvArithmetic ours;
    judge_conv(truth, {call.out, call.states, call.draft.states, {}}, ours, "num.bound", "ours.",
               &verdict_.ours.out);
    ConvArithmetic gpu;
    gpu.products_in_type = true, gpu.flushes = true, gpu.silu_error = 0x1p-21;
    judge_conv(truth,
               {vector_.recorded.out, vector_.recorded.states, vector_.recorded.draft_states, {}},
               gpu, "num.recorded", "gpu.", &verdict_.gpu.out);
    ConvArithmetic exact;
    exact.u = 0x1p-53, exact.silu_error = 0x1p-50;
    judge_conv(
        truth,
        {vector_.reference.out, vector_.reference.states, vector_.reference.draft_states, {}},
        exact, "num.reference", "ref.", &verdict_.reference.out, true);
  }

  void judge_conv(const CausalConv1d& truth, const LinearLeft& left,
                  const ConvArithmetic& arithmetic, LawId law, const std::string& who,
                  std::optional<double>* ratio, bool rows_of_states = false) {
    LinearJudges j(law, who);
    compare_conv(truth, &arithmetic, rows_of_states ? DType::kF32 : truth.x.dtype, left,
                 {vector_.out_valid, {}, rows_of_states, -1}, &j);
    std::vector<bool> written(static_cast<size_t>(truth.states.shape[0]), false);
    for (int64_t row = 0; row < truth.rows.rows(); ++row) {
      const int32_t slot = truth.rows.slot(row);
      if (slot < 0 || truth.rows.tokens(row) == 0) continue;
      written[static_cast<size_t>(slot)] = true;
    }
    for (int64_t slot = 0; left.states.defined() && !rows_of_states && slot < truth.states.shape[0];
         ++slot)
      if (!written[static_cast<size_t>(slot)])
        same_bits(at_place(left.states, slot), at_place(vector_.states_before, slot), slot,
                  who + "states");
    settle(j, ratio);
  }

  void check_parents() {
    if (vector_.first_child.empty()) return;
    std::vector<int32_t> parents(vector_.first_child.size());
    const auto steps = std::get<CausalConv1d>(vector_.call).draft.states.shape[1];
    const int64_t rows = std::get<CausalConv1d>(vector_.call).rows.rows();
    const int64_t tokens = rows == 0 ? steps : std::ssize(parents) / rows;
    if (!take_refused(tree_parents(vector_.first_child, vector_.next_sibling, tokens, parents)))
      return;
    ArrayJudge j("num.exact", "parents");
    for (size_t i = 0; i < parents.size(); ++i)
      j.take(static_cast<int64_t>(i) / tokens, static_cast<int64_t>(i) % tokens, parents[i],
             vector_.recorded_parents[i], 0);
    settle(j, &verdict_.ours.out);
  }

  void judge_call(const DecayGate& given) {
    DecayGate gate = given;
    gate.log_decay = memory_.of(given.log_decay), gate.beta = memory_.of(given.beta);
    if (!take_refused(decay_gate(gate))) return;
    const GateTruth truth = gate_truth(given);
    verdict_.rows += std::ssize(truth.log_decay);
    LinearArithmetic ours = *find_linear_arithmetic("ours"), gpu;
    judge_gate(given, truth, of_gate(gate), ours, "num.bound", "ours.", &verdict_.ours.out);
    // The kernel rounds beta to b's type before it stores it as f32.
    judge_gate(given, truth, vector_.recorded, gpu, "num.recorded", "gpu.", &verdict_.gpu.out,
               given.b.dtype);
    judge_gate(given, truth, vector_.reference, *find_linear_arithmetic("float64_recurrence"),
               "num.reference", "ref.", &verdict_.reference.out);
  }

  static LinearArrays of_gate(const DecayGate& gate) {
    LinearArrays arrays;
    arrays.log_decay = gate.log_decay, arrays.beta = gate.beta;
    return arrays;
  }

  void judge_gate(const DecayGate& gate, const GateTruth& truth, const LinearArrays& got,
                  const LinearArithmetic& a, LawId law, const std::string& who,
                  std::optional<double>* ratio, DType beta_type = DType::kF32) {
    ArrayJudge decay(law, who + "log_decay"), beta(law, who + "beta");
    compare_gate(gate, truth, &a, got.log_decay, got.beta, beta_type, &decay, &beta);
    settle(decay, ratio), settle(beta, ratio);
  }

  void judge_call(const L2Norm& norm) {
    const int64_t rows = norm.x.shape[0], dim = norm.x.shape[1];
    verdict_.rows += rows;
    ArrayJudge gpu("num.recorded", "gpu.out"), reference("num.reference", "ref.out");
    for (int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (int64_t i = 0; i < dim; ++i) {
        const double x = element(norm.x, r * dim + i);
        squares += x * x;
      }
      for (int64_t i = 0; i < dim; ++i) {
        const double right =
            element(norm.x, r * dim + i) / std::sqrt(squares + static_cast<double>(norm.eps));
        // A sum of squares in any order, whose root halves its error; root and division within 2
        // ulp each.
        const double error =
            std::abs(right) * (gamma_of(static_cast<double>(dim) + 1, 0x1p-24) / 2 + 4 * 0x1p-23);
        // The reference's eps may not have been rounded to f32.
        const LinearArrays &got = vector_.recorded, &ref = vector_.reference;
        gpu.take(r, i, element(got.out, r * dim + i), right,
                 with_rounding(right, error, got.out.dtype));
        reference.take(r, i, element(ref.out, r * dim + i), right,
                       with_rounding(right, std::abs(right) * 0x1p-24, ref.out.dtype));
      }
    }
    settle(gpu, &verdict_.gpu.out), settle(reference, &verdict_.reference.out);
  }

  void judge_call(const SlopeTables& tables) {
    for (size_t i = 0; i < tables.recorded.size(); ++i) {
      const ConstTensorView &got = tables.recorded[i], &ref = tables.reference[i];
      const int64_t layers = got.shape[0], heads = got.shape[1];
      ArrayJudge ours("num.bound", "ours.slopes"), gpu("num.recorded", "gpu.slopes");
      ArrayJudge reference("num.reference", "ref.slopes");
      std::vector<float> slopes(static_cast<size_t>(heads));
      for (int64_t layer = 0; layer < layers; ++layer) {
        const std::vector<double> right =
            slope_truth(static_cast<int32_t>(layer), static_cast<int32_t>(layers), heads);
        take_refused(
            lightning_slopes(static_cast<int32_t>(layer), static_cast<int32_t>(layers), slopes));
        for (int64_t h = 0; h < heads; ++h) {
          const double x = right[static_cast<size_t>(h)];
          ours.take(layer, h, slopes[static_cast<size_t>(h)], x,
                    with_rounding(x, x * kTablesInDouble, DType::kF32));
          // A power, a scale and their product, each rounded to f32.
          gpu.take(layer, h, element(got, layer * heads + h), x, gamma_of(3, 0x1p-24) * x);
          reference.take(layer, h, element(ref, layer * heads + h), x,
                         with_rounding(x, x * kTablesInDouble, ref.dtype));
        }
      }
      verdict_.rows += layers;
      settle(ours, &verdict_.ours.out), settle(gpu, &verdict_.gpu.out);
      settle(reference, &verdict_.reference.out);
    }
  }

  void judge_call(const ChunkLists& lists) {
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
      settle(j, &verdict_.ours.out);
    }
  }
};

}  // namespace

VectorVerdict judge_linear_tables(const LinearVector& vector) {
  TableJudge judge(vector);
  judge.judge();
  return judge.verdict();
}

}  // namespace shadowgraph
