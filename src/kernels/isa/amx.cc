// Attention with the tile unit (AMX-BF16). All other work goes to the AVX-512 unit: on processors
// that have tiles, bf16 dot products run at half the rate of f32 multiply-adds and gain nothing.
#include <immintrin.h>

#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_avx512.h"
#include "kernels/dense/attend_unit.inl"
#include "kernels/simd/fast_avx512.h"
#include "kernels/dense/attend_tiles.inl"
#include "kernels/simd/tiles_amx.h"
#include "kernels/isa/rest_of.inl"
// clang-format on

using Rest = RestOf<kAvx512Isa>;

void attend_fast(const AttendUnit& unit) {
  fits_tiles(unit) ? TileAttention<AmxTiles>(unit).run() : Rest::attend(unit);
}

}  // namespace

const Isa kAmxIsa = {"amx",        Rest::attend, attend_fast, Rest::fold,
                     Rest::finish, Rest::merge,  Rest::sum,   multiply<AmxTiles>};

}  // namespace shadowgraph
