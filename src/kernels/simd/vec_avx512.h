// Vec on AVX-512 (F, BW, DQ, VL) with FMA and F16C: see vec_generic.h for what each operation
// means.
struct Vec {
  __m512 x;
};

Vec set1(float a) { return {_mm512_set1_ps(a)}; }
Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
void store(float* p, Vec a) { _mm512_storeu_ps(p, a.x); }
Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.x, b.x)}; }
Vec sub(Vec a, Vec b) { return {_mm512_sub_ps(a.x, b.x)}; }
Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.x, b.x)}; }
Vec div(Vec a, Vec b) { return {_mm512_div_ps(a.x, b.x)}; }
Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.x, b.x, c.x)}; }
Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.x, b.x)}; }
Vec abs(Vec a) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.f), a.x)}; }
Vec copysign(Vec a, Vec b) {
  const __m512 sign = _mm512_set1_ps(-0.f);
  return {_mm512_or_ps(_mm512_andnot_ps(sign, a.x), _mm512_and_ps(sign, b.x))};
}
Vec pow2(Vec shifted) {
  const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(shifted.x), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_set1_epi32(0x3f800000)))};
}
Vec zero_below(Vec x, Vec limit, Vec y) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.x, limit.x, _CMP_NLT_UQ), y.x)};
}
Vec select(uint32_t mask, Vec a, Vec b) {
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(mask), b.x, a.x)};
}
float reduce_max(Vec a) { return _mm512_reduce_max_ps(a.x); }
float reduce_add(Vec a) {
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a.x), _mm512_extractf32x8_ps(a.x, 1));
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
Vec load_f16(const std::byte* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
Vec load_bf16(const std::byte* p) {
  const __m512i wide =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
