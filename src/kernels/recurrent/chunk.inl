// The chunked form: products of tiles over panels (ChunkUnit of linear_unit.h). An element is one
// chain of fused multiply-adds, whatever the tile: the same bits on every instruction set. Tokens
// behind a chunk's last and values behind the last stand in tiles too, and nothing reads them.

int32_t padded(int32_t n, int to) { return (n + to - 1) / to * to; }

template <int N>
using Tile = Sums<kTileRows, N>;

template <int N>
SG_INLINE void clear(Tile<N>& t) {
  for (int r = 0; r < kTileRows; ++r)
    for (int n = 0; n < N; ++n) t.at[r][n] = set1(0);
}

/// t += a b: a[r * row + i * step], rows of b one panel row apart.
template <int N>
SG_INLINE void add_product(Tile<N>& t, const float* a, int64_t row, int64_t step, const float* b,
                           int64_t count) {
  const std::byte* lanes[N];
  for (int n = 0; n < N; ++n) lanes[n] = reinterpret_cast<const std::byte*>(b + n * kPanel);
  constexpr auto kRow = static_cast<int64_t>(kPanelLanes * sizeof(float));
  for (int64_t i = 0; i < count; ++i)
    FmaProducts<F32Format>::step(t, a + i * step, row, 0, lanes, i * kRow);
}

template <int N>
SG_INLINE void store_rows(const Tile<N>& t, float* to) {
  for (int r = 0; r < kTileRows; ++r)
    for (int n = 0; n < N; ++n) store(to + r * kPanelLanes + n * kPanel, t.at[r][n]);
}

// ---- states and values between tensors and panels

/// Element [value v, row r] of panels of `rows` rows.
int64_t in_panels(int64_t rows, int64_t r, int64_t v) {
  return (v / kPanelLanes * rows + r) * kPanelLanes + v % kPanelLanes;
}

/// Rows of values become columns, 16 by 16, and back.
template <DType T>
void load_values_rows(const PanelUnit& c, int32_t wide) {
  constexpr auto kSize = static_cast<int64_t>(size_of(T));
  for (int32_t v = 0; v < padded(c.dim_v, kPanelLanes); v += kPanel) {
    float* to = c.panels + in_panels(wide, 0, v);
    for (int32_t k = 0; k < wide; k += kPanel) {
      Vec x[kPanel];
      for (int i = 0; i < kPanel; ++i) {
        x[i] = v + i < c.dim_v ? load_some<T>(c.at + ((v + i) * c.stride + k) * kSize, c.dim_k - k)
                               : set1(0);
      }
      transpose(x);
      for (int i = 0; i < kPanel; ++i) store(to + (k + i) * kPanelLanes, x[i]);
    }
  }
}

template <DType T>
void save_values_rows(const PanelUnit& c, int32_t wide) {
  constexpr auto kSize = static_cast<int64_t>(size_of(T));
  for (int32_t v = 0; v < c.dim_v; v += kPanel) {
    const float* from = c.panels + in_panels(wide, 0, v);
    for (int32_t k = 0; k < wide; k += kPanel) {
      Vec x[kPanel];
      for (int i = 0; i < kPanel; ++i) x[i] = load(from + (k + i) * kPanelLanes);
      transpose(x);
      for (int i = 0; i < kPanel && v + i < c.dim_v; ++i)
        store_some<T>(c.at + ((v + i) * c.stride + k) * kSize, c.dim_k - k, x[i]);
    }
  }
}

/// dim_v elements to row r of panels of `rows` rows.
template <DType T>
SG_INLINE void load_row(const std::byte* p, int32_t dim_v, int64_t rows, int64_t r, float* panels) {
  constexpr auto kSize = static_cast<int64_t>(size_of(T));
  for (int32_t v = 0; v < padded(dim_v, kPanelLanes); v += kPanel) {
    store(panels + in_panels(rows, r, v),
          v < dim_v ? load_some<T>(p + v * kSize, dim_v - v) : set1(0));
  }
}

template <DType T>
void load_key_rows(const PanelUnit& c, int32_t wide) {
  constexpr auto kSize = static_cast<int64_t>(size_of(T));
  for (int32_t k = 0; k < c.dim_k; ++k)
    load_row<T>(c.at + k * c.stride * kSize, c.dim_v, wide, k, c.panels);
  for (int32_t k = c.dim_k; k < wide; ++k) {
    for (int32_t v = 0; v < padded(c.dim_v, kPanelLanes); v += kPanel)
      store(c.panels + in_panels(wide, k, v), set1(0));
  }
}

template <DType T>
void save_key_rows(const PanelUnit& c, int32_t wide) {
  constexpr auto kSize = static_cast<int64_t>(size_of(T));
  for (int32_t k = 0; k < c.dim_k; ++k) {
    for (int32_t v = 0; v < c.dim_v; v += kPanel)
      store_some<T>(c.at + (k * c.stride + v) * kSize, c.dim_v - v,
                    load(c.panels + in_panels(wide, k, v)));
  }
}

void load_state(const PanelUnit& c) {
  const int32_t wide = padded(c.dim_k, kPanel);
  for_type(c.dtype, [&](auto type) {
    c.by_value ? load_values_rows<type()>(c, wide) : load_key_rows<type()>(c, wide);
  });
}

void save_state(const PanelUnit& c) {
  const int32_t wide = padded(c.dim_k, kPanel);
  for_type(c.dtype, [&](auto type) {
    c.by_value ? save_values_rows<type()>(c, wide) : save_key_rows<type()>(c, wide);
  });
}

void values_to_panels(const ValuesUnit& c) {
  for_type(c.dtype, [&](auto type) {
    for (int32_t t = 0; t < c.tokens; ++t)
      load_row<type()>(c.from + t * c.stride, c.dim_v, kChunkTokens, t, c.panels);
  });
}

void finish_chunk(const FinishChunkUnit& c) {
  for_type(c.dtype, [&](auto type) {
    constexpr auto kSize = static_cast<int64_t>(size_of(type()));
    for (int32_t t = 0; t < c.tokens; ++t) {
      for (int32_t v = 0; v < c.dim_v; v += kPanel) {
        const int64_t at = in_panels(kChunkTokens, t, v);
        Vec y = load(c.read + at);
        if (c.skip != nullptr) y = fma(set1(*c.skip), load(c.v + at), y);
        store_some<type()>(c.out + t * c.stride + v * kSize, c.dim_v - v, y);
      }
    }
  });
}

// ---- dots between tokens, and decays

static_assert(kChunkTokens == kPanelLanes, "rows of dots are stored as rows of panels");

/// Lanes of `across` are tokens.
void triangle_dots(const DotsUnit& c, const float* rows, float* to) {
  for (int32_t i = 0; i < c.tokens; i += kTileRows) {
    for (int32_t j = 0; j < i + kTileRows; j += kPanel) {
      Tile<1> t;
      clear(t);
      add_product(t, rows + int64_t{i} * c.wide_k, c.wide_k, 1, c.across + j, c.wide_k);
      store_rows(t, to + i * kChunkTokens + j);
    }
  }
}

/// The dots of key j with the keys behind it; the decay between them is made step by step.
void channel_dots(const DotsUnit& c) {
  const int64_t wide = c.wide_k;
  for (int32_t i = 0; i < c.tokens; ++i)
    channel_decays(c.log_decay + i * c.log_decay_stride, c.dim_k, c.decay + i * wide);
  for (int32_t j = 0; j < c.tokens; ++j) {
    float* decayed = c.end_keys + j * wide;
    std::memcpy(decayed, c.keys + j * wide, static_cast<size_t>(wide) * sizeof(float));
    for (int32_t i = j; i < c.tokens; ++i) {
      Vec key_dot = set1(0), query_dot = set1(0);
      for (int64_t k = 0; k < wide; k += kPanel) {
        Vec x = load(decayed + k);
        if (i > j) {
          x = mul(x, load(c.decay + i * wide + k));
          store(decayed + k, x);
        }
        key_dot = fma(load(c.keys + i * wide + k), x, key_dot);
        query_dot = fma(load(c.queries + i * wide + k), x, query_dot);
      }
      c.key_dots[i * kChunkTokens + j] = reduce_add(key_dot);
      c.query_dots[i * kChunkTokens + j] = reduce_add(query_dot);
    }
  }
  for (int64_t k = 0; k < wide; k += kPanel) {
    Vec decay = set1(1);
    for (int32_t i = 0; i < c.tokens; ++i) {
      decay = mul(decay, load(c.decay + i * wide + k));
      store(c.start_keys + i * wide + k, mul(decay, load(c.keys + i * wide + k)));
      store(c.start_queries + i * wide + k, mul(decay, load(c.queries + i * wide + k)));
    }
    store(c.last_decay + k, decay);
  }
}

void dots(const DotsUnit& c) {
  if (c.log_decay != nullptr) return channel_dots(c);
  for (int32_t t = 0; t < c.tokens; t += kPanel) {
    for (int32_t k = 0; k < c.wide_k; k += kPanel) {
      Vec x[kPanel];
      for (int i = 0; i < kPanel; ++i) x[i] = load(c.keys + int64_t{t + i} * c.wide_k + k);
      transpose(x);
      for (int i = 0; i < kPanel; ++i) store(c.across + int64_t{k + i} * kPanelLanes + t, x[i]);
    }
  }
  if (c.delta) triangle_dots(c, c.keys, c.key_dots);
  triangle_dots(c, c.queries, c.query_dots);
}

/// 2^(from - log2[i]) of 16 tokens; those behind `from` are nothing.
SG_INLINE Vec decays_to(double from, const double* log2) {
  float lane[kPanel];
  for (int l = 0; l < kPanel; ++l) lane[l] = static_cast<float>(from - log2[l]);
  return exp2_vec(load(lane));
}

void triangles(const TrianglesUnit& c) {
  const double last = c.log2_decay != nullptr ? c.log2_decay[c.tokens - 1] : 0;
  constexpr double kNone[kPanel] = {};
  for (int32_t j = 0; j < c.tokens; j += kPanel) {
    const double* log2 = c.log2_decay != nullptr ? c.log2_decay + j : kNone;
    store(c.to_end + j, decays_to(last, log2));
    double minus[kPanel];
    for (int l = 0; l < kPanel; ++l) minus[l] = -log2[l];
    store(c.from_start + j, decays_to(0, minus));
  }
  for (int32_t i = 0; i < c.tokens; ++i) {
    const Vec minus_beta = set1(-c.beta[i]);
    for (int32_t j = 0; j <= i; j += kPanel) {
      const int64_t at = int64_t{i} * kChunkTokens + j;
      Vec decay = set1(1);
      if (c.log2_decay != nullptr) decay = decays_to(c.log2_decay[i], c.log2_decay + j);
      store(c.reads + at, mul(decay, load(c.query_dots + at)));
      if (c.delta) store(c.minus_l + at, mul(minus_beta, mul(decay, load(c.key_dots + at))));
    }
  }
}

// ---- a chunk

/// Its part of what is used soon, before the tile at place `at` of `places`.
SG_INLINE void ask_soon(const ChunkUnit& c, int32_t at, int32_t places) {
  constexpr int32_t kLine = 64;  // no edge: bytes
  for (const SoonUnit& s : c.soon) {
    const int32_t end = s.rows * (at + kTileRows) / places;
    for (int32_t row = s.rows * at / places; row < end; ++row) {
      for (int32_t i = 0; i < s.bytes; i += kLine)
        __builtin_prefetch(s.from + row * s.stride + i, 0, 2);
    }
  }
}

/// U of some lanes of a panel: rows above a tile by products, those inside it one after the other.
template <int N>
SG_INLINE void make_u(const ChunkUnit& c, const float* values, const float* state, int32_t panel,
                      int32_t lane) {
  float *u = c.u + lane, *end_u = c.end_u + lane;
  for (int32_t i = 0; i < c.tokens; i += kTileRows) {
    const float* minus_l = c.minus_l + i * kChunkTokens;
    if (lane == 0) {
      const int32_t tokens = padded(c.tokens, kTileRows);
      ask_soon(c, panel * tokens + i, c.panels * tokens);
    }
    Tile<N> t;
    clear(t);
    if (c.delta) add_product(t, c.keys + int64_t{i} * c.wide_k, c.wide_k, 1, state, c.wide_k);
    for (int r = 0; r < kTileRows; ++r) {
      const Vec minus_g = set1(-c.from_start[i + r]), beta = set1(c.beta[i + r]);
      for (int n = 0; n < N; ++n) {
        const Vec v = load(values + (i + r) * kPanelLanes + n * kPanel);
        t.at[r][n] = mul(beta, c.delta ? fma(minus_g, t.at[r][n], v) : v);
      }
    }
    if (c.delta) {
      add_product(t, minus_l, kChunkTokens, 1, u, i);
      for (int s = 0; s < kTileRows; ++s) {
        for (int r = s + 1; r < kTileRows; ++r) {
          const Vec l = set1(minus_l[r * kChunkTokens + i + s]);
          for (int n = 0; n < N; ++n) t.at[r][n] = fma(l, t.at[s][n], t.at[r][n]);
        }
      }
    }
    store_rows(t, u + i * kPanelLanes);
    for (int r = 0; r < kTileRows; ++r)
      for (int n = 0; n < N; ++n) t.at[r][n] = mul(set1(c.to_end[i + r]), t.at[r][n]);
    store_rows(t, end_u + i * kPanelLanes);
  }
}

template <int N>
SG_INLINE void read_state(const ChunkUnit& c, const float* state, int32_t lane, float* out) {
  const float* u = c.u + lane;
  for (int32_t i = 0; i < c.tokens; i += kTileRows) {
    const float* reads = c.reads + i * kChunkTokens;
    Tile<N> t;
    clear(t);
    add_product(t, c.queries + int64_t{i} * c.wide_k, c.wide_k, 1, state, c.wide_k);
    for (int r = 0; r < kTileRows; ++r)
      for (int n = 0; n < N; ++n) t.at[r][n] = mul(set1(c.from_start[i + r]), t.at[r][n]);
    add_product(t, reads, kChunkTokens, 1, u, i);
    // A token does not see the tile's later ones, not even with weight 0.
    for (int s = 0; s < kTileRows; ++s) {
      for (int n = 0; n < N; ++n) {
        const Vec lanes = load(u + (i + s) * kPanelLanes + n * kPanel);
        for (int r = s; r < kTileRows; ++r)
          t.at[r][n] = fma(set1(reads[r * kChunkTokens + i + s]), lanes, t.at[r][n]);
      }
    }
    store_rows(t, out + i * kPanelLanes);
  }
}

template <int N>
SG_INLINE void update_state(const ChunkUnit& c, float* state, int32_t lane) {
  for (int32_t k = 0; k < c.wide_k; k += kTileRows) {
    Tile<N> t;
    for (int r = 0; r < kTileRows; ++r) {
      const Vec decay = set1(c.last_decay[k + r]);
      for (int n = 0; n < N; ++n)
        t.at[r][n] = mul(decay, load(state + (k + r) * kPanelLanes + n * kPanel));
    }
    add_product(t, c.end_keys + k, 1, c.wide_k, c.end_u + lane, c.tokens);
    store_rows(t, state + k * kPanelLanes);
  }
}

void chunk(const ChunkUnit& c) {
  for (int32_t p = 0; p < c.panels; ++p) {
    for (int32_t lane = 0; lane < kPanelLanes; lane += kTileVecs * kPanel) {
      const int64_t tokens_at = int64_t{p} * kChunkTokens * kPanelLanes + lane;
      float* state = c.state + int64_t{p} * c.wide_k * kPanelLanes + lane;
      make_u<kTileVecs>(c, c.values + tokens_at, state, p, lane);
      read_state<kTileVecs>(c, state, lane, c.out + tokens_at);
      update_state<kTileVecs>(c, state, lane);
    }
  }
}
