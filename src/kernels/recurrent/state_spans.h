// Footprints of calls over recurrent states: tokens of a row, places of states, lists of rows.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/spans.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

/// t[..., :, :] from element `first` on, or of a vector t[:].
inline void add_plane(Footprint* spans, const ConstTensorView& t, int64_t first, Access access,
                      int64_t row) {
  const auto axis = [&](int i) { return i < 0 ? SpanAxis{} : SpanAxis{t.shape[i], t.stride[i]}; };
  add_block(spans, {t.data, first, 1, element_bytes(t.dtype), access, static_cast<int32_t>(row)},
            axis(t.rank - 2), axis(t.rank - 1));
}

/// Tokens of a row: t[tokens, ...] of two axes, or of three.
inline void add_tokens(Footprint* spans, ConstTensorView t, const StateRows& rows, int64_t row,
                       Access access) {
  const int64_t begin = rows.begin(row);
  if (t.rank == 2) {
    t.shape[0] = rows.tokens(row);
    return add_plane(spans, t, t.offset(begin), access, row);
  }
  for (int64_t i = 0; i < rows.tokens(row); ++i)
    add_plane(spans, t, t.offset(begin + i), access, row);
}

template <class T>
void add_list(Footprint* spans, std::span<const T> list) {
  if (!list.empty())
    spans->push_back({list.data(), 0, std::ssize(list), sizeof(T), Access::kRead, -1});
}

/// The lists of a call, then add_row(row) of each row that is computed, and its out.
template <class Call, class AddRow>
void add_rows(Footprint* spans, const Call& call, const AddRow& add_row) {
  const StateRows& rows = call.rows;
  add_list(spans, rows.cu_seqlens_q);
  add_list(spans, rows.state_indices);
  add_list(spans, rows.has_initial_state);
  if (call.draft.states.defined()) add_list(spans, call.draft.indices);
  add_list(spans, call.draft.parents);
  for (int64_t row = 0; row < rows.rows(); ++row) {
    if (rows.tokens(row) == 0) continue;
    if (rows.is_computed(row)) add_row(row);
    if (rows.is_computed(row) || rows.pad == PadRow::kZeroOut)
      add_tokens(spans, call.out, rows, row, Access::kWrite);
  }
}

}  // namespace shadowgraph
