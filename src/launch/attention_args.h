// What the paged and the ragged attention launch have in common: rows that are padding, and what is
// read where a call is refused.
#pragma once

#include "kernels/footprint.h"
#include "launch/launch_args.h"
#include "launch/partial_rows.h"
#include "shadowgraph/attention/params.h"

namespace shadowgraph {

/// Rows past an indptr's last entry are padding, as a graph's tensors are as long as its bucket:
/// the view ends before them. An entry that is no row of the view is left to be refused.
template <class Byte>
void drop_padding(std::span<const int32_t> indptr, BasicTensorView<Byte>* t) {
  if (!indptr.empty() && indptr.back() >= 0 && indptr.back() < t->shape[0])
    t->shape[0] = indptr.back();
}

/// The same of a mask, whose buffer has room for the graph's longest batch.
inline void drop_padding(CustomMask* mask) {
  const int64_t used = mask->mask_indptr.empty() ? 0 : mask->mask_indptr.back();
  if (used > 0 && used < std::ssize(mask->data))
    mask->data = mask->data.first(static_cast<size_t>(used));
}

/// The arrays of the parameters that are read whole.
inline void add_params_arrays(Footprint* spans, const AttentionParams& p) {
  add_whole(spans, p.sinks);
  add_whole(spans, p.custom_mask.mask_indptr);
  add_term_lists(p.terms, spans);
}
/// Reads of the rows that an indptr asks for beyond the view.
inline void add_rows_beyond(Footprint* spans, const ConstTensorView& t,
                            std::span<const int32_t> indptr) {
  add_rows_beyond(spans, t, 0, indptr.empty() ? 0 : indptr.back(), -1);
}

}  // namespace shadowgraph
