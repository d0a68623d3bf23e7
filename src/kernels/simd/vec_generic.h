// Vec: 16 floats, element by element. Any machine; std::fma is exact everywhere, and slow without
// hardware for it. The vector policy: every vec_*.h gives the same names with the same results, bit
// for bit. Included by one instruction-set unit only, inside its unnamed namespace.
/// Rows of a strip, and vectors of 16 that so many rows take together: their product is how many
/// sums the registers hold. More rows read a panel less often; where a head has few, strips of
/// kWideStripRows at most take more vectors.
constexpr int kStripRows = 2, kWideStripRows = 2;
constexpr int strip_vecs(int) { return 1; }
/// Are all registers in use only where a strip is full? Then it may end within a token's group.
constexpr bool kFullStrips = false;

/// Rows by vectors of the sums that a product of tiles holds in registers; kTileRows divides 16.
constexpr int kTileRows = 2, kTileVecs = 1;

struct Vec {
  float lane[16];
};

template <class F>
Vec each(const F& f) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.lane[i] = f(i);
  return r;
}

Vec set1(float x) {
  return each([=](int) { return x; });
}
Vec load(const float* p) {
  return each([=](int i) { return p[i]; });
}
void store(float* p, const Vec& a) {
  for (int i = 0; i < 16; ++i) p[i] = a.lane[i];
}
Vec add(const Vec& a, const Vec& b) {
  return each([&](int i) { return a.lane[i] + b.lane[i]; });
}
Vec sub(const Vec& a, const Vec& b) {
  return each([&](int i) { return a.lane[i] - b.lane[i]; });
}
Vec mul(const Vec& a, const Vec& b) {
  return each([&](int i) { return a.lane[i] * b.lane[i]; });
}
Vec div(const Vec& a, const Vec& b) {
  return each([&](int i) { return a.lane[i] / b.lane[i]; });
}
/// a * b + c, rounded once.
Vec fma(const Vec& a, const Vec& b, const Vec& c) {
  return each([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
}
/// x / d.
struct Divisor {
  float d;
  Vec quotient(const Vec& x) const { return div(x, set1(d)); }
};
/// a > b ? a : b, so b where either is NaN (as maxps does).
Vec max(const Vec& a, const Vec& b) {
  return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
Vec abs(const Vec& a) {
  return each([&](int i) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(a.lane[i]) & 0x7fffffffu);
  });
}
/// Magnitude of a, sign of b.
Vec copysign(const Vec& a, const Vec& b) {
  return each([&](int i) {
    return std::bit_cast<float>((std::bit_cast<uint32_t>(a.lane[i]) & 0x7fffffffu) |
                                (std::bit_cast<uint32_t>(b.lane[i]) & 0x80000000u));
  });
}
/// Bit i: is lane i an infinity?
uint32_t infinite(const Vec& x) {
  uint32_t bits = 0;
  for (int i = 0; i < 16; ++i) bits |= (std::isinf(x.lane[i]) ? 1u : 0u) << i;
  return bits;
}
/// The nearest integer, ties to even, of |x| < 2^22.
Vec round_int(const Vec& x) {
  return each([&](int i) { return x.lane[i] + kRoundToInt - kRoundToInt; });
}
/// p * 2^n where x >= kExp2Smallest or x is NaN, else 0; n an integer of -126 to 127, where p
/// counts.
Vec scale_or_zero(const Vec& p, const Vec& n, const Vec& x) {
  return each([&](int i) {
    if (x.lane[i] < kExp2Smallest) return 0.f;
    const uint32_t shifted = std::bit_cast<uint32_t>(n.lane[i] + kRoundToInt);
    return p.lane[i] * std::bit_cast<float>((shifted << 23) + 0x3f800000u);
  });
}
/// Lane i: bit i of mask ? a : b.
Vec select(uint32_t mask, const Vec& a, const Vec& b) {
  return each([&](int i) { return mask >> i & 1 ? a.lane[i] : b.lane[i]; });
}
float reduce_max(const Vec& a) {
  float r = a.lane[0];
  for (int i = 1; i < 16; ++i) r = a.lane[i] > r ? a.lane[i] : r;
  return r;
}
/// The sum as a fixed tree: halves are added lane by lane, 8, 4, 2, 1.
float reduce_add(Vec a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.lane[i] += a.lane[i + half];
  }
  return a.lane[0];
}
Vec load_f16(const std::byte* p) {
  return each([=](int i) { return load_float(p, DType::kF16, i); });
}
Vec load_bf16(const std::byte* p) {
  return each([=](int i) { return load_float(p, DType::kBF16, i); });
}
/// To nearest even; a NaN becomes the type's plain one with its sign.
void store_f16(std::byte* p, const Vec& a) {
  for (int i = 0; i < 16; ++i) store_float(p, DType::kF16, i, a.lane[i]);
}
void store_bf16(std::byte* p, const Vec& a) {
  for (int i = 0; i < 16; ++i) store_float(p, DType::kBF16, i, a.lane[i]);
}
Vec load_f32(const std::byte* p) {
  Vec r;
  std::memcpy(r.lane, p, sizeof r.lane);
  return r;
}
/// Half a cache line, past the caches.
void stream_half_line(std::byte* to, const std::byte* from) { std::memcpy(to, from, 32); }
void store_bits(std::byte* p, const Vec& a) { std::memcpy(p, a.lane, sizeof a.lane); }
Vec load_e4m3(const std::byte* p) {
  return each([=](int i) { return kE4M3Values[static_cast<uint8_t>(p[i])]; });
}
Vec load_e5m2(const std::byte* p) {
  return each([=](int i) { return kE5M2Values[static_cast<uint8_t>(p[i])]; });
}
Vec load_i8(const std::byte* p) {
  return each([=](int i) { return static_cast<float>(static_cast<int8_t>(p[i])); });
}
/// The first, and the second, of 16 pairs of bf16.
Vec load_bf16_low(const std::byte* p) {
  return each([=](int i) { return load_float(p, DType::kBF16, 2 * i); });
}
Vec load_bf16_high(const std::byte* p) {
  return each([=](int i) { return load_float(p, DType::kBF16, 2 * i + 1); });
}
/// 16 pairs of bf16, as bits: of the elements at `first` and those at `second`.
Vec bf16_pairs(const std::byte* first, const std::byte* second) {
  Vec r;
  auto* pairs = reinterpret_cast<std::byte*>(r.lane);
  for (int i = 0; i < 16; ++i) {
    std::memcpy(pairs + 4 * i, first + 2 * i, 2);
    std::memcpy(pairs + 4 * i + 2, second + 2 * i, 2);
  }
  return r;
}
/// Rows become columns.
SG_INLINE void transpose(Vec (&x)[16]) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < i; ++j) std::swap(x[i].lane[j], x[j].lane[i]);
  }
}
/// Bit i: is byte i not 0?
uint32_t nonzero_bytes(const uint8_t* p) {
  uint32_t bits = 0;
  for (int i = 0; i < 16; ++i) bits |= (p[i] != 0 ? 1u : 0u) << i;
  return bits;
}
