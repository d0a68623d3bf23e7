// Tensors in guarded memory with gaps between their rows, and what a call may have left of such
// memory.
#pragma once

#include <initializer_list>

#include "core/choices.h"
#include "fuzz/guarded.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// A tensor full of poison, aligned to its type and no better; between the elements of every axis
/// but the last there may be a gap.
TensorView make_gapped(GuardedBuffer& buffer, DType dtype, std::initializer_list<int64_t> shape,
                       Rng& rng);

/// [rows, heads], row by row or head by head.
TensorView make_gapped_lse(GuardedBuffer& buffer, int64_t rows, int64_t heads, Rng& rng);

/// num.write_set unless all but the tensor's own elements is still poison. Nothing is asked of an
/// undefined tensor.
Status check_write_set(const GuardedBuffer& buffer, const ConstTensorView& written,
                       const char* field);

}  // namespace shadowgraph
