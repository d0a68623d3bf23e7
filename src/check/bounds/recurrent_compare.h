// Every number that a recurrent call should have left, held against the oracle's, whoever ran the
// call: each within its bound, or exact. Used by the judges of recorded cases and by src/fuzz.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "check/bounds/array_judge.h"
#include "check/bounds/conv_bound.h"
#include "check/bounds/linear_bound.h"

namespace shadowgraph {

/// What a call left. A view that is undefined is not looked at.
struct RecurrentLeft {
  ConstTensorView out, states, draft_states, chunk_states;
};

/// One for each array of a result.
struct RecurrentJudges {
  RecurrentJudges(LawId law, const std::string& prefix)
      : out(law, prefix + "out"),
        states(law, prefix + "states"),
        draft(law, prefix + "draft_states"),
        chunks(law, prefix + "chunk_states") {}
  void add_to(Status* status) const {
    for (const ArrayJudge* a : {&out, &states, &draft, &chunks}) a->add_to(status);
  }

  ArrayJudge out, states, draft, chunks;
};

/// Which places of a result are looked at.
struct RecurrentPlaces {
  std::span<const uint8_t> out_valid;  // [tokens]; empty: all
  std::span<const int32_t> chunks;  // which of the call's chunks each is that was left; empty: all
  bool states_of_rows = false;      // states and draft_states are one a row, whatever its slot
  int64_t row = -1;                 // this one alone; -1: all
};

/// truth: the call with its states as they were before it. bounds null: every number is the
/// oracle's, rounded to its type and no more (exact data).
void compare_recurrence(const LinearAttention& truth, const GateTruth& gates, LinearBounds* bounds,
                        const RecurrentLeft& left, const RecurrentPlaces& places,
                        RecurrentJudges* judges);

/// The same; windows are copies, and have no bound. arithmetic null: out is exact, too. out_type:
/// what out is rounded to.
void compare_conv(const CausalConv1d& truth, const ConvArithmetic* arithmetic, DType out_type,
                  const RecurrentLeft& left, const RecurrentPlaces& places,
                  RecurrentJudges* judges);

/// A gate's numbers, [tokens, heads (, channels)] and [tokens, heads]; arithmetic null: exact.
/// beta_type: what beta is rounded to before it is stored.
void compare_gate(const DecayGate& gate, const GateTruth& truth,
                  const RecurrentArithmetic* arithmetic, const ConstTensorView& log_decay,
                  const ConstTensorView& beta, DType beta_type, ArrayJudge* decay_judge,
                  ArrayJudge* beta_judge);

/// A view without its first axis, at `place`.
template <class Byte>
BasicTensorView<Byte> at_place(BasicTensorView<Byte> t, int64_t place) {
  t.data += place * t.stride[0] * static_cast<int64_t>(size_of(t.dtype));
  for (size_t i = 0; i + 1 < static_cast<size_t>(t.rank); ++i)
    t.shape[i] = t.shape[i + 1], t.stride[i] = t.stride[i + 1];
  --t.rank;
  return t;
}

}  // namespace shadowgraph
