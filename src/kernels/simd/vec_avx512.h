// Vec on AVX-512 (F, BW, DQ, VL) with FMA and F16C: see vec_generic.h for what each operation
// means.
constexpr int kStripRows = 8, kWideStripRows = 6;  // edge: query_rows
constexpr int strip_vecs(int rows) { return rows <= kWideStripRows ? 4 : 2; }
constexpr bool kFullStrips = false;

constexpr int kTileRows = 8, kTileVecs = 2;  // edge: query_rows, channels

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
// Inline: else gcc 12 fails on a weight that is one fma.
SG_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.x, b.x, c.x)}; }
/// x / d of many x, with the bits of division, which takes up to 16 clocks where a product takes
/// one. With y = RN(1 / d), q = RN(x y) is within 1.5 ulp of x / d, and RN(q + y RN(x - q d)) is
/// RN(x / d) unless x / d is within 7 / 2^25 ulp of a tie: isa_test.cc tries quotients so near, of
/// every 17th odd divisor. The numbers must neither over- nor underflow meanwhile.
class Divisor {
 public:
  explicit Divisor(float d)
      : d_(set1(d)),
        minus_d_(set1(-d)),
        reciprocal_(set1(1 / d)),
        moderate_(d >= 0x1p-60f && d <= 0x1p60f ? 0xffff : 0) {}

  Vec quotient(Vec x) const {
    // 2^-63 <= |x| < 2^65 where the bits of x plus 2^29 have bit 30.
    const __m512i moved = _mm512_add_epi32(_mm512_castps_si512(x.x), _mm512_set1_epi32(1 << 29));
    const __mmask16 moderate =
        _mm512_mask_test_epi32_mask(moderate_, moved, _mm512_set1_epi32(1 << 30));
    if (__builtin_expect(moderate != 0xffff, 0)) return div(x, d_);
    const Vec q = mul(x, reciprocal_);
    return fma(fma(q, minus_d_, x), reciprocal_, q);
  }

 private:
  Vec d_, minus_d_, reciprocal_;
  __mmask16 moderate_;
};
Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.x, b.x)}; }
Vec abs(Vec a) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.f), a.x)}; }
Vec copysign(Vec a, Vec b) {
  const __m512 sign = _mm512_set1_ps(-0.f);
  return {_mm512_or_ps(_mm512_andnot_ps(sign, a.x), _mm512_and_ps(sign, b.x))};
}
uint32_t infinite(Vec x) {
  constexpr int kInfinities = 0x08 | 0x10;  // no edge: bits
  return _mm512_fpclass_ps_mask(x.x, kInfinities);
}
Vec round_int(Vec x) { return {_mm512_roundscale_ps(x.x, _MM_FROUND_TO_NEAREST_INT)}; }
Vec scale_or_zero(Vec p, Vec n, Vec x) {
  const __mmask16 kept = _mm512_cmp_ps_mask(x.x, _mm512_set1_ps(kExp2Smallest), _CMP_NLT_UQ);
  return {_mm512_maskz_scalef_ps(kept, p.x, n.x)};
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
Vec load_f32(const std::byte* p) { return {_mm512_loadu_ps(p)}; }
void stream_half_line(std::byte* to, const std::byte* from) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to),
                      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
void store_bits(std::byte* p, Vec a) { _mm512_storeu_ps(p, a.x); }
/// e4m3 is an f16 of 2^-8 times the value, but for its NaN.
Vec load_e4m3(const std::byte* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
  const __m256i half = _mm256_and_si256(shifted, _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
  const __m512 value = _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256));
  const __m128i all_ones = _mm_set1_epi8(0x7f);
  const __mmask16 nan = _mm_cmpeq_epi8_mask(_mm_and_si128(bytes, all_ones), all_ones);
  if (__builtin_expect(nan == 0, 1)) return {value};
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i sign = _mm512_and_si512(bits, _mm512_set1_epi32(INT32_MIN));
  const __m512i plain = _mm512_or_si512(sign, _mm512_set1_epi32(0x7ff00000));
  return {_mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, nan, plain))};
}
/// e5m2 is the upper half of an f16.
Vec load_e5m2(const std::byte* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8))};
}
Vec load_i8(const std::byte* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
Vec load_bf16_low(const std::byte* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))};
}
Vec load_bf16_high(const std::byte* p) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), upper))};
}
Vec bf16_pairs(const std::byte* first, const std::byte* second) {
  const auto wide = [](const std::byte* p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  };
  return {_mm512_castsi512_ps(_mm512_or_si512(wide(first), _mm512_slli_epi32(wide(second), 16)))};
}
SG_INLINE void transpose(Vec (&x)[16]) {
  __m512 t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(x[i].x, x[i + 1].x);
    t[i + 1] = _mm512_unpackhi_ps(x[i].x, x[i + 1].x);
  }
  const auto pairs = [](__m512 a) { return _mm512_castps_pd(a); };
  __m512 s[16];
  for (int i = 0; i < 16; i += 4) {
    for (int j = 0; j < 2; ++j) {
      const __m512d low = pairs(t[i + j]), high = pairs(t[i + 2 + j]);
      s[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
      s[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
    }
  }
  // s[4 q + c]: columns c, c + 4, c + 8, c + 12 of rows 4 q .. 4 q + 3, one a quarter.
  for (int c = 0; c < 4; ++c) {
    const __m512 even0 = _mm512_shuffle_f32x4(s[c], s[4 + c], 0x88);
    const __m512 even1 = _mm512_shuffle_f32x4(s[8 + c], s[12 + c], 0x88);
    const __m512 odd0 = _mm512_shuffle_f32x4(s[c], s[4 + c], 0xdd);
    const __m512 odd1 = _mm512_shuffle_f32x4(s[8 + c], s[12 + c], 0xdd);
    x[c].x = _mm512_shuffle_f32x4(even0, even1, 0x88);
    x[c + 4].x = _mm512_shuffle_f32x4(odd0, odd1, 0x88);
    x[c + 8].x = _mm512_shuffle_f32x4(even0, even1, 0xdd);
    x[c + 12].x = _mm512_shuffle_f32x4(odd0, odd1, 0xdd);
  }
}
uint32_t nonzero_bytes(const uint8_t* p) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm_test_epi8_mask(x, x);
}
