// Body of a unit, in an anonymous namespace, after kLanes: floats in a register. Contraction is on
// in these files alone: a * b + c is one instruction where there is one.

typedef float Floats __attribute__((vector_size(4 * kLanes), may_alias));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes), may_alias));

Floats all(float x) { return Floats{} + x; }

/// A value that the compiler does not know.
float hidden(float x) {
  __asm__ volatile("" : "+m"(x));
  return x;
}

template <int kRegisters>
float multiply_add(int64_t iterations) {
  Floats sums[kRegisters];
  const Floats a = all(hidden(0.5f)), b = all(hidden(1));
  for (int i = 0; i < kRegisters; ++i) sums[i] = all(hidden(static_cast<float>(i)));
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 32
    for (int i = 0; i < kRegisters; ++i) sums[i] = sums[i] * a + b;
  }
  Floats total{};
  for (int i = 0; i < kRegisters; ++i) total += sums[i];
  return total[0];
}

template <int kRegisters>
constexpr FlopVariant fma_variant(const char* name) {
  return {name, 2.0 * kRegisters * kLanes, multiply_add<kRegisters>};
}

constexpr int kLine = 64;
constexpr int kVectorsPerLine = kLine / static_cast<int>(sizeof(Ints));

/// Into which cache a read prefetches: the last argument of __builtin_prefetch, or nothing.
constexpr int kNoPrefetch = -1, kNta = 0, kT1 = 2, kT0 = 3;

/// Unrolled over kLines cache lines.
template <int kLines, int kTarget>
uint64_t read(const std::byte* data, int64_t bytes, int64_t ahead) {
  constexpr int kVectors = kLines * kVectorsPerLine;
  constexpr int kSums = kVectors < 8 ? kVectors : 8;
  Ints sums[kSums] = {};
  for (int64_t at = 0; at < bytes; at += kLines * kLine) {
    const auto* v = reinterpret_cast<const Ints*>(data + at);
#pragma GCC unroll 64
    for (int i = 0; i < kVectors; ++i) {
      if (kTarget != kNoPrefetch && i % kVectorsPerLine == 0) {
        __builtin_prefetch(data + at + ahead + i / kVectorsPerLine * kLine, 0,
                           kTarget < 0 ? 0 : kTarget);
      }
      sums[i % kSums] |= v[i];
    }
  }
  Ints total{};
  for (int i = 0; i < kSums; ++i) total |= sums[i];
  return static_cast<uint64_t>(total[0]);
}

template <int kLines, int kAhead>
void update(std::byte* data, int64_t bytes) {
  constexpr int kVectors = kLines * kVectorsPerLine;
  const Floats one = all(hidden(1));
  for (int64_t at = 0; at < bytes; at += kLines * kLine) {
    auto* v = reinterpret_cast<Floats*>(data + at);
#pragma GCC unroll 64
    for (int i = 0; i < kVectors; ++i) {
      if (kAhead > 0 && i % kVectorsPerLine == 0)
        __builtin_prefetch(data + at + kAhead + i / kVectorsPerLine * kLine, 1, 3);
      v[i] *= one;
    }
  }
}

template <int kLines>
uint64_t gather(const std::byte* data, const int32_t* blocks, int64_t count, int distance) {
  constexpr int kBlock = 4096, kVectors = kLines * kVectorsPerLine;
  Ints sums[4] = {};
  for (int64_t n = 0; n < count; ++n) {
    const int64_t later = n + distance < count ? n + distance : count - 1;
    const std::byte* block = data + int64_t{blocks[n]} * kBlock;
    const std::byte* next = data + int64_t{blocks[later]} * kBlock;
    for (int line = 0; line < kBlock / kLine; line += kLines) {
#pragma GCC unroll 64
      for (int i = 0; i < kLines; ++i) __builtin_prefetch(next + (line + i) * kLine, 0, 2);
      const auto* v = reinterpret_cast<const Ints*>(block + line * kLine);
#pragma GCC unroll 64
      for (int i = 0; i < kVectors; ++i) sums[i % 4] |= v[i];
    }
  }
  return static_cast<uint64_t>((sums[0] | sums[1] | sums[2] | sums[3])[0]);
}

Floats larger(Floats a, Floats b) { return a > b ? a : b; }

Floats exp2(Floats x) {
  x = larger(x, all(kExp2Smallest));
  const Floats shifted = x + kRoundToInt;
  const Floats f = x - (shifted - kRoundToInt);
  Floats y = all(kExp2Poly[0]);
#pragma GCC unroll 8
  for (int i = 1; i < kExp2Terms; ++i) y = y * f + kExp2Poly[i];
  // 2^n, n in the low bits of `shifted`
  const Ints power = ((Ints)shifted << 23) + 0x3f800000;
  return y * (Floats)power;
}

void softmax(SoftmaxRow& row) {
  const int64_t whole = (row.visible + kLanes - 1) / kLanes * kLanes;
  for (int64_t i = row.visible; i < whole; ++i) row.s[i] = -HUGE_VALF;
  auto* s = reinterpret_cast<Floats*>(row.s);
  const int64_t vectors = whole / kLanes;
  Floats largest = all(-HUGE_VALF);
  for (int64_t i = 0; i < vectors; ++i) largest = larger(s[i], largest);
  float m = row.m;
  for (int lane = 0; lane < kLanes; ++lane) {
    const float one = largest[lane] * row.scale;
    m = one > m ? one : m;
  }
  Floats sum{};
  const Floats scale = all(row.scale), minus_m = all(-m), zero{};
  for (int64_t i = 0; i < vectors; ++i) {
    const Floats x = s[i] * scale + minus_m;
    const Floats weight = x < kExp2Smallest ? zero : exp2(x);
    s[i] = weight;
    sum += weight;
  }
  for (int64_t i = whole; i < row.cols; ++i) row.s[i] = 0;
  row.m = m, row.sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) row.sum += sum[lane];
}
