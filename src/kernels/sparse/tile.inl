// A tile of chosen keys: SparseTile of sparse_unit.h. A dot goes lane by lane, vectors in order,
// then across the lanes; values are added key by key: the same bits on every instruction set,
// however many heads and keys stand side by side.

/// Heads, and keys or vectors of values, side by side: as many chains as the registers hold.
constexpr int kSparseBlock = kStripRows >= 8 ? 4 : 2;

template <int Heads, int Keys>
SG_INLINE void score_block(const SparseTile& t, int32_t head, int32_t key) {
  const float* q = t.q + int64_t{head} * t.dim_k;
  const float* k = t.k + int64_t{key} * t.dim_k;
  Vec sum[Heads][Keys];
  for (int h = 0; h < Heads; ++h)
    for (int j = 0; j < Keys; ++j) sum[h][j] = set1(0);
  for (int32_t i = 0; i < t.dim_k; i += kPanel) {
    Vec lanes[Keys];
    for (int j = 0; j < Keys; ++j) lanes[j] = load(k + int64_t{j} * t.dim_k + i);
    for (int h = 0; h < Heads; ++h) {
      const Vec x = load(q + int64_t{h} * t.dim_k + i);
      for (int j = 0; j < Keys; ++j) sum[h][j] = fma(x, lanes[j], sum[h][j]);
    }
  }
  for (int h = 0; h < Heads; ++h)
    for (int j = 0; j < Keys; ++j)
      t.p[(head + h) * kSparseTile + key + j] = reduce_add(sum[h][j]) * t.scale;
}

template <int Keys>
SG_INLINE void score_keys(const SparseTile& t, int32_t key) {
  int32_t head = 0;
  for (; head + kSparseBlock <= t.heads; head += kSparseBlock)
    score_block<kSparseBlock, Keys>(t, head, key);
  for (; head < t.heads; ++head) score_block<1, Keys>(t, head, key);
}

/// Logits of a head become weights; what was summed before is rescaled.
SG_INLINE void weigh_head(const SparseTile& t, int32_t head) {
  float* p = t.p + int64_t{head} * kSparseTile;
  for (int32_t j = t.keys; j < kSparseTile; ++j) p[j] = -kInfinity;
  constexpr int kVecs = kSparseTile / kPanel;
  Vec x[kVecs];
  for (int i = 0; i < kVecs; ++i) x[i] = load(p + i * kPanel);
  const float top = reduce_max(max(max(x[0], x[1]), max(x[2], x[3])));
  const float before = t.m[head], m = top > before ? top : before;
  for (int i = 0; i < kVecs; ++i) x[i] = sub(x[i], set1(m));
  exp2_each(x);
  for (int i = 0; i < kVecs; ++i) store(p + i * kPanel, x[i]);
  const Vec factor = exp2_vec(set1(before - m));
  float* d = t.d + int64_t{head} * kPanel;
  Vec sum = mul(load(d), factor);
  for (int i = 0; i < kVecs; ++i) sum = add(sum, x[i]);
  store(d, sum);
  t.m[head] = m;
  if (m == before) return;
  float* o = t.o + int64_t{head} * t.dim_v;
  for (int32_t i = 0; i < t.dim_v; i += kPanel) store(o + i, mul(load(o + i), factor));
}

template <int Heads, int Vecs>
SG_INLINE void add_values(const SparseTile& t, int32_t head, int32_t lane) {
  Vec sum[Heads][Vecs];
  float* o = t.o + int64_t{head} * t.dim_v + lane;
  const float* p = t.p + int64_t{head} * kSparseTile;
  for (int h = 0; h < Heads; ++h)
    for (int i = 0; i < Vecs; ++i) sum[h][i] = load(o + int64_t{h} * t.dim_v + i * kPanel);
  for (int32_t j = 0; j < t.keys; ++j) {
    const float* v = t.k + int64_t{j} * t.dim_k + lane;
    Vec lanes[Vecs];
    for (int i = 0; i < Vecs; ++i) lanes[i] = load(v + i * kPanel);
    for (int h = 0; h < Heads; ++h) {
      const Vec weight = set1(p[h * kSparseTile + j]);
      for (int i = 0; i < Vecs; ++i) sum[h][i] = fma(weight, lanes[i], sum[h][i]);
    }
  }
  for (int h = 0; h < Heads; ++h)
    for (int i = 0; i < Vecs; ++i) store(o + int64_t{h} * t.dim_v + i * kPanel, sum[h][i]);
}

template <int Vecs>
SG_INLINE void add_lanes(const SparseTile& t, int32_t lane) {
  int32_t head = 0;
  for (; head + kSparseBlock <= t.heads; head += kSparseBlock)
    add_values<kSparseBlock, Vecs>(t, head, lane);
  for (; head < t.heads; ++head) add_values<1, Vecs>(t, head, lane);
}

void attend_tile(const SparseTile& t) {
  int32_t key = 0;
  for (; key + kSparseBlock <= t.keys; key += kSparseBlock) score_keys<kSparseBlock>(t, key);
  for (; key < t.keys; ++key) score_keys<1>(t, key);
  for (int32_t head = 0; head < t.heads; ++head) weigh_head(t, head);
  int32_t lane = 0;
  for (; lane + kSparseBlock * kPanel <= t.dim_v; lane += kSparseBlock * kPanel)
    add_lanes<kSparseBlock>(t, lane);
  for (; lane < t.dim_v; lane += kPanel) add_lanes<1>(t, lane);
}

/// 16 codes times their scale, in f32, rounded to bf16.
SG_INLINE void load_codes(const std::byte* p, float scale, float* to) {
  std::byte narrow[kPanel * 2];
  store_bf16(narrow, mul(load_e4m3(p), set1(scale)));
  store(to, load_bf16(narrow));
}

/// 2^(byte - 127); 255 is none.
float scale_of_byte(std::byte byte) {
  const auto e = static_cast<uint32_t>(byte);
  return std::bit_cast<float>(e == 0 ? 0x00400000u : e == 255 ? 0x7fc00000u : e << 23);
}

void load_latent(const LatentRow& row) {
  if (row.layout == LatentLayout::kRows) return widen(row.data, row.dtype, row.dim, row.to);
  const bool dsa = row.layout == LatentLayout::kDsa;
  const int64_t codes = dsa ? kDsaCodes : kV4Codes, group = dsa ? kDsaGroup : kV4Group;
  const std::byte* scales = dsa ? row.data + kDsaCodes : row.scales;
  for (int64_t g = 0; g * group < codes; ++g) {
    float scale = 0;
    if (dsa) {
      std::memcpy(&scale, scales + g * 4, sizeof scale);
    } else {
      scale = scale_of_byte(scales[g]);
    }
    for (int64_t i = g * group; i < (g + 1) * group; i += kPanel)
      load_codes(row.data + i, scale, row.to + i);
  }
  const std::byte* rope = dsa ? scales + codes / group * 4 : row.data + kV4Codes;
  widen(rope, DType::kBF16, kRopeDim, row.to + codes);
}

float sum_lanes(const float* lanes) { return reduce_add(load(lanes)); }
