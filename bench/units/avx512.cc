// The probes and the softmax of the peers for AVX-512.
#include <cmath>

#include "attn/exp2_poly.h"
#include "bench/units/unit.h"

namespace shadowgraph::bench {
namespace {

constexpr int kLanes = 16;
#include "bench/units/unit.inl"

constexpr ReadVariant kReads[] = {
    {"zmm, 1 line", read<1, 0>},
    {"zmm, 4 lines", read<4, 0>},
    {"zmm, 8 lines", read<8, 0>},
    {"zmm, 16 lines", read<16, 0>},
    {"zmm, 4 lines, prefetch 2 KiB ahead", read<4, 2048>},
    {"zmm, 8 lines, prefetch 4 KiB ahead", read<8, 4096>},
};
constexpr UpdateVariant kUpdates[] = {{"zmm, 8 lines", update<8, 0>},
                                      {"zmm, 8 lines, prefetch 16 KiB ahead", update<8, 16384>}};
constexpr FlopVariant kFma[] = {fma_variant<8>("zmm, 8 sums"), fma_variant<12>("zmm, 12 sums"),
                                fma_variant<16>("zmm, 16 sums"), fma_variant<24>("zmm, 24 sums")};

}  // namespace

const Unit kAvx512Unit = {"avx512",  kReads,     6,    kUpdates, 2,
                          gather<8>, gather<64>, kFma, 4,        softmax};

}  // namespace shadowgraph::bench
