// The products of tiles in software, with the bits of tdpbf16ps: in a lane the even and the odd
// terms are two chains of fused multiply-adds from 0, added, then added to the sum; every result is
// rounded to nearest even, and subnormals are 0, as operands and as results.

class SoftTiles {
 public:
  /// Rows of a and c of the next products, 1 to kAmxStripRows.
  void set_rows(int64_t rows) { rows_ = rows; }
  /// No product comes after this.
  void release() {}

  /// between() runs after each step: work that the tile unit does not wait for.
  template <int Columns, class Between>
  void product(const TileProduct& p, const Between& between) const {
    float sums[kAmxStripRows][Columns * kPanel] = {};
    for (int64_t r = 0; p.add && r < rows_; ++r)
      std::memcpy(sums[r], p.c + r * p.c_stride, sizeof sums[r]);
    for (int64_t k = 0; k < p.steps; ++k) {
      for (int64_t r = 0; r < rows_; ++r) {
        for (int n = 0; n < Columns; ++n)
          add_dots(p.a + r * p.a_stride + k * kAmxRowBytes, p.b[n] + k * p.b_step,
                   sums[r] + n * kPanel);
      }
      between();
    }
    for (int64_t r = 0; r < rows_; ++r) std::memcpy(p.c + r * p.c_stride, sums[r], sizeof sums[r]);
  }

 private:
  static float flush(float x) { return std::abs(x) < kLeastNormal ? std::copysign(0.f, x) : x; }
  static float element(const std::byte* row, int64_t i) {
    return flush(load_float(row, DType::kBF16, i));
  }
  /// A result is subnormal if it is so before its exponent is bounded: rounded among subnormals it
  /// may seem to be the least normal number.
  static float multiply_add(float a, float b, float c) {
    constexpr float kUp = 0x1p64f;
    const float sum = std::fma(a, b, c);
    if (std::abs(sum) != kLeastNormal) return flush(sum);
    const float scaled = std::fma(a * kUp, b, c * kUp);
    return std::abs(scaled) < kLeastNormal * kUp ? std::copysign(0.f, sum) : sum;
  }
  static void add_dots(const std::byte* a, const std::byte* b, float* sums) {
    for (int lane = 0; lane < kPanel; ++lane) {
      float even = 0, odd = 0;
      for (int64_t i = 0; i < kPanel; ++i) {
        const std::byte* pair = b + i * kAmxRowBytes + int64_t{4} * lane;
        even = multiply_add(element(a, 2 * i), element(pair, 0), even);
        odd = multiply_add(element(a, 2 * i + 1), element(pair, 1), odd);
      }
      sums[lane] = flush(flush(sums[lane]) + flush(even + odd));
    }
  }

  int64_t rows_ = 0;
};
