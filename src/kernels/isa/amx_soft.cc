// Attention as the tile unit (AMX-BF16) computes it, on any processor and slowly: the bits of "amx"
// in fast arithmetic wherever tiles are used.
#include "core/float_formats.h"
#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_generic.h"
#include "kernels/dense/math.inl"
#include "kernels/dense/formats.inl"
#include "kernels/dense/products.inl"
#include "kernels/dense/strip.inl"
#include "kernels/dense/panels.inl"
#include "kernels/dense/attend.inl"
#include "kernels/simd/fast_generic.h"
#include "kernels/dense/attend_tiles.inl"
#include "kernels/simd/tiles_soft.h"
// clang-format on

void attend_exact(const AttendUnit& unit) { kGenericIsa.attend(unit); }
void fold_rows(const FoldRows& rows) { kGenericIsa.fold(rows); }
void finish_row(const FinishRow& row) { kGenericIsa.finish(row); }
void merge_rows(const MergeRows& rows) { kGenericIsa.merge(rows); }
void sum_rows(const SumRows& rows) { kGenericIsa.sum(rows); }

void attend_fast(const AttendUnit& unit) {
  fits_tiles(unit) ? TileAttention<SoftTiles>(unit).run() : attend_exact(unit);
}

}  // namespace

const Isa kSoftAmxIsa = {"amx_soft", attend_exact, attend_fast, fold_rows,
                         finish_row, merge_rows,   sum_rows,    multiply<SoftTiles>};

}  // namespace shadowgraph
