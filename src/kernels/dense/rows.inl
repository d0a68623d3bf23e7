// Softmax states of rows: two into one, a finished row, and finished rows into one. The same bits
// on every instruction set.

void fold_row(const FoldRows& f, int64_t r) {
  const float m = f.into.m[r], part = f.part.m[r];
  if (part == -kInfinity) return;
  // Not "part > m": a NaN must not vanish.
  const float top = part <= m ? m : part;
  float factors[kPanel];
  store(factors,
        exp2_vec(select(1, set1(m == -kInfinity ? -kInfinity : m - top), set1(part - top))));
  const Vec of_into = set1(factors[0]), of_part = set1(factors[1]);
  f.into.m[r] = top;
  float d[kPanel];
  store(d, fma(of_part, set1(f.part.d[r]), mul(of_into, set1(f.into.d[r]))));
  f.into.d[r] = d[0];
  float* into = f.into.o + r * f.o_stride;
  const float* from = f.part.o + r * f.o_stride;
  for (int64_t i = 0; i < f.o_stride; i += kPanel)
    store(into + i, fma(of_part, load(from + i), mul(of_into, load(into + i))));
}

void fold(const FoldRows& f) {
  for (int64_t r = 0; r < f.rows; ++r) fold_row(f, r);
}

/// Elements i to i + 15 of count, as far as there are so many.
SG_INLINE void store_part(std::byte* out, DType t, int64_t i, int64_t count, Vec x) {
  const auto size = static_cast<int64_t>(size_of(t));
  if (i + kPanel <= count) return store_narrow(out + i * size, t, x);
  std::byte narrow[kPanel * 4];
  store_narrow(narrow, t, x);
  std::memcpy(out + i * size, narrow, static_cast<size_t>((count - i) * size));
}
SG_INLINE Vec load_part(const std::byte* from, DType t, int64_t i, int64_t count) {
  const auto size = static_cast<int64_t>(size_of(t));
  if (i + kPanel <= count) return load16(from + i * size, t);
  std::byte rest[kPanel * 4] = {};
  std::memcpy(rest, from + i * size, static_cast<size_t>((count - i) * size));
  return load16(rest, t);
}

/// fn(the type as a constant): code of its own for each type of a result.
template <class Fn>
SG_INLINE void of_type(DType t, const Fn& fn) {
  if (t == DType::kF32) return fn(std::integral_constant<DType, DType::kF32>{});
  if (t == DType::kF16) return fn(std::integral_constant<DType, DType::kF16>{});
  fn(std::integral_constant<DType, DType::kBF16>{});
}

void finish(const FinishRow& f) {
  const Vec weight = set1(f.weight), v_scale = set1(f.v_scale), zero = set1(0);
  const Divisor d{f.d};
  // The compiler takes what is stored for a change of f: what it reads in the loop lies beside it.
  const float* const o = f.o;
  std::byte* const out = f.out;
  const int64_t whole = f.count / kPanel * kPanel;
  const auto at = [=](int64_t i) SG_INLINE_LAMBDA {
    return add(mul(d.quotient(mul(load(o + i), weight)), v_scale), zero);
  };
  of_type(f.dtype, [=](auto type) SG_INLINE_LAMBDA {
    constexpr DType kType = decltype(type)::value;
    constexpr auto kSize = static_cast<int64_t>(size_of(kType));
    for (int64_t i = 0; i < whole; i += kPanel) store_narrow(out + i * kSize, kType, at(i));
  });
  if (whole < f.count) store_part(out, f.dtype, whole, f.count, at(whole));
}

/// log_portable (attn/lse.h) of 16 normal numbers, with its bits. No branch and no comparison, so
/// that the compiler makes vectors of it. Of 0 it makes a finite number.
SG_INLINE void logs(const float (&x)[kPanel], double (&log)[kPanel]) {
  // m = x / 2^exponent in [sqrt(1/2), sqrt(2)): bits less those of sqrt(1/2) have the exponent on
  // top.
  constexpr uint64_t kBits = 52, kBias = 1023;  // no edge: bits of a number
  constexpr auto kLow = std::bit_cast<uint64_t>(0.70710678118654752440);
  // Small integers as the lowest bits of a double: not every processor converts 64 bits.
  constexpr double kInteger = 0x1p52;
  for (int i = 0; i < kPanel; ++i) {
    const auto bits = std::bit_cast<uint64_t>(static_cast<double>(x[i]));
    const uint64_t biased = (bits - kLow + (kBias << kBits)) >> kBits;
    const auto m = std::bit_cast<double>(bits - ((biased - kBias) << kBits));
    const double exponent = std::bit_cast<double>(std::bit_cast<uint64_t>(kInteger) | biased) -
                            (kInteger + static_cast<double>(kBias));
    const double t = (m - 1) / (m + 1), t2 = t * t;
    double sum = 0;
    for (int k = 21; k >= 3; k -= 2) sum = (sum + 1.0 / k) * t2;
    log[i] = 2 * t * (1 + sum) + exponent * kLn2;
  }
}

/// Element by element as attn/lse.h has it for one row.
void merge(const MergeRows& r) {
  const Vec none = set1(-kInfinity), zero = set1(0);
  const auto part = [&](int64_t p) SG_INLINE_LAMBDA { return load(r.lse + p * kPanel); };
  Vec m = none;
  for (int64_t p = 0; p < r.num_parts; ++p) m = max(select(infinite(part(p)), none, part(p)), m);
  Vec sum = zero;
  for (int64_t p = 0; p < r.num_parts; ++p) {
    const Vec weight = exp2_vec(mul(sub(part(p), m), set1(r.to_base2)));
    const Vec counted = select(infinite(part(p)), zero, weight);
    store(r.weights + p * kPanel, counted);
    sum = add(sum, counted);
  }
  float largest[kPanel], d[kPanel], merged[kPanel];
  store(largest, m), store(d, sum);
  double log[kPanel];
  logs(d, log);
  for (int i = 0; i < kPanel; ++i)
    merged[i] = static_cast<float>(static_cast<double>(largest[i]) + log[i] * r.of_natural);
  store(r.d, sum), store(r.merged, load(merged));
}

/// kSide vectors side by side, which share the way to a part. load_vec(part, i), store_vec(i, x):
/// elements i to i + 15. Returns where they end.
template <int kSide, class Load, class Store>
SG_INLINE int64_t sum_vectors(const SumRows& s, int64_t i, int64_t end, const Load& load_vec,
                              const Store& store_vec) {
  const Vec weight = set1(s.weight), d = set1(s.d);
  const WeightedRow* const parts = s.parts;
  const int64_t num_parts = s.num_parts;
  for (; i + kSide * kPanel <= end; i += kSide * kPanel) {
    Vec x[kSide];
    for (Vec& one : x) one = set1(0);
    for (int64_t p = 0; p < num_parts; ++p) {
      const Vec of_part = set1(parts[p].weight);
      for (int j = 0; j < kSide; ++j)
        x[j] = add(x[j], mul(of_part, load_vec(parts[p], i + j * kPanel)));
    }
    for (int j = 0; j < kSide; ++j) store_vec(i + j * kPanel, div(mul(weight, x[j]), d));
  }
  return i;
}

/// Whole vectors where all parts are of one type. Returns where they end.
template <DType kType>
SG_INLINE int64_t sum_of_one_type(const SumRows& s) {
  constexpr auto kSize = static_cast<int64_t>(size_of(kType));
  std::byte* const out = s.out;
  const int64_t count = s.count;
  const auto load_vec = [](const WeightedRow& part, int64_t i)
                            SG_INLINE_LAMBDA { return load16(part.at + i * kSize, kType); };
  const auto all = [&](const auto& store_vec) SG_INLINE_LAMBDA {
    const int64_t i = sum_vectors<4>(s, 0, count, load_vec, store_vec);
    return sum_vectors<1>(s, i, count, load_vec, store_vec);
  };
  if (!s.stream) {
    return all([=](int64_t i, Vec x) SG_INLINE_LAMBDA { store_narrow(out + i * kSize, kType, x); });
  }
  return all([=](int64_t i, Vec x) SG_INLINE_LAMBDA {
    alignas(32) std::byte narrow[64];
    store_narrow(narrow, kType, x);
    for (int64_t half = 0; half < kPanel * kSize; half += 32)
      stream_half_line(out + i * kSize + half, narrow + half);
  });
}

void sum(const SumRows& s) {
  bool one_type = true;
  for (int64_t p = 0; p < s.num_parts; ++p) one_type = one_type && s.parts[p].dtype == s.dtype;
  int64_t begin = 0;
  if (one_type) {
    of_type(s.dtype,
            [&](auto type) SG_INLINE_LAMBDA { begin = sum_of_one_type<decltype(type)::value>(s); });
  }
  const int64_t end = round_up(s.count, kPanel);
  if (begin == end) return;
  sum_vectors<1>(
      s, begin, end,
      [&](const WeightedRow& part, int64_t i)
          SG_INLINE_LAMBDA { return load_part(part.at, part.dtype, i, s.count); },
      [&](int64_t i, Vec x) SG_INLINE_LAMBDA { store_part(s.out, s.dtype, i, s.count, x); });
}
