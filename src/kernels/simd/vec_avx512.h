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
void store_f16(std::byte* p, Vec a) {
  const __m512i bits = _mm512_castps_si512(a.x);
  const __m512i nan = _mm512_or_si512(_mm512_and_si512(bits, _mm512_set1_epi32(INT32_MIN)),
                                      _mm512_set1_epi32(0x7fc00000));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(a.x, a.x, _CMP_UNORD_Q);
  const __m512 x = _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, is_nan, nan));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
void store_bf16(std::byte* p, Vec a) {
  const __m512i bits = _mm512_castps_si512(a.x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __m512i nan = _mm512_or_si512(_mm512_and_si512(bits, _mm512_set1_epi32(INT32_MIN)),
                                      _mm512_set1_epi32(0x7fc00000));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(a.x, a.x, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_mask_mov_epi32(up, is_nan, nan);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}
