// Softmax states of rows: two into one, and a finished row. The same bits on every instruction set.

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

void finish(const FinishRow& f) {
  const Vec weight = set1(f.weight), d = set1(f.d), v_scale = set1(f.v_scale), zero = set1(0);
  const auto size = static_cast<int64_t>(size_of(f.dtype));
  for (int64_t i = 0; i < f.count; i += kPanel) {
    const Vec x = add(mul(div(mul(load(f.o + i), weight), d), v_scale), zero);
    if (i + kPanel <= f.count) {
      store_narrow(f.out + i * size, f.dtype, x);
      continue;
    }
    std::byte narrow[kPanel * 4];
    store_narrow(narrow, f.dtype, x);
    std::memcpy(f.out + i * size, narrow, static_cast<size_t>((f.count - i) * size));
  }
}
