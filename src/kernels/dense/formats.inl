// What a panel's elements are: how 16 of them become floats while they are read. A step of a panel
// is one index of the sum, or a pair of them (bf16), in 16 lanes: of a key panel dims x tokens, of
// a value panel tokens x dims.

struct F32Format {
  static constexpr int kPair = 1, kBytes = 4;
  template <int Part>
  static SG_INLINE Vec lanes(const std::byte* step) {
    return load_f32(step);
  }
};

struct F16Format {
  static constexpr int kPair = 1, kBytes = 2;
  template <int Part>
  static SG_INLINE Vec lanes(const std::byte* step) {
    return load_f16(step);
  }
};

struct BF16Format {
  static constexpr int kPair = 2, kBytes = 2;
  /// Part 0 is the first of the pair.
  template <int Part>
  static SG_INLINE Vec lanes(const std::byte* step) {
    return Part == 0 ? load_bf16_low(step) : load_bf16_high(step);
  }
};

/// A token's own row: no pairs.
struct BF16RowsFormat {
  static constexpr int kPair = 1, kBytes = 2;
  template <int Part>
  static SG_INLINE Vec lanes(const std::byte* step) {
    return load_bf16(step);
  }
};

struct E4M3Format {
  static constexpr int kPair = 1, kBytes = 1;
  template <int Part>
  static SG_INLINE Vec lanes(const std::byte* step) {
    return load_e4m3(step);
  }
};

struct E5M2Format {
  static constexpr int kPair = 1, kBytes = 1;
  template <int Part>
  static SG_INLINE Vec lanes(const std::byte* step) {
    return load_e5m2(step);
  }
};

/// The token's scale comes with the logits, or the weights.
struct I8Format {
  static constexpr int kPair = 1, kBytes = 1;
  template <int Part>
  static SG_INLINE Vec lanes(const std::byte* step) {
    return load_i8(step);
  }
};
