// The two products of a strip of R rows: logits against key panels, weighted sums of value panels.
// A strip's sums stay in registers. Its bits do not depend on R, nor on how many panels are taken
// together: every sum is one chain in the order of the dims, or of the tokens.

/// Floats between two rows' logits (or weights).
constexpr int kTileStride = kMostTile;           // no edge: a stride
constexpr int kTilePanels = kMostTile / kPanel;  // no edge: follows from kMostTile

/// One cache line into the second-level cache: the first would hold up the kernel's own loads
/// (spec performance 5.2).
SG_INLINE void prefetch(const std::byte* p) {
  __builtin_prefetch(p, 0, 2);
  asm volatile("");  // gcc drops calls of functions that do nothing but prefetch
}

/// The panels of one tile; `ahead` is what will be read when this has been: the same bytes of it
/// are asked for while a panel is read (of what is there already, where there is nothing).
struct Panels {
  const std::byte* at[kTilePanels];
  const std::byte* ahead[kTilePanels];
  int64_t row_step = 0;  // values that lie token by token: bytes from one to the next; else 0
};

/// logits[r][16 p ..] = scale * q.k for panels p .. p + N - 1; largest[r] takes them in, lane by
/// lane.
template <class Products, int R, int N>
SG_INLINE void logits_of_panels(const float* q, int64_t head_dim, const float* scales,
                                const Panels& keys, int64_t p, float* logits, Vec (&largest)[R]) {
  constexpr int64_t kStepBytes = int64_t{kPanel} * Products::kPair * Products::kBytes;
  constexpr int64_t kSteps = kStepBytes >= 64 ? 1 : 64 / kStepBytes;  // of one cache line
  constexpr int64_t kA = int64_t{Products::kStep} * R;
  const std::byte *b[N], *ahead[N];
  for (int n = 0; n < N; ++n) b[n] = keys.at[p + n], ahead[n] = keys.ahead[p + n];
  Sums<R, N> sums;
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) sums.at[r][n] = set1(0);
  }
  const int64_t steps = head_dim / Products::kPair;
  int64_t i = 0;
  for (; i + kSteps <= steps; i += kSteps) {
    for (int n = 0; n < N; ++n) prefetch(ahead[n] + i * kStepBytes);
    for (int64_t s = i; s < i + kSteps; ++s)
      Products::template step<R, N>(sums, q + s * kA, 1, R, b, s * kStepBytes);
  }
  for (; i < steps; ++i) Products::template step<R, N>(sums, q + i * kA, 1, R, b, i * kStepBytes);
  // The other half of the last pair is padding.
  if (head_dim % Products::kPair != 0)
    Products::template step<R, N, 1>(sums, q + i * kA, 1, R, b, i * kStepBytes);
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) {
      const Vec logit = mul(sums.at[r][n], load(scales + (p + n) * kPanel));
      largest[r] = max(largest[r], logit);
      store(logits + r * kTileStride + (p + n) * kPanel, logit);
    }
  }
}

/// The logits of panels [first, last]; largest[r] is the largest of row r, whatever the row sees.
template <class Products, int R>
void logits_of_strip(const float* q, int64_t head_dim, const float* scales, const Panels& keys,
                     int64_t first, int64_t last, float* logits, float* largest) {
  Vec most[R];
  for (int r = 0; r < R; ++r) most[r] = set1(-kInfinity);
  int64_t p = first;
  if constexpr (strip_vecs(R) >= 4) {
    for (; p + 3 <= last; p += 4)
      logits_of_panels<Products, R, 4>(q, head_dim, scales, keys, p, logits, most);
  }
  if constexpr (strip_vecs(R) >= 2) {
    for (; p + 1 <= last; p += 2)
      logits_of_panels<Products, R, 2>(q, head_dim, scales, keys, p, logits, most);
  }
  for (; p <= last; ++p)
    logits_of_panels<Products, R, 1>(q, head_dim, scales, keys, p, logits, most);
  for (int r = 0; r < R; ++r) largest[r] = reduce_max(most[r]);
}

/// A block of a value panel's dims, [16 / kPair][width][kPair].
struct ValueBlock {
  struct Place {
    int64_t offset = 0;  // bytes from the panel's start
    int64_t step = 0;    // bytes of a row: of a token, or a pair of them
  };
  Place at, ahead;
};

/// o[r][16 N dims] += weights * values, tokens [begin, end) of the tile, whole pairs.
template <class Products, int R, int N>
SG_INLINE void values_of_dims(const float* weights, const Panels& values, ValueBlock block,
                              int64_t begin, int64_t end, float* o, int64_t o_stride) {
  constexpr int64_t kVecBytes = int64_t{kPanel} * Products::kPair * Products::kBytes;
  Sums<R, N> sums;
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) sums.at[r][n] = load(o + r * o_stride + n * kPanel);
  }
  for (int64_t t = begin; t < end;) {
    const int64_t panel = t / kPanel, stop = smaller(end, (panel + 1) * kPanel);
    const int64_t row = t % kPanel / Products::kPair;
    const std::byte* from = values.at[panel] + block.at.offset + row * block.at.step;
    const std::byte* ahead = values.ahead[panel] + block.ahead.offset + row * block.ahead.step;
    const float* a = weights + t / Products::kPair * Products::kStep;
    for (; t < stop; t += Products::kPair) {
      for (int64_t line = 0; line < N * kVecBytes; line += 64) prefetch(ahead + line);
      const std::byte* b[N];
      for (int n = 0; n < N; ++n) b[n] = from + n * kVecBytes;
      Products::template step<R, N>(sums, a, kTileStride, 1, b, 0);
      from += block.at.step, ahead += block.ahead.step, a += Products::kStep;
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) store(o + r * o_stride + n * kPanel, sums.at[r][n]);
  }
}

template <int N>
using Const = std::integral_constant<int, N>;

/// fn(N, block, dim): all dims of a value panel, N vectors at a time.
template <class Products, int R, class Fn>
SG_INLINE void for_each_dims(int64_t head_dim, int64_t row_step, const Fn& fn) {
  constexpr int64_t kSize = int64_t{Products::kPair} * Products::kBytes;
  const int64_t padded = round_up(head_dim, kPanel);
  for (int64_t first = 0; first < padded; first += kValueBlockDims) {
    const int64_t width = smaller(kValueBlockDims, padded - first);
    const int64_t base = first * kPanel * Products::kBytes;
    int64_t i = 0;
    const auto take = [&](auto vecs) SG_INLINE_LAMBDA {
      constexpr int kVecs = decltype(vecs)::value;
      for (; i + kVecs * kPanel <= width; i += kVecs * kPanel) {
        const ValueBlock::Place panel{base + i * kSize, width * kSize};
        const ValueBlock::Place rows{(first + i) * kSize, row_step};
        fn(vecs, ValueBlock{row_step != 0 ? rows : panel, panel}, first + i);
      }
    };
    if constexpr (strip_vecs(R) >= 4) take(Const<4>{});
    if constexpr (strip_vecs(R) >= 2) take(Const<2>{});
    take(Const<1>{});
  }
}

template <class Products, int R>
void values_of_strip(const float* weights, const Panels& values, int64_t head_dim, int64_t begin,
                     int64_t end, float* o, int64_t o_stride) {
  for_each_dims<Products, R>(head_dim, values.row_step,
                             [&](auto vecs, ValueBlock block, int64_t dim) SG_INLINE_LAMBDA {
                               values_of_dims<Products, R, decltype(vecs)::value>(
                                   weights, values, block, begin, end, o + dim, o_stride);
                             });
}

/// Rows of one token onto the keys of one panel that `bits` names.
template <class Products, int R>
void values_of_panel(const float* weights, const Panels& values, int64_t panel, uint32_t bits,
                     int64_t head_dim, float* o, int64_t o_stride) {
  constexpr int64_t kVecBytes = int64_t{kPanel} * Products::kPair * Products::kBytes;
  for_each_dims<Products, R>(
      head_dim, values.row_step, [&](auto vecs, ValueBlock block, int64_t dim) SG_INLINE_LAMBDA {
        constexpr int N = decltype(vecs)::value;
        const std::byte* b[N];
        for (int n = 0; n < N; ++n) b[n] = values.at[panel] + block.at.offset + n * kVecBytes;
        Sums<R, N> sums;
        for (int r = 0; r < R; ++r) {
          for (int n = 0; n < N; ++n) sums.at[r][n] = load(o + r * o_stride + dim + n * kPanel);
        }
        for (int64_t t = 0; t < kPanel; t += Products::kPair) {
          const uint32_t seen = bits >> t & ((1u << Products::kPair) - 1);
          const float* a = weights + (panel * kPanel + t) / Products::kPair * Products::kStep;
          const int64_t offset = t / Products::kPair * block.at.step;
          if (seen == (1u << Products::kPair) - 1) {
            Products::template step<R, N>(sums, a, kTileStride, 1, b, offset);
          } else if (seen == 1) {
            Products::template token<R, N, 0>(sums, a, kTileStride, b, offset);
          } else if (seen == 2) {
            Products::template token<R, N, Products::kPair - 1>(sums, a, kTileStride, b, offset);
          }
        }
        for (int r = 0; r < R; ++r) {
          for (int n = 0; n < N; ++n) store(o + r * o_stride + dim + n * kPanel, sums.at[r][n]);
        }
      });
}
