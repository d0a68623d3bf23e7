#include "check/bounds/recurrent_compare.h"

#include <algorithm>

#include "attn/state_chunks.h"
#include "core/float_formats.h"

namespace shadowgraph {
namespace {

/// As a kernel stores an exact number.
double rounded_to(double value, DType t) {
  std::byte bytes[8];
  store_float(bytes, t, 0, static_cast<float>(value));
  return load_float(bytes, t, 0);
}

/// value, and how far from it a result may be; bound null: exact.
void take(ArrayJudge* judge, int64_t row, int64_t col, double got, double value,
          const double* bound, DType t) {
  if (bound == nullptr) return judge->take(row, col, got, rounded_to(value, t), 0);
  judge->take(row, col, got, value, with_rounding(value, *bound, t));
}

class RecurrenceComparison {
 public:
  RecurrenceComparison(const LinearAttention& truth, const RecurrentLeft& left,
                       const RecurrentPlaces& places, bool exact, RecurrentJudges* judges)
      : truth_(truth), left_(left), places_(places), exact_(exact), j_(judges) {}

  void run(const GateTruth& gates, LinearBounds* bounds) {
    Eigen::VectorXd before;
    for_each_step(truth_, gates, [&](const LinearStep& step) {
      if (step.in_row == 0) before = Eigen::VectorXd::Zero(step.v.size());
      const StepBound none{before, before};
      const StepBound& bound = exact_ ? none : bounds->of(step);
      if (places_.row < 0 || step.row == places_.row) compare(step, before, bound);
      if (!exact_) before = bound.state;
    });
  }

 private:
  void compare(const LinearStep& step, const Eigen::VectorXd& before, const StepBound& bound) {
    const int64_t row = step.row;
    const bool valid =
        places_.out_valid.empty() || places_.out_valid[static_cast<size_t>(step.token)] != 0;
    for (int64_t i = 0; left_.out.defined() && valid && i < step.v.size(); ++i) {
      const int64_t flat = (step.token * truth_.v.shape[1] + step.head) * truth_.v.shape[2] + i;
      take(&j_->out, step.token, step.head, element(left_.out, flat), step.out[i],
           exact_ ? nullptr : &bound.out[i], left_.out.dtype);
    }
    if (left_.chunk_states.defined() && begins_chunk(truth_, step.token, step.in_row))
      compare_chunk(step, before);
    const DraftSteps& draft = truth_.draft;
    if (left_.draft_states.defined() && draft.keeps(truth_.rows.slot(row) >= 0)) {
      const int64_t place = places_.states_of_rows ? row : draft.place(row);
      compare_state(at_place(left_.draft_states, place), step.in_row, step, *step.after,
                    bound.state, &j_->draft);
    }
    const bool last = step.in_row + 1 == truth_.rows.tokens(row);
    const bool stored = places_.states_of_rows || (truth_.store && truth_.rows.slot(row) >= 0);
    if (last && stored && left_.states.defined())
      compare_state(left_.states, places_.states_of_rows ? row : truth_.rows.slot(row), step,
                    *step.after, bound.state, &j_->states);
  }

  void compare_state(const ConstTensorView& t, int64_t place, const LinearStep& step,
                     const RowMatrix& right, const Eigen::VectorXd& bound,
                     ArrayJudge* judge) const {
    const bool by_value = truth_.order == LinearAttention::StateOrder::kValueKey;
    for (int64_t v = 0; v < right.rows(); ++v) {
      for (int64_t k = 0; k < right.cols(); ++k) {
        const int64_t a = by_value ? v : k, b = by_value ? k : v;
        const int64_t flat = ((place * t.shape[1] + step.head) * t.shape[2] + a) * t.shape[3] + b;
        take(judge, step.row, step.head, element(t, flat), right(v, k),
             exact_ ? nullptr : &bound[v], t.dtype);
      }
    }
  }

  void compare_chunk(const LinearStep& step, const Eigen::VectorXd& bound) {
    int64_t chunk = count_chunks(truth_, step.row);
    const int64_t first = step.token - step.in_row;
    for (int64_t i = 1; i <= step.in_row; ++i) chunk += begins_chunk(truth_, first + i, i);
    const auto& listed = places_.chunks;
    if (!listed.empty() && left_.chunk_states.shape[0] == std::ssize(listed)) {
      const auto found = std::ranges::find(listed, static_cast<int32_t>(chunk));
      if (found == listed.end()) return;
      chunk = found - listed.begin();
    }
    compare_state(left_.chunk_states, chunk, step, *step.before, bound, &j_->chunks);
  }

  const LinearAttention& truth_;
  const RecurrentLeft& left_;
  const RecurrentPlaces& places_;
  const bool exact_;
  RecurrentJudges* j_;
};

}  // namespace

void compare_recurrence(const LinearAttention& truth, const GateTruth& gates, LinearBounds* bounds,
                        const RecurrentLeft& left, const RecurrentPlaces& places,
                        RecurrentJudges* judges) {
  RecurrenceComparison(truth, left, places, bounds == nullptr, judges).run(gates, bounds);
}

void compare_conv(const CausalConv1d& truth, const ConvArithmetic* arithmetic, DType out_type,
                  const RecurrentLeft& left, const RecurrentPlaces& places, RecurrentJudges* j) {
  const int64_t dim = truth.x.shape[1], taps = truth.weight.shape[1] - 1;
  const auto chosen = [&](int64_t row) { return places.row < 0 || row == places.row; };
  for_each_token(truth, [&](const ConvToken& t) {
    if (!chosen(t.row)) return;
    const bool valid =
        places.out_valid.empty() || places.out_valid[static_cast<size_t>(t.token)] != 0;
    if (left.out.defined() && valid) {
      Eigen::ArrayXd bound = Eigen::ArrayXd::Zero(dim), right = t.out;
      if (arithmetic != nullptr) {
        bound = conv_bound(t, taps + 1, truth.activation, *arithmetic, out_type);
      } else {
        for (int64_t c = 0; c < dim; ++c) right[c] = rounded_to(right[c], out_type);
      }
      for (int64_t c = 0; c < dim; ++c)
        j->out.take(t.token, c, element(left.out, t.token * dim + c), right[c], bound[c]);
    }
    if (!left.draft_states.defined() || !t.kept) return;
    const int64_t place = places.states_of_rows ? t.row : truth.draft.place(t.row);
    const ConstTensorView window = at_place(at_place(left.draft_states, place), t.in_row);
    for (int64_t i = 0; i < dim * taps; ++i)
      j->draft.take(t.token, i / taps, element(window, i), t.window(i / taps, i % taps), 0);
  });
  for (int64_t row = 0; row < truth.rows.rows() && left.states.defined(); ++row) {
    const int32_t slot = truth.rows.slot(row);
    if (slot < 0 || truth.rows.tokens(row) == 0 || !chosen(row)) continue;
    const RowMatrix right = conv_state_after(truth, row);
    const ConstTensorView got = at_place(left.states, places.states_of_rows ? row : slot);
    for (int64_t i = 0; i < dim * taps; ++i)
      j->states.take(row, i / taps, element(got, i), right(i / taps, i % taps), 0);
  }
}

void compare_gate(const DecayGate& gate, const GateTruth& truth, const RecurrentArithmetic* a,
                  const ConstTensorView& log_decay, const ConstTensorView& beta, DType beta_type,
                  ArrayJudge* decay_judge, ArrayJudge* beta_judge) {
  GateErrors errors;
  if (a != nullptr) errors = gate_errors(gate, truth, *a);
  const int64_t of_token = std::ssize(truth.log_decay) / std::max<int64_t>(1, gate.x.shape[0]);
  for (size_t i = 0; log_decay.defined() && i < truth.log_decay.size(); ++i) {
    const auto n = static_cast<int64_t>(i);
    take(decay_judge, n / of_token, n % of_token, element(log_decay, n), truth.log_decay[i],
         a == nullptr ? nullptr : &errors.log_decay[i], log_decay.dtype);
  }
  const int64_t heads = gate.a_log.shape[0];
  for (size_t i = 0; beta.defined() && i < truth.beta.size(); ++i) {
    const auto n = static_cast<int64_t>(i);
    double once = 0;
    if (a != nullptr) once = with_rounding(truth.beta[i], errors.beta[i], beta_type);
    take(beta_judge, n / heads, n % heads, element(beta, n), truth.beta[i],
         a == nullptr ? nullptr : &once, beta.dtype);
  }
}

}  // namespace shadowgraph
