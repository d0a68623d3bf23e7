// The two products with the machine's bf16 dot product (vdpbf16ps: two bf16 products added to an
// f32), for units whose q, K and V are bf16. Included after attend.inl by the unit that has it.
//
// P is rounded to bf16 for the product with V; the sum of weights sees it as it was. Where a row
// sees one token of a pair, that token is added alone: which way a pair goes follows from the row's
// own mask, so a row's bits are still its own.

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
/// Two bf16 products a lane, added to the sum. Pairs travel as bits in a Vec.
Vec dot_pairs(Vec sum, Vec a, Vec b) {
  return {
      _mm512_dpbf16_ps(sum.x, reinterpret_cast<__m512bh>(a.x), reinterpret_cast<__m512bh>(b.x))};
}

struct DotProducts {
  static constexpr int kPair = 2, kBytes = 2;
  static constexpr int kStep = 1;  // a pair of bf16 in a float's place

  template <int R, int N, int Parts = kPair>
  static SG_INLINE void step(Sums<R, N>& sums, const float* a, int64_t row, int64_t,
                             const std::byte* const (&b)[N], int64_t offset) {
    if constexpr (Parts == 1) {
      for (int r = 0; r < R; ++r) single<R, N, 0>(sums, r, a[r * row], b, offset);
    } else {
      Vec lanes[N];
      for (int n = 0; n < N; ++n) lanes[n] = load_f32(b[n] + offset);
      for (int r = 0; r < R; ++r) {
        const Vec x = set1(a[r * row]);
        for (int n = 0; n < N; ++n) sums.at[r][n] = dot_pairs(sums.at[r][n], x, lanes[n]);
      }
    }
  }

  template <int R, int N, int Part>
  static SG_INLINE void token(Sums<R, N>& sums, const float* a, int64_t row,
                              const std::byte* const (&b)[N], int64_t offset) {
    for (int r = 0; r < R; ++r) single<R, N, Part>(sums, r, a[r * row], b, offset);
  }

 private:
  template <int R, int N, int Part>
  static SG_INLINE void single(Sums<R, N>& sums, int r, float pair, const std::byte* const (&b)[N],
                               int64_t offset) {
    const uint32_t bits = Part == 0 ? bits_of(pair) << 16 : bits_of(pair) & 0xffff0000u;
    const Vec x = {_mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(bits)))};
    for (int n = 0; n < N; ++n)
      sums.at[r][n] = fma(x, BF16Format::lanes<Part>(b[n] + offset), sums.at[r][n]);
  }
};

struct DotArithmetic {
  static const StripCode& code(PanelFormat) { return kStripCode<DotProducts>; }
  static bool narrow(int64_t) { return true; }
  static constexpr bool kReadsRows = false;

  static int64_t q_floats(const AttendUnit& u) { return (u.k.head_dim + 1) / 2; }
  static const float* load_q(const AttendUnit& u, const std::byte* q, float* row) {
    row[u.k.head_dim / 2] = 0;
    std::memcpy(row, q, static_cast<size_t>(u.k.head_dim) * 2);
    return row;
  }

  template <int N>
  static SG_INLINE void exp2(Vec (&x)[N]) {
    exp2_fast(x);
  }
  static void store_weights(float* row, int64_t panel, Vec weights) {
    store_weights_bf16(row, panel, weights);
  }
  static Vec rescaled(Vec x) { return x; }
};
