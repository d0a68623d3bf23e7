// Attention as the tile unit (AMX-BF16) computes it, on any processor and slowly: the bits of "amx"
// in fast arithmetic wherever tiles are used.
#include "core/float_formats.h"
#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
// The order matters.
// clang-format off
#include "kernels/simd/vec_generic.h"
#include "kernels/dense/attend_unit.inl"
#include "kernels/simd/fast_generic.h"
#include "kernels/dense/attend_tiles.inl"
#include "kernels/simd/tiles_soft.h"
#include "kernels/isa/rest_of.inl"
// clang-format on

using Rest = RestOf<kGenericIsa>;

void attend_fast(const AttendUnit& unit) {
  fits_tiles(unit) ? TileAttention<SoftTiles>(unit).run() : Rest::attend(unit);
}

}  // namespace

const Isa kSoftAmxIsa = {"amx_soft",   Rest::attend, attend_fast, Rest::fold,
                         Rest::finish, Rest::merge,  Rest::sum,   multiply<SoftTiles>};

}  // namespace shadowgraph
