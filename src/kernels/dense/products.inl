// What one step of a panel adds to a strip's sums: chains of fused multiply-adds, over any format.
// (The bf16 dot product is another such policy, in dot_bf16.inl.)
//
// a holds the strip's own side of the product, a[step][row] with any row stride: q for the logits,
// the weights for the values. b holds N vectors of 16 lanes, at one offset each.

template <int R, int N>
struct Sums {
  Vec at[R][N];
};

template <class Format>
struct FmaProducts {
  static constexpr int kPair = Format::kPair, kBytes = Format::kBytes;
  /// Floats of `a` that a step takes, a row.
  static constexpr int kStep = Format::kPair;

  /// The first `Parts` of a pair; apart: floats from one part of a to the next.
  template <int R, int N, int Parts = kPair>
  static SG_INLINE void step(Sums<R, N>& sums, const float* a, int64_t row, int64_t apart,
                             const std::byte* const (&b)[N], int64_t offset) {
    part<R, N, 0>(sums, a, row, b, offset);
    if constexpr (Parts == 2) part<R, N, 1>(sums, a + apart, row, b, offset);
  }

  /// One token of the pair at `offset`.
  template <int R, int N, int Part>
  static SG_INLINE void token(Sums<R, N>& sums, const float* a, int64_t row,
                              const std::byte* const (&b)[N], int64_t offset) {
    part<R, N, Part>(sums, a + Part, row, b, offset);
  }

 private:
  template <int R, int N, int Part>
  static SG_INLINE void part(Sums<R, N>& sums, const float* a, int64_t row,
                             const std::byte* const (&b)[N], int64_t offset) {
    Vec lanes[N];
    for (int n = 0; n < N; ++n) lanes[n] = Format::template lanes<Part>(b[n] + offset);
    for (int r = 0; r < R; ++r) {
      const Vec x = set1(a[r * row]);
      for (int n = 0; n < N; ++n) sums.at[r][n] = fma(x, lanes[n], sums.at[r][n]);
    }
  }
};
