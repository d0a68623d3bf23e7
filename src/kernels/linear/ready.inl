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

void vectors(const VectorUnit& c) {
  const auto wide = static_cast<int32_t>((c.dim + kPanel - 1) / kPanel * kPanel);
  for (int32_t t = 0; t < c.tokens; ++t) {
    float* to = c.to + int64_t{t} * wide;
    widen(c.from + t * c.stride, c.dtype, c.dim, to);
    double scale = c.scale;
    if (c.l2norm) scale /= std::sqrt(dot_in_double(to, to, wide) + kNormEps);
    if (scale == 1) continue;
    for (int32_t i = 0; i < wide; i += kPanel) {
      for (int l = 0; l < kPanel; ++l)
        to[i + l] = static_cast<float>(static_cast<double>(to[i + l]) * scale);
    }
  }
}

/// n <= 16 lanes to p as t.
void store_some(std::byte* p, DType t, int64_t n, Vec x) {
  if (n >= kPanel) return store_narrow(p, t, x);
  std::byte all[kPanel * 4];
  store_narrow(all, t, x);
  std::memcpy(p, all, static_cast<size_t>(n) * size_of(t));
}

/// n lanes of p, the others 0.
Vec load_some(const std::byte* p, DType t, int64_t n) {
  if (n >= kPanel) return load16(p, t);
  std::byte all[kPanel * 4] = {};
  std::memcpy(all, p, static_cast<size_t>(n) * size_of(t));
  return load16(all, t);
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

/// Of n channels to decay, which is padded to 16 with ones.
void channel_decays(const float* log_decay, int32_t n, float* decay) {
  for (int32_t i = 0; i < n; i += kPanel) {
    const auto* from = reinterpret_cast<const std::byte*>(log_decay + i);
    store(decay + i, load_some(from, DType::kF32, n - i));
    store(decay + i, exp_lanes(decay + i));
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
  *c.kq = static_cast<float>(dot_in_double(c.k, c.q, wide));
}

void load_rows(const RowsUnit& c) {
  const auto size = static_cast<int64_t>(size_of(c.dtype));
  for (int64_t r = 0; r < c.rows; ++r)
    widen(c.at + r * c.stride * size, c.dtype, c.columns, c.floats + r * c.floats_stride);
}

void save_rows(const RowsUnit& c) {
  const auto size = static_cast<int64_t>(size_of(c.dtype));
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t i = 0; i < c.columns; i += kPanel) {
      store_some(c.at + (r * c.stride + i) * size, c.dtype, c.columns - i,
                 load(c.floats + r * c.floats_stride + i));
    }
  }
}

void finish_out(const FinishUnit& c) {
  const auto size = static_cast<int64_t>(size_of(c.dtype));
  for (int32_t i = 0; i < c.dim; i += kPanel) {
    Vec y = load(c.read + i);
    if (c.skip != nullptr) y = fma(set1(*c.skip), load(c.v + i), y);
    store_some(c.out + i * size, c.dtype, c.dim - i, y);
  }
}
