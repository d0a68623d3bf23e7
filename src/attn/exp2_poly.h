// 2^f on [-1/2, 1/2] as 1 + f g(f): g interpolates (2^f - 1) / f at the Chebyshev nodes of degree
// 5, rounded to f32. Error below 0.2 ulp before the rounding of the Horner steps. Highest power
// first; the last is 1, so 2^0 is exact. `constexpr`, not `inline`: the ISA units may not share
// symbols.
#pragma once

namespace shadowgraph {

constexpr int kExp2Terms = 7;
constexpr float kExp2Poly[kExp2Terms] = {0x1.44138ap-13f,
                                         0x1.5f0890p-10f,
                                         0x1.3b2a54p-7f,
                                         0x1.c6af6cp-5f,
                                         0x1.ebfbe0p-3f,
                                         0x1.62e430p-1f,
                                         1.0f};
/// 2^f on [0, 1], likewise of degree 4, for weights that are rounded to bf16: relative error below
/// kExp2FastError.
constexpr int kExp2FastTerms = 5;
constexpr float kExp2FastPoly[kExp2FastTerms] = {0x1.a238c2p-7f, 0x1.b5c9f6p-5f, 0x1.ecd85cp-3f,
                                                 0x1.62e276p-1f, 1.0f};
constexpr double kExp2FastError = 0x1p-17;
/// Adding 1.5 * 2^23 rounds a small float to an integer, which then stands in the low bits.
constexpr float kRoundToInt = 0x1.8p23f;
/// Below this, 2^x is taken as 0: every tier then agrees on what subnormals do.
constexpr float kExp2Smallest = -126.0f;

}  // namespace shadowgraph
