#include "check/linear_vectors.h"

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
    judge_ours(truth, call, gates, errors, "ours", "ours.");
    verdict_.rows += truth.v.shape[0] * truth.v.shape[1];
    if (!judge_chunked(truth, call, gates, errors)) return;
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

  template <class Errors>
  void judge_ours(const LinearAttention& truth, const LinearAttention& call, const GateTruth& gates,
                  const Errors& errors, std::string_view arithmetic, const std::string& who) {
    const LinearArithmetic& a = *find_linear_arithmetic(arithmetic);
    LinearBounds bounds(truth, a, gates, errors(a));
    LinearJudges j("num.bound", who);
    compare_recurrence(truth, gates, &bounds,
                       {call.out, call.states, call.draft.states, call.chunk_states}, places(), &j);
    settle(j, &verdict_.ours.out);
    check_untouched(truth, call.states, call.draft.states, who);
  }

  /// The other form of what has no draft. False: it is refused.
  template <class Errors>
  bool judge_chunked(const LinearAttention& truth, LinearAttention call, const GateTruth& gates,
                     const Errors& errors) {
    if (call.draft.states.defined() || !call.draft.parents.empty()) return true;
    call.form = LinearAttention::Form::kChunked;
    if (!run_ours(&call)) return false;
    judge_ours(truth, call, gates, errors,
               call.log_decay.rank == 3 ? "ours_chunked_channels" : "ours_chunked", "chunked.");
    return true;
  }

  LinearPlaces places() const { return {vector_.out_valid, vector_.recorded_chunks, false, -1}; }

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
    LinearJudges j("num.recorded", "gpu.");
    compare_recurrence(truth, gates, &bounds,
                       {vector_.recorded.out, vector_.recorded.states,
                        vector_.recorded.draft_states, vector_.recorded.chunk_states},
                       places(), &j);
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
    LinearJudges j("num.reference", "ref.");
    LinearPlaces of_rows = places();
    of_rows.states_of_rows = true;
    compare_recurrence(truth, of_reference, &bounds, {ref.out, ref.states, ref.draft_states, {}},
                       of_rows, &j);
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
  if (std::holds_alternative<DualChunkCase>(vector.call)) return judge_dual_chunk(vector);
  if (std::holds_alternative<SparseAttention>(vector.call) ||
      std::holds_alternative<PackLatents>(vector.call))
    return judge_linear_sparse(vector);
  const auto* recurrence = std::get_if<Recurrence>(&vector.call);
  if (recurrence == nullptr) return judge_linear_tables(vector);
  RecurrenceJudge judge(vector);
  judge.judge_call(*recurrence);
  return judge.verdict();
}

}  // namespace shadowgraph
