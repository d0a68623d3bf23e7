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

void finish(const FinishRow& f) {
  const Vec weight = set1(f.weight), d = set1(f.d), v_scale = set1(f.v_scale), zero = set1(0);
  for (int64_t i = 0; i < f.count; i += kPanel) {
    const Vec x = add(mul(div(mul(load(f.o + i), weight), d), v_scale), zero);
    store_part(f.out, f.dtype, i, f.count, x);
  }
}

void sum(const SumRows& s) {
  const Vec weight = set1(s.weight), d = set1(s.d);
  for (int64_t i = 0; i < s.count; i += kPanel) {
    Vec x = set1(0);
    for (int64_t p = 0; p < s.num_parts; ++p) {
      const WeightedRow& part = s.parts[p];
      x = add(x, mul(set1(part.weight), load_part(part.at, part.dtype, i, s.count)));
    }
    store_part(s.out, s.dtype, i, s.count, div(mul(weight, x), d));
  }
}
