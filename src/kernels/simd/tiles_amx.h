// The products of tiles by the processor's tile unit (AMX-BF16): see tiles_soft.h for what they
// mean.

/// Tiles 0 to 3 hold sums, two rows of tiles by two columns; 4 and 5 rows of a, 6 and 7 columns of
/// b. They belong to the thread.
class AmxTiles {
 public:
  void set_rows(int64_t rows) {
    if (rows == rows_) return;
    rows_ = rows;
    const auto upper = static_cast<uint8_t>(smaller(rows, kAmxRows));
    const auto lower = static_cast<uint8_t>(larger(rows - kAmxRows, 1));
    struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {};
    } config;
    const uint8_t tile_rows[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
    std::memcpy(config.rows, tile_rows, sizeof tile_rows);
    settle_memory(&config);
    _tile_loadconfig(&config);
  }
  // No destructor: it would bring exceptions into an object that may share nothing.
  void release() { _tile_release(); }

  template <int Columns, class Between>
  SG_INLINE void product(const TileProduct& p, const Between& between) const {
    rows_ > kAmxRows ? product<2, Columns>(p, between) : product<1, Columns>(p, between);
  }

 private:
  /// The intrinsics are assembly that does not say which memory it reads and writes: all is as the
  /// code has it, this too.
  static void settle_memory(const void* of) { asm volatile("" : : "r"(of) : "memory"); }

  template <int Rows, int Columns, class Between>
  static SG_INLINE void product(const TileProduct& p, const Between& between) {
    settle_memory(p.c);
    const auto stride = static_cast<size_t>(p.c_stride) * sizeof(float);
    float* lower = p.c + kAmxRows * p.c_stride;
    if (p.add) {
      _tile_loadd(0, p.c, stride);
      if constexpr (Columns > 1) _tile_loadd(1, p.c + kPanel, stride);
      if constexpr (Rows > 1) _tile_loadd(2, lower, stride);
      if constexpr (Rows > 1 && Columns > 1) _tile_loadd(3, lower + kPanel, stride);
    } else {
      _tile_zero(0);
      if constexpr (Columns > 1) _tile_zero(1);
      if constexpr (Rows > 1) _tile_zero(2);
      if constexpr (Rows > 1 && Columns > 1) _tile_zero(3);
    }
    const std::byte *a = p.a, *b0 = p.b[0], *b1 = p.b[1];
    for (int64_t k = 0; k < p.steps; ++k, a += kAmxRowBytes, b0 += p.b_step) {
      _tile_loadd(4, a, static_cast<size_t>(p.a_stride));
      if constexpr (Rows > 1)
        _tile_loadd(5, a + kAmxRows * p.a_stride, static_cast<size_t>(p.a_stride));
      _tile_loadd(6, b0, kAmxRowBytes);
      if constexpr (Columns > 1) {
        _tile_loadd(7, b1, kAmxRowBytes);
        b1 += p.b_step;
      }
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (Columns > 1) _tile_dpbf16ps(1, 4, 7);
      if constexpr (Rows > 1) _tile_dpbf16ps(2, 5, 6);
      if constexpr (Rows > 1 && Columns > 1) _tile_dpbf16ps(3, 5, 7);
      between();
    }
    _tile_stored(0, p.c, stride);
    if constexpr (Columns > 1) _tile_stored(1, p.c + kPanel, stride);
    if constexpr (Rows > 1) _tile_stored(2, lower, stride);
    if constexpr (Rows > 1 && Columns > 1) _tile_stored(3, lower + kPanel, stride);
    settle_memory(p.c);
  }

  int64_t rows_ = 0;
};
