// The functions that fast arithmetic needs beside Vec, in software, with the bits of AVX-512 and
// its BF16 instructions.

constexpr float kLeastNormal = std::numeric_limits<float>::min();

/// a - floor(a), rounded down (vreduceps).
float fraction_of(float a) {
  const float minus_whole = -std::floor(a), f = a + minus_whole, added = f - a;
  const float lost = (a - (f - added)) + (minus_whole - added);  // by the rounding of f: exact
  return lost < 0 ? std::nextafter(f, 0.f) : f;
}

/// x = 2^x for x <= 0, within kExp2FastError (vreduceps, vscalefps): degree 4 on [0, 1), exact at
/// integers.
template <int N>
void exp2_fast(Vec (&x)[N]) {
  for (int i = 0; i < N; ++i) {
    x[i] = each([&](int lane) {
      const float a = x[i].lane[lane];
      if (a == -kInfinity) return 0.f;
      const float whole = std::floor(a), f = fraction_of(a);
      float p = kExp2FastPoly[0];
      for (int k = 1; k < kExp2FastTerms; ++k) p = std::fma(p, f, kExp2FastPoly[k]);
      return whole < -1000 ? 0.f : a != a ? a : std::ldexp(p, static_cast<int>(whole));
    });
  }
}

/// A panel's weights in a row of bf16, to nearest even; subnormals become 0 (vcvtneps2bf16).
void store_weights_bf16(float* row, int64_t panel, const Vec& weights) {
  auto* to = reinterpret_cast<std::byte*>(row) + panel * kPanel * 2;
  store_bf16(to, each([&](int i) {
               const float a = weights.lane[i];
               return std::abs(a) < kLeastNormal ? std::copysign(0.f, a) : a;
             }));
}

/// Subnormals become 0.
Vec flush_subnormals(const Vec& x) {
  return each([&](int i) { return std::abs(x.lane[i]) < kLeastNormal ? 0.f : x.lane[i]; });
}
