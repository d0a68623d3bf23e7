// What a recurrence reads and writes, made ready: vectors of heads to f32, results to their types.
// Doubles are sixteen lanes of plain loops: products of floats are exact in them, so the bits do
// not depend on what a compiler fuses.

constexpr double kNormEps = 1e-6;

/// Lanes in a fixed tree: halves are added, 8, 4, 2, 1.
double sum_of_lanes(double (&lane)[kPanel]) {
  for (int half = kPanel / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  return lane[0];
}

/// x.y over n floats, a multiple of 16.
double dot_in_double(const float* x, const float* y, int32_t n) {
  double lane[kPanel] = {};
  for (int32_t i = 0; i < n; i += kPanel) {
    for (int l = 0; l < kPanel; ++l)
      lane[l] += static_cast<double>(x[i + l]) * static_cast<double>(y[i + l]);
  }
  return sum_of_lanes(lane);
}

/// f(kind) with what t is, known to the compiler.
template <class F>
SG_INLINE void for_type(DType t, const F& f) {
  if (t == DType::kBF16) return f(std::integral_constant<DType, DType::kBF16>());
  if (t == DType::kF16) return f(std::integral_constant<DType, DType::kF16>());
  f(std::integral_constant<DType, DType::kF32>());
}

template <DType T>
SG_INLINE Vec load_as(const std::byte* p) {
  if constexpr (T == DType::kBF16) return load_bf16(p);
  if constexpr (T == DType::kF16) return load_f16(p);
  return load_f32(p);
}
template <DType T>
SG_INLINE void store_as(std::byte* p, Vec x) {
  if constexpr (T == DType::kBF16) return store_bf16(p, x);
  if constexpr (T == DType::kF16) return store_f16(p, x);
  return store_bits(p, x);
}

/// n <= 16 lanes of p; the others 0.
template <DType T>
SG_INLINE Vec load_some(const std::byte* p, int64_t n) {
  if (n >= kPanel) return load_as<T>(p);
  std::byte all[kPanel * 4] = {};
  std::memcpy(all, p, static_cast<size_t>(n) * size_of(T));
  return load_as<T>(all);
}
/// n <= 16 lanes to p.
template <DType T>
SG_INLINE void store_some(std::byte* p, int64_t n, Vec x) {
  if (n >= kPanel) return store_as<T>(p, x);
  std::byte all[kPanel * 4];
  store_as<T>(all, x);
  std::memcpy(p, all, static_cast<size_t>(n) * size_of(T));
}

/// n elements to f32, the last vector filled up with 0.
template <DType T>
SG_INLINE void widen_as(const std::byte* p, int64_t n, float* to) {
  for (int64_t i = 0; i < n; i += kPanel)
    store(to + i, load_some<T>(p + i * static_cast<int64_t>(size_of(T)), n - i));
}

void vectors(const VectorUnit& c) {
  const auto wide = static_cast<int32_t>((c.dim + kPanel - 1) / kPanel * kPanel);
  // All are read before the first is worked on: one token's cache misses would wait for the other's
  // division.
  for_type(c.dtype, [&](auto type) {
    for (int32_t t = 0; t < c.tokens; ++t)
      widen_as<type()>(c.from + t * c.stride, c.dim, c.to + int64_t{t} * wide);
  });
  for (int32_t t = 0; t < c.tokens; ++t) {
    float* to = c.to + int64_t{t} * wide;
    double scale = c.scale;
    if (c.l2norm) scale /= std::sqrt(dot_in_double(to, to, wide) + kNormEps);
    if (scale == 1) continue;
    for (int32_t i = 0; i < wide; i += kPanel) {
      for (int l = 0; l < kPanel; ++l)
        to[i + l] = static_cast<float>(static_cast<double>(to[i + l]) * scale);
    }
  }
}

/// e^x of 16 logarithms not above 0, to a few 2^-24 of itself: what is left of a power of two is
/// found in double.
SG_INLINE Vec exp_lanes(const float* log) {
  constexpr double kLog2E = 1.4426950408889634, kRound = 0x1.8p52;
  float whole[kPanel], rest[kPanel], power[kPanel];
  for (int l = 0; l < kPanel; ++l) {
    const double x = static_cast<double>(log[l]) * kLog2E, n = x + kRound - kRound;
    power[l] = static_cast<float>(x);
    whole[l] = static_cast<float>(n);
    rest[l] = static_cast<float>(x - n);
  }
  const Vec f = load(rest);
  Vec p = set1(kExp2Poly[0]);
  for (int k = 1; k < kExp2Terms; ++k) p = fma(p, f, set1(kExp2Poly[k]));
  return scale_or_zero(p, load(whole), load(power));
}

/// The decays of n channels, padded to 16 with ones.
void channel_decays(const float* log_decay, int32_t n, float* decay) {
  for (int32_t i = 0; i < n; i += kPanel) {
    const auto* from = reinterpret_cast<const std::byte*>(log_decay + i);
    store(decay + i, load_some<DType::kF32>(from, n - i));
    store(decay + i, exp_lanes(decay + i));
  }
}

void token_dots(const TokenDotsUnit& c) {
  for (int32_t t = 0; t < c.tokens; ++t) {
    const int64_t at = int64_t{t} * c.wide;
    c.dots[t] = static_cast<float>(dot_in_double(c.x + at, c.y + at, c.wide));
  }
}

void token(const TokenUnit& c) {
  const auto wide = static_cast<int32_t>((c.dim_k + kPanel - 1) / kPanel * kPanel);
  if (c.log_decay != nullptr) channel_decays(c.log_decay, c.dim_k, c.decay);
  const Vec all = set1(c.decay[0]);
  for (int32_t i = 0; i < wide; i += kPanel) {
    const Vec a = c.log_decay != nullptr ? load(c.decay + i) : all;
    store(c.decayed_q + i, mul(a, load(c.q + i)));
    store(c.decayed_k + i, mul(a, load(c.k + i)));
  }
}

void load_rows(const RowsUnit& c) {
  for_type(c.dtype, [&](auto type) {
    constexpr auto kSize = static_cast<int64_t>(size_of(type()));
    for (int64_t r = 0; r < c.rows; ++r)
      widen_as<type()>(c.at + r * c.stride * kSize, c.columns, c.floats + r * c.floats_stride);
  });
}

void save_rows(const RowsUnit& c) {
  for_type(c.dtype, [&](auto type) {
    constexpr auto kSize = static_cast<int64_t>(size_of(type()));
    for (int64_t r = 0; r < c.rows; ++r) {
      for (int64_t i = 0; i < c.columns; i += kPanel)
        store_some<type()>(c.at + (r * c.stride + i) * kSize, c.columns - i,
                           load(c.floats + r * c.floats_stride + i));
    }
  });
}

void finish_out(const FinishUnit& c) {
  for_type(c.dtype, [&](auto type) {
    constexpr auto kSize = static_cast<int64_t>(size_of(type()));
    for (int32_t i = 0; i < c.dim; i += kPanel) {
      Vec y = load(c.read + i);
      if (c.skip != nullptr) y = fma(set1(*c.skip), load(c.v + i), y);
      store_some<type()>(c.out + i * kSize, c.dim - i, y);
    }
  });
}
