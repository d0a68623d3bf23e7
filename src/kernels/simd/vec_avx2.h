// Vec on AVX2, FMA and F16C, as two halves of eight: see vec_generic.h for what each operation
// means.
constexpr int kStripRows = 6, kWideStripRows = 6;  // edge: query_rows
constexpr int strip_vecs(int) { return 1; }
constexpr bool kFullStrips = true;

constexpr int kTileRows = 4, kTileVecs = 1;  // edge: query_rows, channels

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
/// x / d.
struct Divisor {
  float d;
  Vec quotient(Vec x) const { return div(x, set1(d)); }
};
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
uint32_t infinite(Vec x) {
  const __m256 infinity = _mm256_set1_ps(std::numeric_limits<float>::infinity());
  const auto half = [&](__m256 a) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, infinity, _CMP_EQ_OQ)));
  };
  const Vec magnitude = abs(x);
  return half(magnitude.lo) | half(magnitude.hi) << 8;
}
Vec round_int(Vec x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.lo, kNearest), _mm256_round_ps(x.hi, kNearest)};
}
__m256 scale_half(__m256 p, __m256 n, __m256 x) {
  const __m256i power = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  const __m256i scale = _mm256_add_epi32(power, _mm256_set1_epi32(0x3f800000));
  const __m256 kept = _mm256_cmp_ps(x, _mm256_set1_ps(kExp2Smallest), _CMP_NLT_UQ);
  return _mm256_and_ps(kept, _mm256_mul_ps(p, _mm256_castsi256_ps(scale)));
}
Vec scale_or_zero(Vec p, Vec n, Vec x) {
  return {scale_half(p.lo, n.lo, x.lo), scale_half(p.hi, n.hi, x.hi)};
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
Vec load_f32(const std::byte* p) { return load(reinterpret_cast<const float*>(p)); }
void stream_half_line(std::byte* to, const std::byte* from) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to),
                      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
void store_bits(std::byte* p, Vec a) { store(reinterpret_cast<float*>(p), a); }
/// e4m3 is an f16 of 2^-8 times the value, but for its NaN.
__m256 e4m3_half(__m128i bytes) {
  const __m128i x = _mm_cvtepi8_epi16(bytes), low = _mm_and_si128(x, _mm_set1_epi16(0x7f));
  const __m128i half =
      _mm_or_si128(_mm_and_si128(x, _mm_set1_epi16(INT16_MIN)), _mm_slli_epi16(low, 7));
  const __m256 value = _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256));
  const __m256i nan = _mm256_cmpeq_epi32(_mm256_cvtepu16_epi32(low), _mm256_set1_epi32(0x7f));
  const __m256i sign = _mm256_and_si256(_mm256_castps_si256(value), _mm256_set1_epi32(INT32_MIN));
  const __m256i plain = _mm256_or_si256(sign, _mm256_set1_epi32(0x7ff00000));
  return _mm256_blendv_ps(value, _mm256_castsi256_ps(plain), _mm256_castsi256_ps(nan));
}
Vec load_e4m3(const std::byte* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {e4m3_half(bytes), e4m3_half(_mm_srli_si128(bytes, 8))};
}
/// e5m2 is the upper half of an f16.
Vec load_e5m2(const std::byte* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i zero = _mm_setzero_si128();
  return {_mm256_cvtph_ps(_mm_unpacklo_epi8(zero, bytes)),
          _mm256_cvtph_ps(_mm_unpackhi_epi8(zero, bytes))};
}
Vec load_i8(const std::byte* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
__m256i load_bits(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
Vec load_bf16_low(const std::byte* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(load_bits(p), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(load_bits(p + 32), 16))};
}
Vec load_bf16_high(const std::byte* p) {
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(load_bits(p), upper)),
          _mm256_castsi256_ps(_mm256_and_si256(load_bits(p + 32), upper))};
}
__m256 pairs_half(__m128i first, __m128i second) {
  const __m256i high = _mm256_slli_epi32(_mm256_cvtepu16_epi32(second), 16);
  return _mm256_castsi256_ps(_mm256_or_si256(_mm256_cvtepu16_epi32(first), high));
}
Vec bf16_pairs(const std::byte* first, const std::byte* second) {
  const auto* a = reinterpret_cast<const __m128i*>(first);
  const auto* b = reinterpret_cast<const __m128i*>(second);
  return {pairs_half(_mm_loadu_si128(a), _mm_loadu_si128(b)),
          pairs_half(_mm_loadu_si128(a + 1), _mm_loadu_si128(b + 1))};
}
void transpose_half(__m256 (&x)[8]) {
  __m256 t[8], s[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      s[i + 2 * j] = _mm256_shuffle_ps(t[i + j], t[i + 2 + j], 0x44);
      s[i + 2 * j + 1] = _mm256_shuffle_ps(t[i + j], t[i + 2 + j], 0xee);
    }
  }
  for (int c = 0; c < 4; ++c) {
    x[c] = _mm256_permute2f128_ps(s[c], s[4 + c], 0x20);
    x[c + 4] = _mm256_permute2f128_ps(s[c], s[4 + c], 0x31);
  }
}
SG_INLINE void transpose(Vec (&x)[16]) {
  __m256 a[8], b[8], c[8], d[8];
  for (int i = 0; i < 8; ++i)
    a[i] = x[i].lo, b[i] = x[i].hi, c[i] = x[i + 8].lo, d[i] = x[i + 8].hi;
  transpose_half(a), transpose_half(b), transpose_half(c), transpose_half(d);
  for (int i = 0; i < 8; ++i) x[i] = {a[i], c[i]}, x[i + 8] = {b[i], d[i]};
}
uint32_t nonzero_bytes(const uint8_t* p) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const int zero = _mm_movemask_epi8(_mm_cmpeq_epi8(x, _mm_setzero_si128()));
  return ~static_cast<uint32_t>(zero) & 0xffffu;
}
