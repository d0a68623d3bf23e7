// Attention with the tile unit (AMX-BF16). All other work goes to the AVX-512 unit: on processors
// that have tiles, bf16 dot products run at half the rate of f32 multiply-adds and gain nothing.
#include <immintrin.h>

#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_avx512.h"
#include "kernels/dense/math.inl"
#include "kernels/dense/formats.inl"
#include "kernels/dense/products.inl"
#include "kernels/dense/strip.inl"
#include "kernels/dense/panels.inl"
#include "kernels/dense/attend.inl"
#include "kernels/simd/fast_avx512.h"
#include "kernels/dense/attend_tiles.inl"
#include "kernels/simd/tiles_amx.h"
// clang-format on

void attend_exact(const AttendUnit& unit) { kAvx512Isa.attend(unit); }
void fold_rows(const FoldRows& rows) { kAvx512Isa.fold(rows); }
void finish_row(const FinishRow& row) { kAvx512Isa.finish(row); }
void merge_rows(const MergeRows& rows) { kAvx512Isa.merge(rows); }
void sum_rows(const SumRows& rows) { kAvx512Isa.sum(rows); }

void attend_fast(const AttendUnit& unit) {
  fits_tiles(unit) ? TileAttention<AmxTiles>(unit).run() : attend_exact(unit);
}

}  // namespace

const Isa kAmxIsa = {"amx",      attend_exact, attend_fast, fold_rows,
                     finish_row, merge_rows,   sum_rows,    multiply<AmxTiles>};

}  // namespace shadowgraph
