// Any processor: four floats at once, in whatever its vectors are.
#include <cmath>

#include "attn/exp2_poly.h"
#include "bench/units/unit.h"

namespace shadowgraph::bench {
namespace {

constexpr int kLanes = 4;
#include "bench/units/unit.inl"

constexpr ReadVariant kReads[] = {{"16 bytes x 16", false, read<4, kNoPrefetch>},
                                  {"16 bytes x 16, prefetcht0", true, read<4, kT0>}};
constexpr UpdateVariant kUpdates[] = {
    {"16 bytes, 8 lines", update<8, 0>},
    {"16 bytes, 8 lines, prefetch 16 KiB ahead", update<8, 16384>}};
constexpr FlopVariant kFma[] = {fma_variant<6>("x4 6"), fma_variant<10>("x4 10"),
                                fma_variant<12>("x4 12")};

}  // namespace

const Unit kGenericUnit = {"generic", kReads,     2,    kUpdates, 2,
                           gather<8>, gather<64>, kFma, 3,        softmax};

}  // namespace shadowgraph::bench
