// Functions of vectors, from the operations of vec_*.h alone: the same bits on every instruction
// set. Included by an instruction-set unit inside its unnamed namespace.

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/// x = 2^x for x <= 0, 0 below kExp2Smallest. Several side by side: one alone is all latency.
template <int N>
SG_INLINE void exp2_each(Vec (&x)[N]) {
  Vec n[N], f[N], p[N];
  for (int i = 0; i < N; ++i) n[i] = round_int(x[i]);
  for (int i = 0; i < N; ++i) f[i] = sub(x[i], n[i]), p[i] = set1(kExp2Poly[0]);
  for (int k = 1; k < kExp2Terms; ++k) {
    for (int i = 0; i < N; ++i) p[i] = fma(p[i], f[i], set1(kExp2Poly[k]));
  }
  for (int i = 0; i < N; ++i) x[i] = scale_or_zero(p[i], n[i], x[i]);
}

Vec exp2_vec(Vec x) {
  Vec one[1] = {x};
  exp2_each(one);
  return one[0];
}

/// (1 - t) / (1 + t) with t = e^(-2|x|): absolute error a few 2^-24, no overflow.
Vec tanh_vec(Vec x) {
  const Vec t = exp2_vec(mul(abs(x), set1(-2.885390081777927f)));
  const Vec one = set1(1);
  return copysign(div(sub(one, t), add(one, t)), x);
}

/// 16 elements as f32.
Vec load16(const std::byte* p, DType t) {
  switch (t) {
    case DType::kF16: return load_f16(p);
    case DType::kBF16: return load_bf16(p);
    case DType::kE4M3: return load_e4m3(p);
    case DType::kE5M2: return load_e5m2(p);
    case DType::kI8: return load_i8(p);
    default: return load_f32(p);
  }
}

/// 16 floats as t, rounded to nearest even; a NaN becomes the type's plain one with its sign.
void store_narrow(std::byte* p, DType t, Vec x) {
  if (t == DType::kF16) return store_f16(p, x);
  if (t == DType::kBF16) return store_bf16(p, x);
  store_bits(p, x);
}

/// n elements to f32; out has room for round_up(n, 16), the rest is 0. Reads no byte past element
/// n.
void widen(const std::byte* p, DType t, int64_t n, float* out) {
  const auto size = static_cast<int64_t>(size_of(t));
  int64_t i = 0;
  for (; i + kPanel <= n; i += kPanel) store(out + i, load16(p + i * size, t));
  if (i == n) return;
  std::byte rest[kPanel * 4] = {};
  std::memcpy(rest, p + i * size, static_cast<size_t>((n - i) * size));
  store(out + i, load16(rest, t));
}
