// The probes and the softmax of the peers for AVX-512.
#include <cmath>

#include "attn/exp2_poly.h"
#include "bench/units/unit.h"

namespace shadowgraph::bench {
namespace {

constexpr int kLanes = 16;
#include "bench/units/unit.inl"

constexpr ReadVariant kReads[] = {
    {"zmm, 1 line", false, read<1, kNoPrefetch>},
    {"zmm, 4 lines", false, read<4, kNoPrefetch>},
    {"zmm, 8 lines", false, read<8, kNoPrefetch>},
    {"zmm, 16 lines", false, read<16, kNoPrefetch>},
    {"zmm, 8 lines, prefetcht0", true, read<8, kT0>},
    {"zmm, 8 lines, prefetcht1", true, read<8, kT1>},
    {"zmm, 8 lines, prefetchnta", true, read<8, kNta>},
};
constexpr UpdateVariant kUpdates[] = {{"zmm, 8 lines", update<8, 0>},
                                      {"zmm, 8 lines, prefetch 16 KiB ahead", update<8, 16384>}};
constexpr FlopVariant kFma[] = {fma_variant<8>("zmm, 8 sums"), fma_variant<12>("zmm, 12 sums"),
                                fma_variant<16>("zmm, 16 sums"), fma_variant<24>("zmm, 24 sums")};

}  // namespace

const Unit kAvx512Unit = {"avx512",  kReads,     7,    kUpdates, 2,
                          gather<8>, gather<64>, kFma, 4,        softmax};

}  // namespace shadowgraph::bench
