// The recurrence over one head's state: RecurUnit of linear_unit.h. Dots go lane by lane, vectors
// in order, then across the lanes: the same bits on every instruction set.

/// Rows of values side by side: their chains of sums run at once.
constexpr int kRecurRows = 4;

/// What a thread will read of a pool that it goes through is asked for so far ahead, into the
/// second cache: the first has fewer misses under way.
constexpr int64_t kAheadFloats = 2048;  // no edge: a hint

/// Prefetches rows that lie side by side, which a processor does not foresee; only for the first
/// token, since later ones find the state in cache.
template <bool First>
SG_INLINE void ask_ahead(const float* state) {
  if constexpr (First) __builtin_prefetch(state + kAheadFloats, 0, 2);
}

template <bool Channels, int Rows, bool First>
SG_INLINE void delta_rows_token(const RecurUnit& c, int32_t row, int32_t t) {
  float* s[Rows];
  for (int r = 0; r < Rows; ++r) s[r] = c.state + (row + r) * c.state_stride;
  const float *k = c.k + t * c.k_stride, *dk = c.decayed_k + t * c.k_stride;
  const float *dq = c.decayed_q + t * c.k_stride, *d = c.decay + t * c.decay_step;
  Vec read[Rows], old[Rows];
  for (int r = 0; r < Rows; ++r) read[r] = old[r] = set1(0);
  for (int32_t i = 0; i < c.dim_k; i += kPanel) {
    const Vec q_lanes = load(dq + i), k_lanes = load(dk + i);
    for (int r = 0; r < Rows; ++r) {
      // In order, where rows lie side by side: half here, half below.
      if (r < Rows / 2) ask_ahead<First>(s[0] + i * (Rows / 2) + r * kPanel);
      const Vec x = load(s[r] + i);
      read[r] = fma(x, q_lanes, read[r]);
      old[r] = fma(x, k_lanes, old[r]);
    }
  }
  const float* v = c.v + int64_t{t} * c.dim_v + row;
  float* out = c.out + int64_t{t} * c.dim_v + row;
  Vec u[Rows];
  for (int r = 0; r < Rows; ++r) {
    const float add = c.beta[t] * (v[r] - reduce_add(old[r]));
    out[r] = std::fma(add, c.kq[t], reduce_add(read[r]));
    u[r] = set1(add);
  }
  const Vec all = set1(d[0]);
  for (int32_t i = 0; i < c.dim_k; i += kPanel) {
    const Vec k_lanes = load(k + i);
    const Vec a = Channels ? load(d + i) : all;
    for (int r = 0; r < Rows; ++r) {
      if (r < Rows / 2) ask_ahead<First>(s[0] + (c.dim_k + i) * (Rows / 2) + r * kPanel);
      store(s[r] + i, fma(u[r], k_lanes, mul(a, load(s[r] + i))));
    }
  }
}

/// What is added does not depend on the state: it is read and updated in one pass.
template <bool Channels, int Rows, bool First>
SG_INLINE void add_rows_token(const RecurUnit& c, int32_t row, int32_t t) {
  float* s[Rows];
  for (int r = 0; r < Rows; ++r) s[r] = c.state + (row + r) * c.state_stride;
  const float *k = c.k + t * c.k_stride, *dq = c.decayed_q + t * c.k_stride;
  const float* d = c.decay + t * c.decay_step;
  const float* v = c.v + int64_t{t} * c.dim_v + row;
  float add[Rows];
  Vec read[Rows], u[Rows];
  for (int r = 0; r < Rows; ++r) add[r] = c.beta[t] * v[r], u[r] = set1(add[r]), read[r] = set1(0);
  const Vec all = set1(d[0]);
  for (int32_t i = 0; i < c.dim_k; i += kPanel) {
    const Vec q_lanes = load(dq + i), k_lanes = load(k + i);
    const Vec a = Channels ? load(d + i) : all;
    for (int r = 0; r < Rows; ++r) {
      ask_ahead<First>(s[0] + i * Rows + r * kPanel);
      const Vec x = load(s[r] + i);
      read[r] = fma(x, q_lanes, read[r]);
      store(s[r] + i, fma(u[r], k_lanes, mul(a, x)));
    }
  }
  float* out = c.out + int64_t{t} * c.dim_v + row;
  for (int r = 0; r < Rows; ++r) out[r] = std::fma(add[r], c.kq[t], reduce_add(read[r]));
}

template <bool Delta, bool Channels, int Rows, bool First>
SG_INLINE void rows_token(const RecurUnit& c, int32_t row, int32_t t) {
  if constexpr (Delta) {
    delta_rows_token<Channels, Rows, First>(c, row, t);
  } else {
    add_rows_token<Channels, Rows, First>(c, row, t);
  }
}

template <bool Delta, bool Channels, int Rows>
SG_INLINE void recur_rows(const RecurUnit& c, int32_t row) {
  rows_token<Delta, Channels, Rows, true>(c, row, 0);
  for (int32_t t = 1; t < c.tokens; ++t) rows_token<Delta, Channels, Rows, false>(c, row, t);
}

template <bool Delta, bool Channels>
void recur_values_as(const RecurUnit& c) {
  int32_t row = 0;
  for (; row + kRecurRows <= c.dim_v; row += kRecurRows)
    recur_rows<Delta, Channels, kRecurRows>(c, row);
  for (; row < c.dim_v; ++row) recur_rows<Delta, Channels, 1>(c, row);
}

void recur_values(const RecurUnit& c) {
  if (c.delta)
    return c.decay_step > 1 ? recur_values_as<true, true>(c) : recur_values_as<true, false>(c);
  return c.decay_step > 1 ? recur_values_as<false, true>(c) : recur_values_as<false, false>(c);
}

/// Lanes of values: a column of panels of the state, all keys. The dots go key by key.
template <bool Delta, int Panels>
SG_INLINE void recur_lanes_token(const RecurUnit& c, int32_t lane, int32_t t) {
  const float *k = c.k + t * c.k_stride, *dk = c.decayed_k + t * c.k_stride;
  const float *dq = c.decayed_q + t * c.k_stride, *d = c.decay + t * c.decay_step;
  const int64_t channel = c.decay_step > 1 ? 1 : 0;
  const float* v = c.v + int64_t{t} * c.dim_v + lane;
  Vec read[Panels], u[Panels];
  for (int p = 0; p < Panels; ++p) read[p] = set1(0), u[p] = load(v + p * kPanel);
  if constexpr (Delta) {
    Vec old[Panels];
    for (int p = 0; p < Panels; ++p) old[p] = set1(0);
    for (int32_t i = 0; i < c.dim_k; ++i) {
      const float* s = c.state + i * c.state_stride + lane;
      const Vec q_lane = set1(dq[i]), k_lane = set1(dk[i]);
      for (int p = 0; p < Panels; ++p) {
        const Vec x = load(s + p * kPanel);
        read[p] = fma(x, q_lane, read[p]);
        old[p] = fma(x, k_lane, old[p]);
      }
    }
    for (int p = 0; p < Panels; ++p) u[p] = sub(u[p], old[p]);
  }
  const Vec beta = set1(c.beta[t]);
  for (int p = 0; p < Panels; ++p) u[p] = mul(beta, u[p]);
  for (int32_t i = 0; i < c.dim_k; ++i) {
    float* s = c.state + i * c.state_stride + lane;
    const Vec a = set1(d[i * channel]), k_lane = set1(k[i]);
    for (int p = 0; p < Panels; ++p) {
      const Vec x = load(s + p * kPanel);
      if constexpr (!Delta) read[p] = fma(x, set1(dq[i]), read[p]);
      store(s + p * kPanel, fma(u[p], k_lane, mul(a, x)));
    }
  }
  float* out = c.out + int64_t{t} * c.dim_v + lane;
  for (int p = 0; p < Panels; ++p) store(out + p * kPanel, fma(u[p], set1(c.kq[t]), read[p]));
}

template <bool Delta, int Panels>
SG_INLINE void recur_lanes(const RecurUnit& c, int32_t lane) {
  for (int32_t t = 0; t < c.tokens; ++t) recur_lanes_token<Delta, Panels>(c, lane, t);
}

/// Panels side by side: a state of 128 values is read in the order in which it lies, where the
/// registers hold its sums.
constexpr int kRecurPanels = kTileRows;

template <bool Delta>
void recur_keys_as(const RecurUnit& c) {
  int32_t lane = 0;
  for (; lane + kRecurPanels * kPanel <= c.dim_v; lane += kRecurPanels * kPanel)
    recur_lanes<Delta, kRecurPanels>(c, lane);
  for (; lane < c.dim_v; lane += kPanel) recur_lanes<Delta, 1>(c, lane);
}

void recur_keys(const RecurUnit& c) {
  return c.delta ? recur_keys_as<true>(c) : recur_keys_as<false>(c);
}
