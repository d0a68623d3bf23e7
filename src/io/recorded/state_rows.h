// What the readers of recurrences and convolutions share: rows and their slots, pools of states,
// draft steps.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/recorded/case_tensors.h"

namespace shadowgraph {

/// "lens" of rows. In shapes then: "rows", "tokens" (of all rows).
std::vector<int32_t> read_lens(CaseReader& reader);
/// "B" rows, which `slots` [B] must confirm before memory is taken for them, of `steps` tokens. In
/// shapes then: "rows", "steps", "tokens".
std::vector<int32_t> read_equal_lens(CaseReader& reader, std::string_view slots, int64_t steps);

/// "state_dtype", f32 where a case has none.
DType read_state_dtype(CaseReader& reader);
/// "pad_out", `without` where a case has none.
PadRow read_pad(CaseReader& reader, PadRow without);

/// A state's form: dtype and the axes behind its slot.
struct StateType {
  DType dtype = DType::kF32;
  std::string_view shape;
};
/// `before` and `after`, [slots, ...a state]: the case's, and the call's, which has no memory.
/// "slots", where a case has it, counts them.
TensorView read_pool(CaseReader& reader, const StateType& state, std::string_view before,
                     std::string_view after, RecordedCase* c);

/// Which tensors say what a row is; empty: none does.
struct RowFields {
  std::string_view slots = "state_indices";
  std::string_view offsets = {};      // i32 [rows + 1], as the lengths say
  std::string_view has_initial = {};  // u8 [rows]
  PadRow pad = PadRow::kSkip;
};
/// After read_pool(). -1 stands at the rows of "pad_rows" and nowhere else; the rows of
/// "zero_init_rows" have no initial state. kSkip: the case's out_valid excludes the padded rows.
StateRows read_rows(CaseReader& reader, std::span<const int32_t> lens, const RowFields& fields,
                    RecordedCase* c);

/// state_ref [rows, ...a state].
void read_state_ref(CaseReader& reader, const StateType& state, RecordedCase* c);

/// inter_after [places, allocated steps, ...a state], inter_ref [rows, steps, ...a state];
/// `indices` and `parents` are names of tensors, empty: none is there.
DraftSteps read_draft(CaseReader& reader, const StateType& state, std::string_view indices,
                      std::string_view parents, RecordedCase* c);

/// i64 [rows, steps], each from `low` to steps - 1, as i32. earlier: each but a row's first names
/// an earlier token.
std::span<const int32_t> read_steps(CaseReader& reader, std::string_view name, int64_t low,
                                    bool earlier);

}  // namespace shadowgraph
