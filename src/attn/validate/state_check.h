// What the calls over recurrent states have in common, held against their tensors. Used by
// validate_recurrent.cc; tested by tests/attn/validate_recurrent_test.cc.
#pragma once

#include <cstdint>

#include "attn/validate/tensor_check.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

/// Offsets from 0 to `tokens`, slots of 0 .. num_slots - 1 or -1, flags and row counts that agree.
/// written: no slot is named by two rows that have tokens. False: the rows cannot be
/// walked.
bool check_state_rows(TensorCheck& c, const StateRows& rows, int64_t tokens, int64_t num_slots,
                      bool written);

/// Places of 0 .. places - 1, `steps` of them each, no two rows with one; parents are earlier
/// tokens of their row. Requires rows that check_state_rows() accepts.
bool check_draft(TensorCheck& c, const DraftSteps& draft, const StateRows& rows, int64_t places,
                 int64_t steps);

}  // namespace shadowgraph
