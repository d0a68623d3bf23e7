// Any processor: four floats at once, in whatever its vectors are.
#include <cmath>

#include "attn/exp2_poly.h"
#include "bench/units/unit.h"

namespace shadowgraph::bench {
namespace {

constexpr int kLanes = 4;
#include "bench/units/unit.inl"

constexpr ReadVariant kReads[] = {{"16 bytes x 16", read<4, 0>}};
constexpr FlopVariant kFma[] = {fma_variant<6>("x4 6"), fma_variant<10>("x4 10"),
                                fma_variant<12>("x4 12")};

}  // namespace

const Unit kGenericUnit = {"generic", kReads, 1, gather<8>, gather<64>, kFma, 3, softmax};

}  // namespace shadowgraph::bench
