// Vec on AVX2, FMA and F16C, as two halves of eight: see vec_generic.h for what each operation
// means.
struct Vec {
  __m256 lo, hi;
};

Vec set1(float a) { return {_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
void store(float* p, Vec a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
Vec sub(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
Vec mul(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
Vec div(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
Vec abs(Vec a) {
  const __m256 sign = _mm256_set1_ps(-0.f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
Vec copysign(Vec a, Vec b) {
  const __m256 sign = _mm256_set1_ps(-0.f);
  const Vec magnitude = abs(a);
  return {_mm256_or_ps(magnitude.lo, _mm256_and_ps(sign, b.lo)),
          _mm256_or_ps(magnitude.hi, _mm256_and_ps(sign, b.hi))};
}
__m256 pow2_half(__m256 shifted) {
  const __m256i n = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(n, _mm256_set1_epi32(0x3f800000)));
}
Vec pow2(Vec shifted) { return {pow2_half(shifted.lo), pow2_half(shifted.hi)}; }
Vec zero_below(Vec x, Vec limit, Vec y) {
  return {_mm256_and_ps(_mm256_cmp_ps(x.lo, limit.lo, _CMP_NLT_UQ), y.lo),
          _mm256_and_ps(_mm256_cmp_ps(x.hi, limit.hi, _CMP_NLT_UQ), y.hi)};
}
__m256 select_half(uint32_t mask, __m256 a, __m256 b) {
  const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(mask)), bit);
  return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bit)));
}
Vec select(uint32_t mask, Vec a, Vec b) {
  return {select_half(mask, a.lo, b.lo), select_half(mask >> 8, a.hi, b.hi)};
}
float reduce_max(Vec a) {
  const __m256 m8 = _mm256_max_ps(a.lo, a.hi);
  const __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
  const __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
  return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
}
float reduce_add(Vec a) {
  const __m256 s8 = _mm256_add_ps(a.lo, a.hi);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
Vec load_f16(const std::byte* p) {
  const auto* halves = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
Vec load_bf16(const std::byte* p) {
  const auto* halves = reinterpret_cast<const __m128i*>(p);
  const __m256i lo = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves));
  const __m256i hi = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves + 1));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
}
/// bits, with a plain NaN of the same sign where x is one.
__m256i plain_nan(__m256 x, __m256i bits) {
  const __m256 sign = _mm256_and_ps(x, _mm256_set1_ps(-0.f));
  const __m256 nan = _mm256_or_ps(sign, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)));
  return _mm256_castps_si256(
      _mm256_blendv_ps(_mm256_castsi256_ps(bits), nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
__m128i f16_half(__m256 x) {
  return _mm256_cvtps_ph(_mm256_castsi256_ps(plain_nan(x, _mm256_castps_si256(x))),
                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
void store_f16(std::byte* p, Vec a) {
  auto* halves = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(halves, f16_half(a.lo));
  _mm_storeu_si128(halves + 1, f16_half(a.hi));
}
__m256i bf16_half(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  return _mm256_srli_epi32(plain_nan(x, up), 16);
}
void store_bf16(std::byte* p, Vec a) {
  const __m256i both = _mm256_packus_epi32(bf16_half(a.lo), bf16_half(a.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(both, 0xd8));
}
