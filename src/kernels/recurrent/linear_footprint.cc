// The footprint of linear attention.
#include "attn/state_chunks.h"
#include "kernels/recurrent/linear_attention.h"
#include "kernels/recurrent/state_spans.h"

namespace shadowgraph {
namespace {

/// t[place..., :, :, :]: every head's state.
void add_state(Footprint* spans, const ConstTensorView& t, int64_t first, Access access,
               int64_t row) {
  const auto heads = static_cast<size_t>(t.rank) - 3;
  for (int64_t h = 0; h < t.shape[heads]; ++h)
    add_plane(spans, t, first + h * t.stride[heads], access, row);
}

void add_inputs(Footprint* spans, const LinearAttention& call, int64_t row) {
  for (const ConstTensorView* t : {&call.q, &call.k, &call.v, &call.z, &call.log_decay, &call.beta})
    if (t->defined() && t->rank > 1) add_tokens(spans, *t, call.rows, row, Access::kRead);
}

void add_row(Footprint* spans, const LinearAttention& call, int64_t row) {
  const int64_t slot = call.rows.slot(row);
  const int64_t tokens = call.rows.tokens(row);
  const DraftSteps& draft = call.draft;
  add_inputs(spans, call, row);
  if (call.rows.starts_from_slot(row))
    add_state(spans, call.states, call.states.offset(slot), Access::kRead, row);
  if (draft.keeps(slot >= 0)) {
    const int64_t place = draft.place(row);
    for (int64_t j = 0; j < tokens; ++j)
      add_state(spans, draft.states, draft.states.offset(place, j), Access::kWrite, row);
  }
  if (call.chunk_states.defined()) {
    const int64_t end = count_chunks(call, row + 1);
    for (int64_t c = count_chunks(call, row); c < end; ++c)
      add_state(spans, call.chunk_states, call.chunk_states.offset(c), Access::kWrite, row);
  }
  if (call.store && slot >= 0)
    add_state(spans, call.states, call.states.offset(slot), Access::kWrite, row);
}

}  // namespace

Footprint linear_attention_footprint(const LinearAttention& call) {
  Footprint spans;
  if (call.log_decay.rank == 1) add_plane(&spans, call.log_decay, 0, Access::kRead, -1);
  if (call.skip.defined()) add_plane(&spans, call.skip, 0, Access::kRead, -1);
  add_rows(&spans, call, [&](int64_t row) { add_row(&spans, call, row); });
  return spans;
}

}  // namespace shadowgraph
