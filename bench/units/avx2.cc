// The probes and the softmax of the peers for AVX2.
#include <cmath>

#include "attn/exp2_poly.h"
#include "bench/units/unit.h"

namespace shadowgraph::bench {
namespace {

constexpr int kLanes = 8;
#include "bench/units/unit.inl"

constexpr ReadVariant kReads[] = {{"ymm, 4 lines", false, read<4, kNoPrefetch>},
                                  {"ymm, 8 lines", false, read<8, kNoPrefetch>},
                                  {"ymm, 8 lines, prefetcht0", true, read<8, kT0>},
                                  {"ymm, 8 lines, prefetcht1", true, read<8, kT1>},
                                  {"ymm, 8 lines, prefetchnta", true, read<8, kNta>}};
constexpr UpdateVariant kUpdates[] = {{"ymm, 8 lines", update<8, 0>},
                                      {"ymm, 8 lines, prefetch 16 KiB ahead", update<8, 16384>}};
constexpr FlopVariant kFma[] = {fma_variant<8>("ymm, 8 sums"), fma_variant<10>("ymm, 10 sums"),
                                fma_variant<12>("ymm, 12 sums")};

}  // namespace

const Unit kAvx2Unit = {"avx2", kReads, 5, kUpdates, 2, gather<8>, gather<64>, kFma, 3, softmax};

}  // namespace shadowgraph::bench
