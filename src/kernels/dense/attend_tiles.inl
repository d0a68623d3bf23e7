// The online softmax of a block of rows with products of bf16 tiles (AMX), for units whose q, K and
// V are bf16. Included after attend.inl; `Tiles` multiplies: the processor (simd/tiles_amx.h), or
// software with its bits (simd/tiles_soft.h).
//
// Logits are tiles of rows by a panel's tokens, over 32 dims a step: the cache's key panels are
// read as they lie. Weighted values are tiles of rows by 16 dims, over 32 tokens a step: a value
// panel has 16, so values are copied, once for all rows of a head. P is rounded to bf16; the sum of
// weights sees it as it was.
//
// A key that a row does not see has weight 0, and what such terms add to a chain of the tile unit
// is 0: a row's bits are its own. Only where a value is not finite (0 * inf is NaN) is it hidden
// row by row. Subnormals become 0 wherever a sum meets a tile, so that it does not matter which
// tiles other rows see.

/// Tokens of a tile of weights, dims of a tile of q.
constexpr int64_t kAmxKeys = 2 * kPanel;                             // edge: keys
constexpr int64_t kAmxTileBytes = int64_t{kAmxRows} * kAmxRowBytes;  // no edge: bytes
constexpr int64_t kHalfTile = kAmxTileBytes / 2;  // no edge: bytes; a panel's part

struct TileArithmetic {
  template <int N>
  static SG_INLINE void exp2(Vec (&x)[N]) {
    exp2_fast(x);
  }
  static void store_weights(float* row, int64_t panel, Vec weights) {
    store_weights_bf16(row, panel, weights);
  }
  static Vec rescaled(Vec x) { return flush_subnormals(x); }
};

/// Can tiles compute the unit? That follows from the call alone, not from how it is cut.
bool fits_tiles(const AttendUnit& u) {
  return all_bf16(u) && u.block_rows >= kLeastAmxRows && u.k.head_dim % kAmxKeys == 0 &&
         u.v.head_dim % kPanel == 0;
}

/// A head's values of one tile of keys: [32 tokens][16 dims] a tile, [head_dim / 16][blocks of 32].
struct ValueTiles {
  std::byte* at = nullptr;
  int64_t head_dim = 0, blocks = 0;
  uint32_t infinite = 0;  // bit b: block b has a value that is not finite

  std::byte* tile(int64_t block, int64_t dim) const {
    return at + (dim / kPanel * blocks + block) * kAmxTileBytes;
  }
  /// 16 dims of a pair of tokens of panel p.
  std::byte* line(int64_t p, int64_t pair, int64_t dim) const {
    return tile(p / 2, dim) + p % 2 * kHalfTile + pair * kAmxRowBytes;
  }
};

/// The largest magnitudes of bf16, of each place of a cache line: as integers.
struct LargestOfLine {
  uint16_t most[kAmxKeys] = {};

  void take(const std::byte* line) {
    uint16_t bits[kAmxKeys];
    std::memcpy(bits, line, sizeof bits);
    for (int i = 0; i < kAmxKeys; ++i) {
      const auto magnitude = static_cast<uint16_t>(bits[i] & 0x7fffu);
      most[i] = magnitude > most[i] ? magnitude : most[i];
    }
  }
  bool finite() const {
    constexpr uint16_t kInf = 0x7f80;  // no edge: bits of a number
    uint16_t largest = 0;
    for (const uint16_t each : most) largest = each > largest ? each : largest;
    return largest < kInf;
  }
};

/// Token t (of 32) of a tile is 0.
void clear_token(std::byte* tile, int64_t t) {
  for (int64_t i = 0; i < kPanel; ++i)
    std::memset(tile + t / 2 * kAmxRowBytes + i * 4 + t % 2 * 2, 0, 2);
}

/// Latents: whoever asks for the keys has asked for the values.
bool values_lie_in_keys(const AttendUnit& u) {
  return u.v.data == u.k.data && u.v.order == u.k.order && u.v.page_stride == u.k.page_stride &&
         u.v.token_stride == u.k.token_stride && u.v.head_dim <= u.k.head_dim;
}

/// Lines of memory that are read next. A step of a product asks for a few of them: whoever asks for
/// many at once waits for them.
class LinesAhead {
 public:
  void clear() { count_ = run_ = 0; }
  void add(const NextPanels& next, int64_t panel_bytes) {
    for (int64_t p = 0; p < kTilePanels; ++p) {
      if (next.at(p) != nullptr) runs_[count_++] = {next.at(p), panel_bytes};
    }
  }
  /// So many calls of ask() come.
  void share(int64_t asks) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < count_; ++i) bytes += runs_[i].bytes;
    lines_ = (bytes / kLine + asks - 1) / asks;
    byte_ = 0;
  }
  void ask() {
    for (int64_t n = 0; n < lines_ && run_ < count_; ++n, byte_ += kLine) {
      prefetch(runs_[run_].at + byte_);
      if (byte_ + kLine >= runs_[run_].bytes) ++run_, byte_ = -kLine;
    }
  }

 private:
  static constexpr int64_t kLine = 64;  // no edge: bytes
  struct Run {
    const std::byte* at;
    int64_t bytes;
  };
  Run runs_[2 * kTilePanels];
  int64_t count_ = 0, run_ = 0, byte_ = 0, lines_ = 0;
};

template <class Tiles>
class TileAttention {
 public:
  explicit TileAttention(const AttendUnit& u)
      : u_(u),
        rows_(head_rows(u)),
        at_(attend_scratch(u.heads * rows_, u.k.head_dim, u.v.head_dim, u.tile)),
        keys_(panel_source(u, true, true, false, u.scratch + at_.k)),
        values_(panel_source(u, false, true, false, u.scratch + at_.v)) {
    if (values_lie_in_keys(u)) values_.ahead = AskAhead::kNever;
  }

  void run() {
    begin_rows();
    int64_t tile = u_.begin / u_.tile * u_.tile;
    TilePlaces here = tile_places(u_, tile);
    for (; tile < u_.end; tile += u_.tile) {
      const TilePlaces after = places_after(u_, tile);
      for (int64_t head = 0; head < u_.heads; ++head) attend_head(here, after, head, tile);
      here = after;
    }
    tiles_.release();
    end_rows(u_, at_, u_.heads * rows_);
  }

 private:
  /// Rows of a head over one tile of keys; panels first .. last are those that some row sees.
  struct Strip {
    int64_t row, rows, first = 0, last = -1;
  };
  /// One head over one tile of keys.
  struct HeadTile {
    int64_t head, tile;
    Panels keys;
    ValueTiles values;
  };

  std::byte* q_rows() const { return reinterpret_cast<std::byte*>(u_.scratch + at_.q); }
  int64_t q_bytes() const { return int64_t{u_.k.head_dim} * 2; }
  int64_t token_of(int64_t row) const { return row / u_.group; }

  void begin_rows() {
    for (int64_t head = 0; head < u_.heads; ++head) {
      for (int64_t i = 0; i < rows_; ++i) {
        const int64_t r = head * rows_ + i;
        clear_row(u_, at_, r);
        if (u_.same_rows) continue;
        std::memcpy(q_rows() + r * q_bytes(),
                    q_row(u_, token_of(i), head * u_.group + i % u_.group),
                    static_cast<size_t>(q_bytes()));
      }
    }
  }

  void attend_head(const TilePlaces& here, const TilePlaces& after, int64_t head, int64_t tile) {
    keys_.kv = at_head(u_.k, head), values_.kv = at_head(u_.v, head);
    const KvBounds bounds = {larger(u_.begin, tile), smaller(u_.end, tile + u_.tile)};
    HeadTile h = {head, tile, {}, {}};
    prepare_panels(u_, keys_, here.k, tile, bounds, head, &h.keys);
    h.values = copy_values(here.v, bounds, h);
    look_ahead(here, after, head, (bounds.end - bounds.begin + kAmxKeys - 1) / kAmxKeys);
    for (int64_t row = 0; row < rows_; row += kAmxStripRows) {
      const Strip s = strip_at(h, row);
      if (s.first > s.last) continue;
      logits_of(h, s);
      weigh(h, s);
      add_values(h, s);
    }
  }

  /// The products of the head and tile are over so many blocks of 32 keys.
  void look_ahead(const TilePlaces& here, const TilePlaces& after, int64_t head, int64_t blocks) {
    const int64_t strips = (rows_ + kAmxStripRows - 1) / kAmxStripRows;
    ahead_.clear();
    ahead_.add(next_panels(u_, keys_, head, here.k, after.k), int64_t{2} * kPanel * u_.k.head_dim);
    ahead_.add(next_panels(u_, values_, head, here.v, after.v),
               int64_t{2} * kPanel * u_.v.head_dim);
    ahead_.share(strips * blocks * (u_.k.head_dim + u_.v.head_dim) / kAmxKeys);
  }

  Strip strip_at(const HeadTile& h, int64_t row) const {
    Strip s = {row, smaller(kAmxStripRows, rows_ - row)};
    int64_t begin = u_.end, end = 0;
    for (int64_t token = token_of(row); token <= token_of(row + s.rows - 1); ++token) {
      const KvBounds keys = token_keys(u_, token, h.tile);
      if (keys.begin < keys.end) begin = smaller(begin, keys.begin), end = larger(end, keys.end);
    }
    if (begin < end) s.first = (begin - h.tile) / kPanel, s.last = (end - 1 - h.tile) / kPanel;
    return s;
  }

  float* logits(int64_t i) const { return u_.scratch + at_.logits + i * kTileStride; }

  void logits_of(const HeadTile& h, const Strip& s) {
    tiles_.set_rows(s.rows);
    for (int64_t p = s.first; p <= s.last; p += 2) {
      const bool two = p < s.last;
      const TileProduct product = {q_rows() + (h.head * rows_ + s.row) * q_bytes(),
                                   q_bytes(),
                                   {h.keys.at[p], two ? h.keys.at[p + 1] : nullptr},
                                   kAmxTileBytes,
                                   u_.k.head_dim / kAmxKeys,
                                   logits(0) + p * kPanel,
                                   kTileStride,
                                   false};
      const auto between = [this]() SG_INLINE_LAMBDA { ahead_.ask(); };
      two ? tiles_.template product<2>(product, between)
          : tiles_.template product<1>(product, between);
    }
  }

  /// The strip's logits become weights; the states of its rows follow. Logits are scaled as weights
  /// are made of them, unless a cap or the sign of the scale is in the way.
  void weigh(const HeadTile& h, const Strip& s) const {
    const bool scaled = u_.soft_cap != 0 || !(u_.scale > 0);
    const bool last_tile = h.tile + u_.tile >= u_.end;
    int64_t token = token_of(s.row);
    for (int64_t i = 0; i < s.rows; ++token) {
      const RowMask mask = clipped(u_, token, h.tile);
      const uint32_t masked =
          u_.soft_cap != 0 ? ~0u : hidden_panels(u_, mask, h.tile, s.first, s.last);
      for (const int64_t end = smaller(s.rows, (token + 1) * u_.group - s.row); i < end; ++i) {
        float* row = logits(i);
        if (scaled) scale_logits(row, s);
        float largest = -kInfinity;
        each_run(masked, s.first, s.last, [&](int64_t first, int64_t past, bool hidden) {
          const float most = hidden ? mask_logits(u_, mask, h.tile, first, past - 1, row)
                                    : reduce_max(largest_of(row, first, past));
          largest = most > largest ? most : largest;
        });
        const float scale = scaled ? 1 : u_.scale;
        weigh_row<TileArithmetic>(u_, at_, h.head * rows_ + s.row + i,
                                  {row, s.first, s.last, nullptr, scale}, largest * scale);
        // The other half of a tile that begins or ends with half of its keys
        if (s.first % 2 != 0) store_weights_bf16(row, s.first - 1, set1(0));
        if (s.last % 2 == 0) store_weights_bf16(row, s.last + 1, set1(0));
        if (!last_tile) continue;
        ask_for_row(u_, u_.next_q, h.head, token, s.row + i);
        ask_for_row(u_, u_.out, h.head, token, s.row + i);
      }
    }
  }

  void scale_logits(float* row, const Strip& s) const {
    const Vec scale = set1(u_.scale);
    for (int64_t p = s.first; p <= s.last; ++p)
      store(row + p * kPanel, mul(load(row + p * kPanel), scale));
  }

  /// The largest of each lane of panels [first, end).
  static Vec largest_of(const float* row, int64_t first, int64_t end) {
    Vec largest = set1(-kInfinity);
    for (int64_t p = first; p < end; ++p) largest = max(largest, load(row + p * kPanel));
    return largest;
  }

  ValueTiles copy_values(const PanelPlaces& places, KvBounds keys, const HeadTile& h) const {
    ValueTiles to = {reinterpret_cast<std::byte*>(u_.scratch + at_.v), u_.v.head_dim,
                     u_.tile / kAmxKeys};
    const int64_t first = (keys.begin - h.tile) / kPanel, last = (keys.end - 1 - h.tile) / kPanel;
    const int64_t offset = head_bytes(values_.kv, h.head), panels = last - first + 1;
    const KvBounds all = seen_by_all(h.tile);
    for (int64_t p = first; p <= last; ++p) {
      if (values_.ahead == AskAhead::kWhilePacking)
        prefetch_rows(u_, false, h.tile, h.head * panels + p - first, u_.heads * panels);
      const std::byte* place = places.at[p] == nullptr ? nullptr : places.at[p] + offset;
      const int64_t key = h.tile + p * kPanel;
      if (values_.strided()) {
        pack_panel(rows_of_panel(u_, values_.kv, place, key, keys), p, to);
      } else {
        copy_panel(place, p, to);
      }
      const bool seen = all.begin <= key && key + kPanel <= all.end;
      if (!seen && !is_finite(p, to)) to.infinite |= 1u << p / 2;
    }
    const auto clear_panel = [&](int64_t p) {
      for (int64_t d = 0; d < to.head_dim; d += kPanel) std::memset(to.line(p, 0, d), 0, kHalfTile);
    };
    if (first % 2 != 0) clear_panel(first - 1);
    if (last % 2 == 0) clear_panel(last + 1);
    return to;
  }

  /// The tile's keys that every row sees: what they multiply may be anything.
  KvBounds seen_by_all(int64_t tile) const {
    KvBounds all = {tile, u_.mask_kind == CustomMask::Kind::kNone ? tile + u_.tile : tile};
    for (int64_t token = 0; token < u_.tokens; ++token) {
      const KvBounds keys = token_keys(u_, token, tile);
      all = {larger(all.begin, keys.begin), smaller(all.end, keys.end)};
    }
    return all;
  }

  /// Dims by dims: the tiles of neighbouring dims lie a power of two apart.
  static void pack_panel(const PanelRows& rows, int64_t p, const ValueTiles& to) {
    for (int64_t d = 0; d < to.head_dim; d += kPanel) {
      for (int64_t pair = 0; pair < kPanel / 2; ++pair)
        store_bits(to.line(p, pair, d),
                   bf16_pairs(rows.at[2 * pair] + d * 2, rows.at[2 * pair + 1] + d * 2));
    }
  }

  static void copy_panel(const std::byte* from, int64_t p, const ValueTiles& to) {
    for (int64_t first = 0; first < to.head_dim; first += kValueBlockDims) {
      const int64_t end = smaller(to.head_dim, first + kValueBlockDims);
      for (int64_t pair = 0; pair < kPanel / 2; ++pair) {
        for (int64_t d = first; d < end; d += kPanel, from += kAmxRowBytes)
          store_bits(to.line(p, pair, d), load_f32(from));
      }
    }
  }

  static bool is_finite(int64_t p, const ValueTiles& values) {
    LargestOfLine largest;
    for (int64_t d = 0; d < values.head_dim; d += kPanel) {
      for (int64_t pair = 0; pair < kPanel / 2; ++pair) largest.take(values.line(p, pair, d));
    }
    return largest.finite();
  }

  /// In the order of the keys: blocks of finite values together, others row by row.
  void add_values(const HeadTile& h, const Strip& s) {
    for (int64_t block = s.first / 2, end = s.last / 2 + 1, next; block < end; block = next) {
      next = block + 1;
      if ((h.values.infinite >> block & 1) != 0) {
        add_block_by_tokens(h, s, block);
        continue;
      }
      while (next < end && (h.values.infinite >> next & 1) == 0) ++next;
      add_rows(h, s, s.row, s.rows, {.block = block, .steps = next - block});
    }
  }

  /// Blocks of weights, and their values: in `tiles`, or in one tile of 16 dims after the other.
  struct Blocks {
    int64_t block, steps;
    const std::byte* dims = nullptr;  // of block 0, from dim `first_dim` on
    int64_t first_dim = 0;
  };

  /// Rows [row, row + rows) of the head, of the strip's.
  void add_rows(const HeadTile& h, const Strip& s, int64_t row, int64_t rows, const Blocks& b) {
    tiles_.set_rows(rows);
    const auto between = [this]() SG_INLINE_LAMBDA { ahead_.ask(); };
    const int64_t end = b.dims == nullptr ? h.values.head_dim : b.first_dim + kPanel;
    for (int64_t d = b.first_dim; d < end; d += 2 * kPanel) {
      const bool two = d + kPanel < end;
      const std::byte* first = b.dims == nullptr ? h.values.tile(b.block, d) : b.dims;
      const TileProduct product = {
          reinterpret_cast<const std::byte*>(logits(row - s.row)) + b.block * kAmxRowBytes,
          kTileStride * static_cast<int64_t>(sizeof(float)),
          {first, two ? h.values.tile(b.block, d + kPanel) : nullptr},
          kAmxTileBytes,
          b.steps,
          u_.o + (h.head * rows_ + row) * u_.o_stride + d,
          u_.o_stride,
          true};
      two ? tiles_.template product<2>(product, between)
          : tiles_.template product<1>(product, between);
    }
  }

  /// Each token's rows onto the values that it sees, the others 0.
  void add_block_by_tokens(const HeadTile& h, const Strip& s, int64_t block) {
    for (int64_t row = s.row, next; row < s.row + s.rows; row = next) {
      const int64_t token = token_of(row);
      next = smaller((token + 1) * u_.group, s.row + s.rows);
      const RowMask mask = clipped(u_, token, h.tile);
      const int64_t key = h.tile + block * kAmxKeys;
      const uint32_t seen = visible_bits(u_, mask, key) | visible_bits(u_, mask, key + kPanel)
                                                              << kPanel;
      for (int64_t d = 0; seen != 0 && d < h.values.head_dim; d += kPanel) {
        alignas(64) std::byte tile[kAmxTileBytes];
        std::memcpy(tile, h.values.tile(block, d), sizeof tile);
        for (int64_t t = 0; t < kAmxKeys; ++t) {
          if ((seen >> t & 1) == 0) clear_token(tile, t);
        }
        add_rows(h, s, row, next - row, {block, 1, tile, d});
      }
    }
  }

  const AttendUnit& u_;
  const int64_t rows_;  // of a head
  const AttendScratch at_;
  PanelSource keys_, values_;
  LinesAhead ahead_;
  Tiles tiles_;
};

/// c = or += one product of `rows` rows, columns of both tiles of b or of the one there is.
template <class Tiles>
void multiply(const TileProduct& p, int64_t rows) {
  Tiles tiles;
  tiles.set_rows(rows);
  const auto none = [] {};
  p.b[1] != nullptr ? tiles.template product<2>(p, none) : tiles.template product<1>(p, none);
  tiles.release();
}
