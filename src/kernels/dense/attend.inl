// The online softmax of a block of rows over a range of keys: one body for every instruction set.
//
// Arithmetic (portable). A logit is one chain of fused multiply-adds over the head dim, 16 tokens
// side by side (so no horizontal sum); a weighted value is one chain over the tokens in order; the
// sum of weights is kept lane by lane. Nothing in a row's chain depends on other rows or on the
// vector width, so neither do its bits. What a row does not see is never added, not even with
// weight 0.

/// A strip of rows against one tile: what each format and number of rows has as code of its own.
using LogitsFn = void (*)(const float* q, int64_t head_dim, const float* scales, const Panels& keys,
                          int64_t first, int64_t last, float* logits, float* largest);
using ValuesFn = void (*)(const float* weights, const Panels& values, int64_t head_dim,
                          int64_t begin, int64_t end, float* o, int64_t o_stride);
using PanelValuesFn = void (*)(const float* weights, const Panels& values, int64_t panel,
                               uint32_t bits, int64_t head_dim, float* o, int64_t o_stride);
struct StripCode {
  LogitsFn logits[kStripRows + 1];
  ValuesFn values[kStripRows + 1];
  PanelValuesFn panel[kStripRows + 1];
};

template <class Products, int... R>
constexpr StripCode strip_code(std::integer_sequence<int, R...>) {
  return {{nullptr, logits_of_strip<Products, R + 1>...},
          {nullptr, values_of_strip<Products, R + 1>...},
          {nullptr, values_of_panel<Products, R + 1>...}};
}
template <class Products>
constexpr StripCode kStripCode =
    strip_code<Products>(std::make_integer_sequence<int, kStripRows>{});

const StripCode& fma_code(PanelFormat format) {
  switch (format) {
    case PanelFormat::kF16: return kStripCode<FmaProducts<F16Format>>;
    case PanelFormat::kBF16: return kStripCode<FmaProducts<BF16Format>>;
    case PanelFormat::kBF16Rows: return kStripCode<FmaProducts<BF16RowsFormat>>;
    case PanelFormat::kE4M3: return kStripCode<FmaProducts<E4M3Format>>;
    case PanelFormat::kE5M2: return kStripCode<FmaProducts<E5M2Format>>;
    case PanelFormat::kI8: return kStripCode<FmaProducts<I8Format>>;
    default: return kStripCode<FmaProducts<F32Format>>;
  }
}

/// f32 throughout, over panels of any format.
struct ExactArithmetic {
  static const StripCode& code(PanelFormat format) { return fma_code(format); }
  static bool narrow(int64_t rows) { return rows <= kWidenRows; }
  static constexpr bool kReadsRows = true;
  /// Floats that a row of q takes.
  static int64_t q_floats(const AttendUnit& u) { return u.k.head_dim; }
  /// A row of q as floats: the caller's own, or in `row`.
  static const float* load_q(const AttendUnit& u, const std::byte* q, float* row) {
    const bool floats = u.q_dtype == DType::kF32;
    if (floats && reinterpret_cast<uintptr_t>(q) % alignof(float) == 0)
      return reinterpret_cast<const float*>(q);
    widen(q, u.q_dtype, u.k.head_dim, row);
    return row;
  }
  template <int N>
  static SG_INLINE void exp2(Vec (&x)[N]) {
    exp2_each(x);
  }
  static void store_weights(float* row, int64_t panel, Vec weights) {
    store(row + panel * kPanel, weights);
  }
  static Vec rescaled(Vec x) { return x; }
};

/// Rows of one KV head that are computed together.
struct Strip {
  int64_t row = 0, rows = 0;       // of the head's
  int64_t token[kStripRows] = {};  // of the unit's, row by row

  /// fn(token, first, count) of each token in turn: it has rows first .. first + count - 1.
  template <class Fn>
  SG_INLINE void each_token(const Fn& fn) const {
    for (int64_t first = 0, next; first < rows; first = next) {
      for (next = first + 1; next < rows && token[next] == token[first];) ++next;
      fn(token[first], first, next - first);
    }
  }
};

/// The strips of a head, one after the other; no division, as each tile goes through them again.
/// Many rows read every panel often, few rows can take more panels at once: so long are strips at
/// most. Whole tokens' groups, where they fit, end at one key each; registers that only a full
/// strip fills (kFullStrips) weigh more. Else equal parts of a group.
class Strips {
 public:
  explicit Strips(const AttendUnit& u)
      : rows_(head_rows(u)),
        group_(u.group),
        most_(rows_ > kWidenRows ? kStripRows : smaller(kStripRows, kWideStripRows)) {
    if (group_ <= most_) {
      full_ = kFullStrips ? most_ : most_ / group_ * group_;
    } else {
      const int64_t parts = (group_ + most_ - 1) / most_;
      full_ = group_ / parts, longer_ = group_ % parts * (full_ + 1);
    }
  }
  bool next(Strip* s) {
    s->row += s->rows;
    s->rows = smaller(rows_ - s->row, in_group_ < longer_ ? full_ + 1 : full_);
    for (int64_t i = 0; i < s->rows; ++i) {
      s->token[i] = token_;
      if (++in_group_ == group_) in_group_ = 0, ++token_;
    }
    return s->rows > 0;
  }

 private:
  const int64_t rows_, group_, most_;
  int64_t full_, longer_ = 0;         // rows of a strip; of a group, rows in strips of one more
  int64_t token_ = 0, in_group_ = 0;  // of the next row
};

/// Bits of keys first .. first + 15 that lie in [begin, end).
uint32_t range_bits(int64_t begin, int64_t end, int64_t first) {
  const int64_t low = begin - first, high = end - first;
  uint32_t bits = 0xffffu;
  if (low > 0) bits &= low >= kPanel ? 0 : 0xffffu << low;
  if (high < kPanel) bits &= high <= 0 ? 0 : (1u << high) - 1;
  return bits;
}

/// Bit i: does the row see key first + i?
uint32_t visible_bits(const AttendUnit& u, const RowMask& row, int64_t first) {
  uint32_t bits = range_bits(row.begin, row.end, first);
  if (u.mask_kind == CustomMask::Kind::kNone || bits == 0) return bits;
  // Only pairs of the row's own range are looked at: before and after it may be no mask at all.
  const int64_t begin = __builtin_ctz(bits), end = 32 - __builtin_clz(bits);
  const int64_t pair = row.first_pair + first;
  if (u.mask_kind == CustomMask::Kind::kBool) {
    if (end - begin == kPanel) return bits & nonzero_bytes(u.custom_mask + pair);
    uint8_t some[kPanel] = {};
    std::memcpy(some + begin, u.custom_mask + pair + begin, static_cast<size_t>(end - begin));
    return bits & nonzero_bytes(some);
  }
  uint64_t word = 0;
  const int64_t byte = (pair + begin) / 8, last = (pair + end - 1) / 8;
  std::memcpy(&word, u.custom_mask + byte, static_cast<size_t>(last - byte + 1));
  const int64_t shift = pair - byte * 8;
  return bits & static_cast<uint32_t>(shift >= 0 ? word >> shift : word << -shift);
}

/// One strip over one tile.
struct StripTile {
  const Strip& strip;
  int64_t head;         // KV head of the unit
  int64_t row;          // the first, of the unit's
  int64_t tile;         // first key
  int64_t first, last;  // panels that some row sees
  KvBounds all;         // range that all rows see, relative to the tile (custom mask aside)
  uint32_t hidden;      // bit p: some row does not see all of panel p
  const Panels *keys, *values;
  float* logits;          // [rows][kTileStride]
  const float* k_scales;  // [tile]: of a logit
  const float* v_scales;  // [tile]: of a value; null: 1
};

/// The keys of the token's range that lie in the tile, as absolute positions.
KvBounds token_keys(const AttendUnit& u, int64_t token, int64_t tile) {
  const RowMask& mask = u.masks[token];
  return {larger(larger(mask.begin, u.begin), tile),
          smaller(smaller(mask.end, u.end), tile + u.tile)};
}

RowMask clipped(const AttendUnit& u, int64_t token, int64_t tile) {
  const KvBounds keys = token_keys(u, token, tile);
  return {static_cast<int32_t>(keys.begin), static_cast<int32_t>(larger(keys.begin, keys.end)),
          u.masks[token].first_pair};
}

/// o = o * factor, lane sums likewise.
template <class Arithmetic>
void rescale(float factor, float* d, float* o, int64_t width) {
  const Vec f = set1(factor);
  store(d, mul(load(d), f));
  for (int64_t i = 0; i < width; i += kPanel)
    store(o + i, Arithmetic::rescaled(mul(load(o + i), f)));
}

/// Cap and mask for panels [first, last]: hidden logits become -inf. Returns the largest.
float mask_logits(const AttendUnit& u, const RowMask& row, int64_t tile, int64_t first,
                  int64_t last, float* logits) {
  const Vec hidden = set1(-kInfinity), cap = set1(u.soft_cap);
  Vec largest = hidden;
  for (int64_t p = first; p <= last; ++p) {
    Vec logit = load(logits + p * kPanel);
    if (u.soft_cap != 0) logit = mul(tanh_vec(logit), cap);
    logit = select(visible_bits(u, row, tile + p * kPanel), logit, hidden);
    store(logits + p * kPanel, logit);
    largest = max(largest, logit);
  }
  return reduce_max(largest);
}

/// Bit p of first .. last: a row with this mask does not see all of panel p.
uint32_t hidden_panels(const AttendUnit& u, const RowMask& mask, int64_t tile, int64_t first,
                       int64_t last) {
  uint32_t hidden = 0;
  for (int64_t p = first; p <= last; ++p) {
    const int64_t key = tile + p * kPanel;
    const bool inside = mask.begin <= key && key + kPanel <= mask.end;
    const bool seen =
        inside && (u.mask_kind == CustomMask::Kind::kNone || visible_bits(u, mask, key) == 0xffffu);
    hidden |= (seen ? 0u : 1u) << p;
  }
  return hidden;
}

/// fn(first, end, set) for each run of panels first .. last whose bits are alike.
template <class Fn>
SG_INLINE void each_run(uint32_t bits, int64_t first, int64_t last, const Fn& fn) {
  for (int64_t p = first, end; p <= last; p = end) {
    const bool set = (bits >> p & 1) != 0;
    for (end = p + 1; end <= last && ((bits >> end & 1) != 0) == set;) ++end;
    fn(p, end, set);
  }
}

/// Logits of the strip, capped and masked, and the largest of each row. Panels that every row sees
/// whole need no second look.
void logits_of_tile(const AttendUnit& u, const AttendScratch& at, const StripCode& keys,
                    const StripTile& s, float (&largest)[kStripRows]) {
  const float* q = u.scratch + at.q + s.row * u.k.head_dim;
  const int64_t rows = s.strip.rows;
  for (int64_t i = 0; i < rows; ++i) largest[i] = -kInfinity;
  const uint32_t masked = u.soft_cap != 0 ? ~0u : s.hidden;
  each_run(masked, s.first, s.last, [&](int64_t first, int64_t end, bool mask) {
    float most[kStripRows];
    keys.logits[rows](q, u.k.head_dim, s.k_scales, *s.keys, first, end - 1, s.logits, most);
    for (int64_t i = 0; i < rows; ++i) {
      if (mask) {
        most[i] = mask_logits(u, clipped(u, s.strip.token[i], s.tile), s.tile, first, end - 1,
                              s.logits + i * kTileStride);
      }
      largest[i] = most[i] > largest[i] ? most[i] : largest[i];
    }
  });
}

/// The logits of one row over a tile.
struct RowLogits {
  float* at;              // [tile]
  int64_t first, last;    // panels that count
  const float* v_scales;  // [tile]: of a value; null: 1
  float scale = 1;        // each counts so often
};

/// Logits of panels p .. p + N - 1 become weights, added to the sum in order.
template <class Arithmetic, int N>
SG_INLINE Vec weigh_panels(const RowLogits& row, int64_t p, Vec scale, Vec minus_m, Vec sum) {
  Vec weights[N];
  for (int n = 0; n < N; ++n) weights[n] = fma(load(row.at + (p + n) * kPanel), scale, minus_m);
  Arithmetic::exp2(weights);
  for (int n = 0; n < N; ++n) {
    sum = add(sum, weights[n]);
    if (row.v_scales != nullptr)
      weights[n] = mul(weights[n], load(row.v_scales + (p + n) * kPanel));
    Arithmetic::store_weights(row.at, p + n, weights[n]);
  }
  return sum;
}

/// The logits of the unit's row r become weights; its state follows.
template <class Arithmetic>
void weigh_row(const AttendUnit& u, const AttendScratch& at, int64_t r, const RowLogits& row,
               float largest) {
  float* d = u.scratch + at.d + r * kPanel;
  if (largest > u.m[r]) {
    if (u.m[r] != -kInfinity) {  // else there is nothing yet
      float factor[kPanel];
      store(factor, exp2_vec(set1(u.m[r] - largest)));
      rescale<Arithmetic>(factor[0], d, u.o + r * u.o_stride, u.o_stride);
    }
    u.m[r] = largest;
  }
  // Where every logit so far is -inf, no weight is: exp2(-inf - 0) = 0.
  const Vec minus_m = set1(u.m[r] == -kInfinity ? 0 : -u.m[r]), scale = set1(row.scale);
  Vec sum = load(d);
  int64_t p = row.first;
  for (; p + 3 <= row.last; p += 4) sum = weigh_panels<Arithmetic, 4>(row, p, scale, minus_m, sum);
  for (; p <= row.last; ++p) sum = weigh_panels<Arithmetic, 1>(row, p, scale, minus_m, sum);
  store(d, sum);
}

/// Keys [begin, end) of the tile, the rows of one token after those of another.
void add_token_by_token(const AttendUnit& u, const StripCode& code, const StripTile& s,
                        int64_t begin, int64_t end) {
  if (begin >= end) return;
  // The bounds by value: were their address taken, the check above would not be inlined alone.
  s.strip.each_token([&, begin, end](int64_t token, int64_t first, int64_t count) {
    RowMask row = clipped(u, token, s.tile);
    row.begin = static_cast<int32_t>(larger(row.begin, s.tile + begin));
    row.end = static_cast<int32_t>(larger(row.begin, smaller(row.end, s.tile + end)));
    for (int64_t p = begin / kPanel; p * kPanel < end; ++p) {
      const uint32_t bits = visible_bits(u, row, s.tile + p * kPanel);
      if (bits == 0) continue;
      code.panel[count](s.logits + first * kTileStride, *s.values, p, bits, u.v.head_dim,
                        u.o + (s.row + first) * u.o_stride, u.o_stride);
    }
  });
}

/// Weighted values of the tile, in the order of the keys: together where all rows see, token by
/// token elsewhere.
void add_values(const AttendUnit& u, const StripCode& code, const StripTile& s) {
  const int64_t begin = s.first * kPanel, end = (s.last + 1) * kPanel;
  const auto together = [&](int64_t from, int64_t to) {
    if (from < to)
      code.values[s.strip.rows](s.logits, *s.values, u.v.head_dim, from, to,
                                u.o + s.row * u.o_stride, u.o_stride);
  };
  if (u.mask_kind == CustomMask::Kind::kNone) {
    // Whole pairs.
    const int64_t from = round_up(s.all.begin, 2), to = s.all.end / 2 * 2;
    if (from >= to) return add_token_by_token(u, code, s, begin, end);
    add_token_by_token(u, code, s, begin, from);
    together(from, to);
    return add_token_by_token(u, code, s, to, end);
  }
  each_run(s.hidden, s.first, s.last, [&](int64_t first, int64_t past, bool hidden) {
    hidden ? add_token_by_token(u, code, s, first * kPanel, past * kPanel)
           : together(first * kPanel, past * kPanel);
  });
}

/// Asks for what `rows` has of the token's row of a KV head.
void ask_for_row(const AttendUnit& u, const RowsAhead& rows, int64_t kv_head, int64_t token,
                 int64_t row) {
  if (token >= rows.tokens) return;
  const int64_t head = kv_head * u.group + row - token * u.group;
  prefetch_row(rows.at + token * rows.token_stride + head * rows.head_stride, rows.bytes);
}

template <class Arithmetic>
void attend_strip(const AttendUnit& u, const AttendScratch& at, const StripCode& keys,
                  const StripCode& values, StripTile s) {
  int64_t begin = u.end, end = 0;
  s.all = {0, kTileStride};
  s.strip.each_token([&](int64_t token, int64_t, int64_t) {
    const KvBounds row = token_keys(u, token, s.tile);
    s.all = {larger(s.all.begin, row.begin - s.tile), smaller(s.all.end, row.end - s.tile)};
    if (row.begin < row.end) begin = smaller(begin, row.begin), end = larger(end, row.end);
  });
  if (begin >= end) return;
  float largest[kStripRows];
  s.first = (begin - s.tile) / kPanel, s.last = (end - 1 - s.tile) / kPanel;
  s.hidden = 0;
  s.strip.each_token([&](int64_t token, int64_t, int64_t) {
    s.hidden |= hidden_panels(u, clipped(u, token, s.tile), s.tile, s.first, s.last);
  });
  logits_of_tile(u, at, keys, s, largest);
  const bool last_tile = s.tile + u.tile >= u.end;
  for (int64_t i = 0; i < s.strip.rows; ++i) {
    weigh_row<Arithmetic>(u, at, s.row + i,
                          {s.logits + i * kTileStride, s.first, s.last, s.v_scales}, largest[i]);
    // Row by row: all at once would be more than can be on its way.
    if (!last_tile) continue;
    ask_for_row(u, u.next_q, s.head, s.strip.token[i], s.strip.row + i);
    ask_for_row(u, u.out, s.head, s.strip.token[i], s.strip.row + i);
  }
  add_values(u, values, s);
}

/// Rows of q as a strip reads them: strip[i][r] = rows[r][i].
template <int R>
void interleave(const float* const* rows, int64_t count, float* strip) {
  for (int64_t i = 0; i < count; ++i) {
    for (int r = 0; r < R; ++r) strip[i * R + r] = rows[r][i];
  }
}
using InterleaveFn = void (*)(const float* const*, int64_t, float*);
template <int... R>
constexpr std::array<InterleaveFn, sizeof...(R) + 1> interleave_code(
    std::integer_sequence<int, R...>) {
  return {nullptr, interleave<R + 1>...};
}
constexpr auto kInterleave = interleave_code(std::make_integer_sequence<int, kStripRows>{});

/// The row of q of a token and query head, counted from the unit's first.
const std::byte* q_row(const AttendUnit& u, int64_t token, int64_t head) {
  const int64_t element = token * u.q_token_stride + head * u.q_head_stride;
  return u.q + element * static_cast<int64_t>(size_of(u.q_dtype));
}

/// The state of the unit's row r before any key.
void clear_row(const AttendUnit& u, const AttendScratch& at, int64_t r) {
  u.m[r] = -kInfinity;
  store(u.scratch + at.d + r * kPanel, set1(0));
  for (int64_t d = 0; d < u.o_stride; d += kPanel) store(u.o + r * u.o_stride + d, set1(0));
}

template <class Arithmetic>
void load_rows(const AttendUnit& u, const AttendScratch& at) {
  const int64_t width = round_up(u.k.head_dim, kPanel);
  const int64_t bytes = u.k.head_dim * static_cast<int64_t>(size_of(u.q_dtype));
  for (int64_t token = 0; token < u.tokens; ++token) {
    for (int64_t head = 0; head < u.heads * u.group; ++head)
      prefetch_row(q_row(u, token, head), bytes);
  }
  for (int64_t head = 0; head < u.heads; ++head) {
    Strip strip;
    for (Strips strips(u); strips.next(&strip);) {
      const int64_t first = head * head_rows(u) + strip.row;
      const float* q[kStripRows];
      for (int64_t i = 0; i < strip.rows; ++i) {
        const int64_t token = strip.token[i];
        const int64_t in_group = strip.row + i - token * u.group;
        q[i] = Arithmetic::load_q(u, q_row(u, token, head * u.group + in_group),
                                  u.scratch + at.row + i * width);
      }
      kInterleave[static_cast<size_t>(strip.rows)](q, Arithmetic::q_floats(u),
                                                   u.scratch + at.q + first * u.k.head_dim);
    }
  }
}

/// Panels first .. last ask for those of `next` whose turn it is: that part of them which the
/// strip is of all rows of its head. The others ask for `none`, which is there already.
void share_ahead(const NextPanels& next, const Strip& strip, int64_t rows, int64_t first,
                 int64_t last, const std::byte* none, Panels* panels) {
  const int64_t all = last - first + 1;
  const int64_t begin = first + all * strip.row / rows,
                end = first + all * (strip.row + strip.rows) / rows;
  for (int64_t p = first; p <= last; ++p) {
    const std::byte* at = p >= begin && p < end ? next.at(p) : nullptr;
    panels->ahead[p] = at != nullptr ? at : none;
  }
}

/// All rows of one KV head over one tile. after: what is read next.
template <class Arithmetic>
void attend_head(const AttendUnit& u, const AttendScratch& at, PanelSource keys, PanelSource values,
                 const TilePlaces& here, const TilePlaces& after, int64_t head, int64_t tile) {
  keys.kv = at_head(u.k, head), values.kv = at_head(u.v, head);
  const KvBounds bounds = {larger(u.begin, tile), smaller(u.end, tile + u.tile)};
  const int64_t first = (bounds.begin - tile) / kPanel, last = (bounds.end - 1 - tile) / kPanel;
  const int64_t rows = head_rows(u);
  float k_scales[kMostTile], v_scales[kMostTile];
  tile_scales(u, keys.kv, tile, bounds, u.scale, k_scales);
  if (u.v.scales != nullptr) tile_scales(u, values.kv, tile, bounds, 1, v_scales);
  Panels k, v;
  prepare_panels(u, keys, here.k, tile, bounds, head, &k);
  prepare_panels(u, values, here.v, tile, bounds, head, &v);
  const bool asks = rows < kCopyRows || !u.asked_by_processor;
  const NextPanels next_k = asks ? next_panels(u, keys, head, here.k, after.k) : NextPanels(),
                   next_v = asks ? next_panels(u, values, head, here.v, after.v) : NextPanels();
  const auto* none = reinterpret_cast<const std::byte*>(u.scratch + at.k);
  Strip strip;
  for (Strips strips(u); strips.next(&strip);) {
    share_ahead(next_k, strip, rows, first, last, none, &k);
    share_ahead(next_v, strip, rows, first, last, none, &v);
    attend_strip<Arithmetic>(u, at, Arithmetic::code(keys.format), Arithmetic::code(values.format),
                             {.strip = strip,
                              .head = head,
                              .row = head * rows + strip.row,
                              .tile = tile,
                              .first = 0,
                              .last = 0,
                              .all = {},
                              .hidden = 0,
                              .keys = &k,
                              .values = &v,
                              .logits = u.scratch + at.logits,
                              .k_scales = k_scales,
                              .v_scales = u.v.scales == nullptr ? nullptr : v_scales});
  }
}

/// The sums of weights, once all keys are done.
void end_rows(const AttendUnit& u, const AttendScratch& at, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    u.d[r] = reduce_add(load(u.scratch + at.d + r * kPanel));
    // A NaN logit never is the largest: a row of nothing else would pass for one that saw no key.
    if (u.d[r] != u.d[r]) u.m[r] = u.d[r];
  }
}

template <class Arithmetic>
void attend(const AttendUnit& u) {
  const int64_t rows = u.heads * head_rows(u);
  const AttendScratch at = attend_scratch(rows, u.k.head_dim, u.v.head_dim, u.tile);
  const bool narrow = Arithmetic::narrow(head_rows(u));
  const PanelSource keys = panel_source(u, true, narrow, Arithmetic::kReadsRows, u.scratch + at.k);
  const PanelSource values =
      panel_source(u, false, narrow, Arithmetic::kReadsRows, u.scratch + at.v);
  if (!u.same_rows) load_rows<Arithmetic>(u, at);
  for (int64_t r = 0; r < rows; ++r) clear_row(u, at, r);
  int64_t tile = u.begin / u.tile * u.tile;
  TilePlaces here = tile_places(u, tile);
  for (; tile < u.end; tile += u.tile) {
    const TilePlaces after = places_after(u, tile);
    for (int64_t head = 0; head < u.heads; ++head)
      attend_head<Arithmetic>(u, at, keys, values, here, after, head, tile);
    here = after;
  }
  end_rows(u, at, rows);
}
