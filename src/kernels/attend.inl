// The online softmax of a block of rows over a range of keys: one body for every instruction set.
// Included by an instruction-set unit inside its unnamed namespace, after a vec_*.h.
//
// Arithmetic (portable). K is packed as panels of 16 tokens, [head_dim][16], so that a logit is one
// chain of fused multiply-adds over the head dim, and needs no horizontal sum; a weighted value is
// one chain over the tokens in order; the sum of weights is kept lane by lane. Nothing in a row's
// chain depends on other rows or on the vector width, so neither do its bits. Masked pairs are
// skipped, never multiplied by zero.
//
// How the two products are made is a policy, F32Products here: how a tile of q, K and V is packed,
// one logit panel, and the weighted sum. A unit with a faster dot product brings its own
// (products_bf16.inl).

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Keys begin <= k < end of one tile.
struct KvBounds {
  int64_t begin, end;
};

int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

Vec exp2_vec(Vec x) {
  const Vec magic = set1(kRoundToInt);
  const Vec shifted = add(x, magic);
  const Vec f = sub(x, sub(shifted, magic));
  Vec p = set1(kExp2Poly[0]);
  for (int i = 1; i < kExp2Terms; ++i) p = fma(p, f, set1(kExp2Poly[i]));
  return zero_below(x, set1(kExp2Smallest), mul(p, pow2(shifted)));
}

/// (1 - t) / (1 + t) with t = e^(-2|x|): absolute error a few 2^-24, no overflow.
Vec tanh_vec(Vec x) {
  const Vec t = exp2_vec(mul(abs(x), set1(-2.885390081777927f)));
  const Vec one = set1(1);
  return copysign(div(sub(one, t), add(one, t)), x);
}

/// One element of fp8 as f32, from a table.
float load_fp8(const std::byte* p, DType t) {
  const auto bits = static_cast<uint8_t>(*p);
  return t == DType::kE4M3 ? kE4M3Values[bits] : kE5M2Values[bits];
}

/// 16 elements as f32.
Vec load16(const std::byte* p, DType t) {
  switch (t) {
    case DType::kF16: return load_f16(p);
    case DType::kBF16: return load_bf16(p);
    case DType::kF32: {
      float values[kPanel];
      std::memcpy(values, p, sizeof values);
      return load(values);
    }
    default: {
      float values[kPanel];
      for (int i = 0; i < kPanel; ++i) values[i] = load_fp8(p + i, t);
      return load(values);
    }
  }
}

/// 16 floats as t, rounded to nearest even; a NaN becomes the type's plain one with its sign.
void store_narrow(std::byte* p, DType t, Vec x) {
  if (t == DType::kF16) return store_f16(p, x);
  if (t == DType::kBF16) return store_bf16(p, x);
  float values[kPanel];
  store(values, x);
  std::memcpy(p, values, sizeof values);
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

const std::byte* token_address(const AttendUnit& u, const KvTokens& kv, int64_t token) {
  const int64_t element = token_offset(kv, u.page_ids, u.page_size, token);
  return kv.data + element * static_cast<int64_t>(size_of(kv.dtype));
}

/// Rows of q, K and V as f32; chains of fused multiply-adds.
struct F32Products {
  static void pack_q(const AttendUnit& u, const std::byte* q, float* row) {
    widen(q, u.q_dtype, u.k.head_dim, row);
  }

  /// Keys [begin, end) of the tile, as panels [head_dim][16]; `row` is room for one widened key.
  static void pack_k(const AttendUnit& u, int64_t tile, KvBounds keys, float* panels, float* row) {
    const int64_t dim = u.k.head_dim;
    const int64_t first = (keys.begin - tile) / kPanel, last = (keys.end - 1 - tile) / kPanel;
    for (int64_t i = first * kPanel * dim; i < (last + 1) * kPanel * dim; i += kPanel)
      store(panels + i, set1(0));
    for (int64_t token = keys.begin; token < keys.end; ++token) {
      widen(token_address(u, u.k, token), u.k.dtype, dim, row);
      float* panel = panels + (token - tile) / kPanel * kPanel * dim + (token - tile) % kPanel;
      for (int64_t i = 0; i < dim; ++i) panel[i * kPanel] = row[i];
    }
  }

  /// q.k of one row with the 16 keys of panel p.
  static Vec dot(const AttendUnit& u, const float* q, const float* panels, int64_t p) {
    const float* panel = panels + p * kPanel * u.k.head_dim;
    Vec sum = set1(0);
    for (int64_t i = 0; i < u.k.head_dim; ++i) sum = fma(set1(q[i]), load(panel + i * kPanel), sum);
    return sum;
  }

  static void pack_v(const AttendUnit& u, int64_t tile, KvBounds keys, float* values) {
    for (int64_t token = keys.begin; token < keys.end; ++token) {
      widen(token_address(u, u.v, token), u.v.dtype, u.v.head_dim,
            values + (token - tile) * u.o_stride);
    }
  }

  static Vec round_weight(Vec weight) { return weight; }

  /// o += weights[begin..end) x values, the tokens in order. A weight of 0 adds nothing, whatever
  /// its value is.
  static void add_values(const float* weights, const float* values, int64_t begin, int64_t end,
                         float* o, int64_t width) {
    int64_t i = 0;
    for (; i + 4 * kPanel <= width; i += 4 * kPanel) {
      Vec a = load(o + i), b = load(o + i + 16), c = load(o + i + 32), d = load(o + i + 48);
      for (int64_t t = begin; t < end; ++t) {
        if (weights[t] == 0) continue;
        const Vec w = set1(weights[t]);
        const float* v = values + t * width + i;
        a = fma(w, load(v), a), b = fma(w, load(v + 16), b), c = fma(w, load(v + 32), c),
        d = fma(w, load(v + 48), d);
      }
      store(o + i, a), store(o + i + 16, b), store(o + i + 32, c), store(o + i + 48, d);
    }
    for (; i < width; i += kPanel) {
      Vec a = load(o + i);
      for (int64_t t = begin; t < end; ++t) {
        if (weights[t] != 0) a = fma(set1(weights[t]), load(values + t * width + i), a);
      }
      store(o + i, a);
    }
  }
};

/// Bit i: does the row see key first + i?
uint32_t visible_bits(const AttendUnit& u, const RowMask& row, int64_t first) {
  const int64_t low = row.begin - first, high = row.end - first;
  uint32_t bits = 0xffffu;
  if (low > 0) bits &= low >= kPanel ? 0 : 0xffffu << low;
  if (high < kPanel) bits &= high <= 0 ? 0 : (1u << high) - 1;
  if (u.mask_kind == CustomMask::Kind::kNone || bits == 0) return bits;
  for (int i = 0; i < kPanel; ++i) {
    if ((bits >> i & 1) == 0) continue;
    const int64_t pair = row.first_pair + first + i;
    const bool seen = u.mask_kind == CustomMask::Kind::kBool
                          ? u.custom_mask[pair] != 0
                          : (u.custom_mask[pair / 8] >> (pair % 8) & 1) != 0;
    if (!seen) bits &= ~(1u << i);
  }
  return bits;
}

/// Base-2 logits of one row against panels [first, last]; hidden keys get -inf. Returns the
/// largest.
template <class Products>
float logits_of_row(const AttendUnit& u, const RowMask& row, const float* q, const float* panels,
                    int64_t tile, int64_t first, int64_t last, float* logits) {
  const Vec scale = set1(u.scale), hidden = set1(-kInfinity);
  Vec largest = hidden;
  for (int64_t p = first; p <= last; ++p) {
    Vec logit = mul(Products::dot(u, q, panels, p), scale);
    if (u.soft_cap != 0) logit = mul(tanh_vec(logit), set1(u.soft_cap));
    logit = select(visible_bits(u, row, tile + p * kPanel), logit, hidden);
    largest = max(largest, logit);
    store(logits + p * kPanel, logit);
  }
  return reduce_max(largest);
}

/// o = o * factor, lane sums likewise.
void rescale(float factor, float* d, float* o, int64_t width) {
  const Vec f = set1(factor);
  store(d, mul(load(d), f));
  for (int64_t i = 0; i < width; i += kPanel) store(o + i, mul(load(o + i), f));
}

/// One row over one packed tile.
template <class Products>
void attend_row(const AttendUnit& u, const AttendScratch& at, int64_t r, int64_t tile,
                KvBounds keys) {
  const RowMask& row = u.masks[r / u.group];
  const int64_t begin = larger(row.begin, keys.begin), end = smaller(row.end, keys.end);
  if (begin >= end) return;
  const int64_t first = (begin - tile) / kPanel, last = (end - 1 - tile) / kPanel;
  float* logits = u.scratch + at.logits;
  float* d = u.scratch + at.d + r * kPanel;
  float* o = u.o + r * u.o_stride;
  const RowMask here = {static_cast<int32_t>(begin), static_cast<int32_t>(end), row.first_pair};
  const float largest = logits_of_row<Products>(u, here, u.scratch + at.q + r * u.k.head_dim,
                                                u.scratch + at.k, tile, first, last, logits);
  if (largest > u.m[r]) {
    const float old = u.m[r];
    u.m[r] = largest;
    float factor[kPanel];
    store(factor, exp2_vec(set1(old - largest)));
    rescale(factor[0], d, o, u.o_stride);
  }
  // Where every logit so far is -inf, no weight is: exp2(-inf - 0) = 0.
  const Vec m = set1(u.m[r] == -kInfinity ? 0 : u.m[r]);
  Vec sum = load(d);
  for (int64_t p = first; p <= last; ++p) {
    const uint32_t bits = visible_bits(u, here, tile + p * kPanel);
    const Vec weight = select(bits, exp2_vec(sub(load(logits + p * kPanel), m)), set1(0));
    sum = add(sum, weight);
    store(logits + p * kPanel, Products::round_weight(weight));
  }
  store(d, sum);
  Products::add_values(logits, u.scratch + at.v, begin - tile, end - tile, o, u.o_stride);
}

template <class Products>
void attend(const AttendUnit& u) {
  const int64_t rows = int64_t{u.tokens} * u.group;
  const AttendScratch at = attend_scratch(rows, u.k.head_dim, u.v.head_dim, u.tile);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t element = r / u.group * u.q_token_stride + r % u.group * u.q_head_stride;
    const std::byte* q = u.q + element * static_cast<int64_t>(size_of(u.q_dtype));
    Products::pack_q(u, q, u.scratch + at.row);
    std::memcpy(u.scratch + at.q + r * u.k.head_dim, u.scratch + at.row,
                sizeof(float) * static_cast<size_t>(u.k.head_dim));
    u.m[r] = -kInfinity;
    store(u.scratch + at.d + r * kPanel, set1(0));
    for (int64_t i = 0; i < u.o_stride; i += kPanel) store(u.o + r * u.o_stride + i, set1(0));
  }
  for (int64_t tile = u.begin / u.tile * u.tile; tile < u.end; tile += u.tile) {
    const KvBounds keys = {larger(u.begin, tile), smaller(u.end, tile + u.tile)};
    Products::pack_k(u, tile, keys, u.scratch + at.k, u.scratch + at.row);
    Products::pack_v(u, tile, keys, u.scratch + at.v);
    for (int64_t r = 0; r < rows; ++r) attend_row<Products>(u, at, r, tile, keys);
  }
  for (int64_t r = 0; r < rows; ++r) {
    u.d[r] = reduce_add(load(u.scratch + at.d + r * kPanel));
    // A NaN logit never is the largest: a row of nothing else would pass for one that saw no key.
    if (u.d[r] != u.d[r]) u.m[r] = u.d[r];
  }
}

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
    std::byte narrow[kPanel * 4];
    store_narrow(narrow, f.dtype, x);
    std::memcpy(f.out + i * size, narrow, static_cast<size_t>(smaller(kPanel, f.count - i) * size));
  }
}
