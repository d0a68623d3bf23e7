#include "check/linear_vectors.h"

#include "attn/linear_chunks.h"
#include "check/linear_judge.h"

namespace shadowgraph {
namespace {

class RecurrenceJudge : public LinearCaseJudge {
 public:
  using LinearCaseJudge::LinearCaseJudge;

  void judge_call(const Recurrence& recurrence) {
    LinearAttention call = recurrence.call;
    GateTruth gates;
    if (recurrence.gate) {
      gates = gate_truth(*recurrence.gate);
      if (!run_gate(*recurrence.gate, &call)) return;
    }
    LinearAttention truth = call;
    truth.states = memory_.of(call.states);
    copy_elements(vector_.states_before, truth.states);
    if (!run_ours(&call)) return;
    const auto errors = [&](const LinearArithmetic& a) {
      return recurrence.gate ? gate_errors(*recurrence.gate, gates, a) : GateErrors{};
    };
    const LinearArithmetic& ours = *find_linear_arithmetic("ours");
    LinearBounds our_bounds(truth, ours, gates, errors(ours));
    Judges of_ours("num.bound", "ours.");
    compare(truth, gates, &our_bounds,
            {call.out, call.states, call.draft.states, call.chunk_states}, &of_ours);
    settle(of_ours, &verdict_.ours.out);
    check_untouched(truth, call.states, call.draft.states, "ours.");
    verdict_.rows += truth.v.shape[0] * truth.v.shape[1];
    judge_recorded(truth, gates, errors);
    judge_reference(truth, gates, errors);
  }

 private:
  bool run_gate(DecayGate gate, LinearAttention* call) {
    gate.log_decay = memory_.of(gate.log_decay);
    gate.beta = memory_.of(gate.beta);
    if (!take_refused(decay_gate(gate))) return false;
    call->log_decay = gate.log_decay;
    if (gate.beta.defined()) call->beta = gate.beta;
    return true;
  }

  bool run_ours(LinearAttention* call) {
    call->out = memory_.of(call->out);
    call->states = memory_.of(call->states);
    copy_elements(vector_.states_before, call->states);
    call->draft.states = memory_.of(call->draft.states);
    if (call->draft.states.defined() && vector_.draft_states_before.defined())
      copy_elements(vector_.draft_states_before, call->draft.states);
    call->chunk_states = memory_.of(call->chunk_states);
    return take_refused(linear_attention(*call));
  }

  static double state_at(const ConstTensorView& t, int64_t place, int64_t head, int64_t v,
                         int64_t k, bool by_value) {
    const int64_t a = by_value ? v : k, b = by_value ? k : v;
    return element(t, ((place * t.shape[1] + head) * t.shape[2] + a) * t.shape[3] + b);
  }
  void compare_state(const ConstTensorView& t, int64_t place, const LinearStep& step,
                     const RowMatrix& right, const Eigen::VectorXd& bound, bool by_value,
                     ArrayJudge* judge) const {
    for (int64_t v = 0; v < right.rows(); ++v)
      for (int64_t k = 0; k < right.cols(); ++k)
        judge->take(step.row, step.head, state_at(t, place, step.head, v, k, by_value), right(v, k),
                    with_rounding(right(v, k), bound[v], t.dtype));
  }

  /// rows_of_states: the states are one a row, behind its last token.
  void compare(const LinearAttention& truth, const GateTruth& gates, LinearBounds* bounds,
               const LinearLeft& left, Judges* j, bool rows_of_states = false) const {
    const bool by_value = truth.order == LinearAttention::StateOrder::kValueKey;
    Eigen::VectorXd before_bound;
    for_each_step(truth, gates, [&](const LinearStep& step) {
      if (step.in_row == 0) before_bound = Eigen::VectorXd::Zero(step.v.size());
      const StepBound& bound = bounds->of(step);
      for (int64_t i = 0; left.out.defined() && is_valid(step.token) && i < step.v.size(); ++i) {
        const int64_t flat = (step.token * truth.v.shape[1] + step.head) * truth.v.shape[2] + i;
        j->out.take(step.token, step.head, element(left.out, flat), step.out[i],
                    with_rounding(step.out[i], bound.out[i], left.out.dtype));
      }
      if (left.chunk_states.defined() && begins_chunk(truth, step.token, step.in_row))
        compare_chunk(truth, step, before_bound, left.chunk_states, by_value, &j->chunks);
      const DraftSteps& draft = truth.draft;
      const bool kept = draft.keeps(truth.rows.slot(step.row) >= 0);
      if (left.draft_states.defined() && kept) {
        const int64_t place = rows_of_states ? step.row : draft.place(step.row);
        compare_state(at_place(left.draft_states, place), step.in_row, step, *step.after,
                      bound.state, by_value, &j->draft);
      }
      const bool last = step.in_row + 1 == truth.rows.tokens(step.row);
      const bool stored = rows_of_states || (truth.store && truth.rows.slot(step.row) >= 0);
      if (last && stored && left.states.defined())
        compare_state(left.states, rows_of_states ? step.row : truth.rows.slot(step.row), step,
                      *step.after, bound.state, by_value, &j->states);
      before_bound = bound.state;
    });
  }

  void compare_chunk(const LinearAttention& truth, const LinearStep& step,
                     const Eigen::VectorXd& bound, const ConstTensorView& t, bool by_value,
                     ArrayJudge* judge) const {
    int64_t chunk = count_chunks(truth, step.row);
    const int64_t first = step.token - step.in_row;
    for (int64_t i = 1; i <= step.in_row; ++i) chunk += begins_chunk(truth, first + i, i);
    const auto& listed = vector_.recorded_chunks;
    if (!listed.empty() && t.shape[0] == std::ssize(listed)) {
      const auto found = std::ranges::find(listed, static_cast<int32_t>(chunk));
      if (found == listed.end()) return;
      chunk = found - listed.begin();
    }
    compare_state(t, chunk, step, *step.before, bound, by_value, judge);
  }

  template <class Errors>
  void judge_recorded(const LinearAttention& truth, const GateTruth& gates, const Errors& errors) {
    check_untouched(truth, vector_.recorded.states, vector_.recorded.draft_states, "gpu.");
    const LinearArithmetic* found = find_linear_arithmetic(vector_.kernel);
    if (found == nullptr) {
      verdict_.findings.add(make_finding("num.recorded", at("kernel"),
                                         "a line of linear_arithmetics.inc", vector_.kernel));
      return;
    }
    LinearArithmetic a = *found;
    if (vector_.dtype == DType::kF32) a.beta_error = 0;  // rounded to the activations' type
    LinearBounds bounds(truth, a, gates, errors(a));
    Judges j("num.recorded", "gpu.");
    compare(truth, gates, &bounds,
            {vector_.recorded.out, vector_.recorded.states, vector_.recorded.draft_states,
             vector_.recorded.chunk_states},
            &j);
    if (!vector_.departs.empty()) {
      verdict_.known_wrong.push_back("gpu: error " +
                                     std::to_string(std::max(j.out.worst(), j.states.worst())) +
                                     " times its bound (" + vector_.departs + ")");
      return;
    }
    settle(j, &verdict_.gpu.out);
  }

  /// Where a reference has gates of its own (before the kernel rounded them), it is of these.
  template <class Errors>
  void judge_reference(const LinearAttention& truth, const GateTruth& gates, const Errors& errors) {
    const LinearArithmetic& a = *find_linear_arithmetic("float64_recurrence");
    const LinearArrays& ref = vector_.reference;
    const bool own = ref.log_decay.defined() && truth.log_decay.defined();
    GateTruth of_reference = gates;
    GateErrors stored = errors(a);
    if (own) {
      stored = {};
      of_reference.channels = ref.log_decay.rank == 3 ? ref.log_decay.shape[2] : 1;
      for (int64_t i = 0; i < ref.log_decay.numel(); ++i) {
        of_reference.log_decay.push_back(element(ref.log_decay, i));
        stored.log_decay.push_back(
            with_rounding(of_reference.log_decay.back(), 0, ref.log_decay.dtype));
      }
      for (int64_t i = 0; ref.beta.defined() && i < ref.beta.numel(); ++i) {
        of_reference.beta.push_back(element(ref.beta, i));
        stored.beta.push_back(with_rounding(of_reference.beta.back(), 0, ref.beta.dtype));
      }
    }
    LinearBounds bounds(truth, a, of_reference, std::move(stored));
    Judges j("num.reference", "ref.");
    compare(truth, of_reference, &bounds, {ref.out, ref.states, ref.draft_states, {}}, &j, true);
    settle(j, &verdict_.reference.out);
  }

  /// Slots that no row stores in, and steps beyond each row's, keep their bits.
  void check_untouched(const LinearAttention& truth, const ConstTensorView& states,
                       const ConstTensorView& draft, const std::string& who) {
    if (states.defined()) {
      std::vector<bool> written(static_cast<size_t>(states.shape[0]), false);
      for (int64_t r = 0; r < truth.rows.rows() && truth.store; ++r) {
        const int32_t slot = truth.rows.slot(r);
        if (slot >= 0 && truth.rows.tokens(r) > 0) written[static_cast<size_t>(slot)] = true;
      }
      for (int64_t slot = 0; slot < states.shape[0]; ++slot)
        if (!written[static_cast<size_t>(slot)])
          same_bits(at_place(states, slot), at_place(vector_.states_before, slot), slot,
                    who + "states");
    }
    const ConstTensorView& was = vector_.draft_states_before;
    if (!draft.defined() || !was.defined()) return;
    for (int64_t r = 0; r < truth.rows.rows(); ++r) {
      const int64_t place = truth.draft.place(r);
      const bool kept = truth.draft.keeps(truth.rows.slot(r) >= 0);
      for (int64_t step = kept ? truth.rows.tokens(r) : 0; step < draft.shape[1]; ++step)
        same_bits(at_place(at_place(draft, place), step), at_place(at_place(was, place), step), r,
                  who + "draft_states");
    }
  }
};

}  // namespace

VectorVerdict judge_linear_vector(const LinearVector& vector) {
  if (std::holds_alternative<IndexerCase>(vector.call)) return judge_indexer(vector);
  if (std::holds_alternative<CompressCase>(vector.call)) return judge_compress(vector);
  const auto* recurrence = std::get_if<Recurrence>(&vector.call);
  if (recurrence == nullptr) return judge_linear_tables(vector);
  RecurrenceJudge judge(vector);
  judge.judge_call(*recurrence);
  return judge.verdict();
}

}  // namespace shadowgraph
