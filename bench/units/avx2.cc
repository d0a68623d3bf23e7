// The probes and the softmax of the peers for AVX2.
#include <cmath>

#include "attn/exp2_poly.h"
#include "bench/units/unit.h"

namespace shadowgraph::bench {
namespace {

constexpr int kLanes = 8;
#include "bench/units/unit.inl"

constexpr ReadVariant kReads[] = {{"ymm, 4 lines", read<4, 0>}, {"ymm, 8 lines", read<8, 0>}};
constexpr UpdateVariant kUpdates[] = {{"ymm, 8 lines", update<8, 0>},
                                      {"ymm, 8 lines, prefetch 16 KiB ahead", update<8, 16384>}};
constexpr FlopVariant kFma[] = {fma_variant<8>("ymm, 8 sums"), fma_variant<10>("ymm, 10 sums"),
                                fma_variant<12>("ymm, 12 sums")};

}  // namespace

const Unit kAvx2Unit = {"avx2", kReads, 2, kUpdates, 2, gather<8>, gather<64>, kFma, 3, softmax};

}  // namespace shadowgraph::bench
