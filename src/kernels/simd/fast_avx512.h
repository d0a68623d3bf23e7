// The functions that fast arithmetic needs beside Vec, on AVX-512 with BF16: see fast_generic.h for
// what each means.

template <int N>
SG_INLINE void exp2_fast(Vec (&x)[N]) {
  constexpr int kFraction = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  Vec f[N], p[N];
  for (int i = 0; i < N; ++i)
    f[i].x = _mm512_reduce_ps(x[i].x, kFraction), p[i] = set1(kExp2FastPoly[0]);
  for (int k = 1; k < kExp2FastTerms; ++k) {
    for (int i = 0; i < N; ++i) p[i] = fma(p[i], f[i], set1(kExp2FastPoly[k]));
  }
  for (int i = 0; i < N; ++i) x[i].x = _mm512_scalef_ps(p[i].x, x[i].x);
}

void store_weights_bf16(float* row, int64_t panel, Vec weights) {
  const auto narrow = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(weights.x));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + panel * kPanel / 2), narrow);
}

Vec flush_subnormals(Vec x) {
  const __mmask16 normal =
      _mm512_cmp_ps_mask(abs(x).x, _mm512_set1_ps(std::numeric_limits<float>::min()), _CMP_NLT_UQ);
  return {_mm512_maskz_mov_ps(normal, x.x)};
}
