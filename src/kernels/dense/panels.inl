// The panels of a tile: the cache's own where it holds them, else packed into scratch, once for all
// rows of the unit.

/// How a panel's elements lie when the products read them.
enum class PanelFormat : uint8_t { kF32, kF16, kBF16, kBF16Rows, kE4M3, kE5M2, kI8 };

/// Keys begin <= k < end of one tile.
struct KvBounds {
  int64_t begin, end;
};

/// When the next tile's memory is asked for.
enum class AskAhead : uint8_t {
  kNever,
  kWhilePacking,  // rows with gaps between them: some before each panel
  kWhileReading   // panels, and rows that lie in one piece: line by line, as a panel is read
};

struct PanelSource {
  KvTokens kv;
  bool keys = false;
  PanelFormat format = PanelFormat::kF32;
  bool in_place = false;  // read where the cache has them
  AskAhead ahead = AskAhead::kNever;
  std::byte* room = nullptr;  // where not in place: of the tile's panels
  int64_t room_bytes = 0;     // of one of them

  bool strided() const { return kv.order == KvOrder::kStrided; }
};

/// More rows than these are worth a pass that makes f32 of a narrow tile first.
constexpr int64_t kWidenRows = 2 * kMostStripRows;  // edge: query_rows
/// So many rows are worth a copy of a tile's f32 values. Panels of a head lie a power of two apart,
/// and those of a tile's keys and values, and of the next tile's, may be more than what
/// second-level caches hold of such addresses.
constexpr int64_t kCopyRows = 4 * kMostStripRows;  // edge: query_rows

constexpr PanelFormat panel_format(DType t) {
  switch (t) {
    case DType::kF16: return PanelFormat::kF16;
    case DType::kBF16: return PanelFormat::kBF16;
    case DType::kE4M3: return PanelFormat::kE4M3;
    case DType::kE5M2: return PanelFormat::kE5M2;
    case DType::kI8: return PanelFormat::kI8;
    default: return PanelFormat::kF32;
  }
}

/// Do a panel's tokens lie one stride apart?
bool whole_pages(const int32_t* page_ids, int32_t page_size) {
  return page_ids == nullptr || page_size % kPanel == 0;
}
/// Do a panel's rows, of all heads of the unit, lie in one piece?
bool dense_rows(const AttendUnit& u, const KvTokens& kv) {
  return whole_pages(u.page_ids, u.page_size) && kv.token_stride == u.heads * kv.head_dim &&
         (u.heads == 1 || kv.head_stride == kv.head_dim);
}

/// Rows of one KV head.
int64_t head_rows(const AttendUnit& u) { return int64_t{u.tokens} * u.group; }

/// narrow: the products read the cache's own type, if they can have it without a conversion pass;
/// rows: and values token by token, as the caller has them.
PanelSource panel_source(const AttendUnit& u, bool keys, bool narrow, bool rows, float* room) {
  const KvTokens& kv = keys ? u.k : u.v;
  PanelSource s{kv, keys};
  const bool as_rows = s.strided() && !keys && narrow && rows &&
                       whole_pages(u.page_ids, u.page_size) && kv.head_dim % kPanel == 0 &&
                       kv.token_stride != 0;  // a step of 0 says that panels are packed
  // Packing costs less as bf16 pairs; every other type widens while it is packed.
  const bool as_is = narrow && (!s.strided() || as_rows || kv.dtype == DType::kBF16);
  const PanelFormat own =
      as_rows && kv.dtype == DType::kBF16 ? PanelFormat::kBF16Rows : panel_format(kv.dtype);
  if (as_is) s.format = own;
  const bool same = s.format == own;
  const bool copies = !keys && same && own == PanelFormat::kF32 && head_rows(u) >= kCopyRows;
  s.in_place = as_rows || (!s.strided() && same && !copies);
  if (!s.strided()) {
    if (same) s.ahead = AskAhead::kWhileReading;
  } else {
    const bool same_bytes = as_is || kv.dtype == DType::kF32;
    s.ahead = dense_rows(u, kv) && same_bytes ? AskAhead::kWhileReading : AskAhead::kWhilePacking;
  }
  s.room = reinterpret_cast<std::byte*>(room);
  s.room_bytes = 4 * kPanel * round_up(kv.head_dim, keys ? 2 : kPanel);
  return s;
}

/// fn(t, address) for tokens first <= t < end, one after the other.
template <class Fn>
void for_each_token(const KvTokens& kv, const int32_t* page_ids, int32_t page_size, int64_t first,
                    int64_t end, const Fn& fn) {
  const auto size = static_cast<int64_t>(size_of(kv.dtype));
  for (int64_t t = first; t < end;) {
    const std::byte* at = kv.data + token_offset(kv, page_ids, page_size, t) * size;
    int64_t stop = end;
    if (page_ids != nullptr) stop = smaller(end, t - t % page_size + page_size);
    for (; t < stop; ++t, at += kv.token_stride * size) fn(t, at);
  }
}

/// Where the panels of a tile lie in the cache, at the unit's first head (of rows: their first
/// token); null where the tile has no key, and where a panel's tokens lie in several pages.
struct PanelPlaces {
  const std::byte* at[kTilePanels];
};
/// keys: of one tile, which begins at `tile`.
PanelPlaces panel_places(const KvTokens& kv, const int32_t* page_ids, int32_t page_size,
                         int64_t tile, KvBounds keys) {
  PanelPlaces places = {};
  if (keys.begin >= keys.end || !whole_pages(page_ids, page_size)) return places;
  const auto size = static_cast<int64_t>(size_of(kv.dtype));
  const int64_t step = (kv.order == KvOrder::kStrided ? kPanel : 1) * kv.token_stride * size;
  const int64_t last = (keys.end - 1 - tile) / kPanel;
  int64_t p = (keys.begin - tile) / kPanel;
  const int64_t number = tile / kPanel + p;
  if (page_ids == nullptr) {
    for (int64_t i = number; p <= last; ++p, ++i) places.at[p] = kv.data + i * step;
    return places;
  }
  // One division a tile: one a panel would be a good part of what reading it costs.
  const auto panels = static_cast<uint32_t>(page_size) / kPanel;
  uint32_t page = static_cast<uint32_t>(number) / panels;
  for (uint32_t in_page = static_cast<uint32_t>(number) % panels; p <= last; ++p) {
    places.at[p] = kv.data + page_ids[page] * kv.page_stride * size + in_page * step;
    if (++in_page == panels) ++page, in_page = 0;
  }
  return places;
}

/// K and V of a tile.
struct TilePlaces {
  PanelPlaces k, v;
};
TilePlaces tile_places(const AttendUnit& u, int64_t tile) {
  const KvBounds keys = {larger(u.begin, tile), smaller(u.end, tile + u.tile)};
  return {panel_places(u.k, u.page_ids, u.page_size, tile, keys),
          panel_places(u.v, u.page_ids, u.page_size, tile, keys)};
}
/// What is read after a tile: the next one, or the first keys of the next unit.
TilePlaces places_after(const AttendUnit& u, int64_t tile) {
  if (tile + u.tile < u.end) return tile_places(u, tile + u.tile);
  const KvAhead& a = u.ahead;
  const int64_t first = a.begin / kPanel * kPanel;
  const KvBounds keys = {a.begin, smaller(a.end, first + u.tile)};
  return {panel_places(a.k, a.page_ids, a.page_size, first, keys),
          panel_places(a.v, a.page_ids, a.page_size, first, keys)};
}

/// The rows of a panel's tokens; a token outside `keys` has the row of one inside.
struct PanelRows {
  const std::byte* at[kPanel];
};
/// place: of the panel's first token, if its tokens lie one stride apart.
PanelRows rows_of_panel(const AttendUnit& u, const KvTokens& kv, const std::byte* place,
                        int64_t first, KvBounds keys) {
  PanelRows rows;
  const int64_t begin = larger(first, keys.begin), end = smaller(first + kPanel, keys.end);
  if (place != nullptr) {
    const int64_t step = kv.token_stride * static_cast<int64_t>(size_of(kv.dtype));
    for (int64_t t = begin - first; t < end - first; ++t) rows.at[t] = place + t * step;
  } else {
    for_each_token(kv, u.page_ids, u.page_size, begin, end,
                   [&](int64_t t, const std::byte* row) { rows.at[t - first] = row; });
  }
  for (int64_t t = first; t < begin; ++t) rows.at[t - first] = rows.at[begin - first];
  for (int64_t t = end; t < first + kPanel; ++t) rows.at[t - first] = rows.at[begin - first];
  return rows;
}

/// Up to 16 elements from p as f32, the rest 0.
Vec load_some(const std::byte* p, DType t, int64_t n) {
  if (n >= kPanel) return load16(p, t);
  float some[kPanel];
  widen(p, t, n, some);
  return load(some);
}

/// 16 pairs of bf16, bit by bit, n of them from p.
Vec load_some_pairs(const std::byte* p, int64_t elements) {
  if (elements >= 2 * kPanel) return load_f32(p);
  std::byte some[4 * kPanel] = {};
  std::memcpy(some, p, static_cast<size_t>(2 * elements));
  return load_f32(some);
}

/// The same for n dims of two tokens.
Vec load_some_tokens(const std::byte* first, const std::byte* second, int64_t n) {
  if (n >= kPanel) return bf16_pairs(first, second);
  std::byte some[2][2 * kPanel] = {};
  std::memcpy(some[0], first, static_cast<size_t>(2 * n));
  std::memcpy(some[1], second, static_cast<size_t>(2 * n));
  return bf16_pairs(some[0], some[1]);
}

/// 16 tokens' dims i .. i + 15 (or as many pairs), transposed: load(row) has them of one token.
/// Unrolled, so that the block stays in registers.
template <class Load>
SG_INLINE void transpose_tokens(const PanelRows& rows, const Load& load, Vec (&block)[kPanel]) {
  for (int t = 0; t < kPanel; ++t) block[t] = load(rows.at[t]);
  transpose(block);
}

void pack_keys(const PanelSource& s, const PanelRows& rows, std::byte* panel) {
  const bool pairs = s.format == PanelFormat::kBF16;
  const int64_t dims = pairs ? 2 * kPanel : kPanel, dim = s.kv.head_dim;
  const DType type = s.kv.dtype;
  const auto size = static_cast<int64_t>(size_of(type));
  Vec block[kPanel];
  int64_t i = 0;
  for (; i + dims <= dim; i += dims, panel += kPanel * 4 * kPanel) {
    // A pair of bf16 travels as one f32.
    if (pairs || type == DType::kF32) {
      transpose_tokens(
          rows, [&](const std::byte* r) SG_INLINE_LAMBDA { return load_f32(r + i * size); }, block);
    } else {
      transpose_tokens(
          rows, [&](const std::byte* r) SG_INLINE_LAMBDA { return load16(r + i * size, type); },
          block);
    }
    for (int k = 0; k < kPanel; ++k) store_bits(panel + k * 4 * kPanel, block[k]);
  }
  if (i == dim) return;
  transpose_tokens(
      rows,
      [&](const std::byte* r) {
        return pairs ? load_some_pairs(r + i * size, dim - i)
                     : load_some(r + i * size, type, dim - i);
      },
      block);
  const int64_t steps = pairs ? (dim - i + 1) / 2 : dim - i;
  for (int64_t k = 0; k < steps; ++k) store_bits(panel + k * 4 * kPanel, block[k]);
}

void pack_values(const PanelSource& s, const PanelRows& rows, std::byte* panel) {
  const bool pairs = s.format == PanelFormat::kBF16;
  const int64_t dim = s.kv.head_dim, size = static_cast<int64_t>(size_of(s.kv.dtype));
  const int64_t padded = round_up(dim, kPanel);
  for (int64_t first = 0; first < padded; first += kValueBlockDims) {
    const int64_t end = smaller(padded, first + kValueBlockDims);
    for (int t = 0; t < kPanel; t += pairs ? 2 : 1) {
      for (int64_t i = first; i < end; i += kPanel, panel += 4 * kPanel) {
        const std::byte* row = rows.at[t] + i * size;
        if (!pairs) {
          store_bits(panel, load_some(row, s.kv.dtype, dim - i));
        } else {
          store_bits(panel, load_some_tokens(row, rows.at[t + 1] + i * size, dim - i));
        }
      }
    }
  }
}

/// A panel of the cache as f32.
template <class Format>
void widen_panel(const PanelSource& s, const std::byte* from, std::byte* to) {
  constexpr int64_t kVecBytes = int64_t{kPanel} * Format::kPair * Format::kBytes;
  const auto put = [](const std::byte* step, std::byte* even, std::byte* odd) {
    store_bits(even, Format::template lanes<0>(step));
    if (Format::kPair == 2) store_bits(odd, Format::template lanes<Format::kPair - 1>(step));
  };
  if (s.keys) {
    const int64_t steps = (s.kv.head_dim + Format::kPair - 1) / Format::kPair;
    for (int64_t i = 0; i < steps; ++i) {
      std::byte* even = to + i * Format::kPair * 4 * kPanel;
      put(from + i * kVecBytes, even, even + 4 * kPanel);
    }
    return;
  }
  const int64_t padded = round_up(s.kv.head_dim, kPanel);
  for (int64_t first = 0; first < padded; first += kValueBlockDims) {
    const int64_t width = 4 * smaller(kValueBlockDims, padded - first);  // bytes of a token
    for (int t = 0; t < kPanel; t += Format::kPair, to += Format::kPair * width) {
      for (int64_t i = 0; i < width; i += 4 * kPanel, from += kVecBytes)
        put(from, to + i, to + width + i);
    }
  }
}

void widen_panel(const PanelSource& s, const std::byte* from, std::byte* to) {
  switch (s.kv.dtype) {
    case DType::kF16: return widen_panel<F16Format>(s, from, to);
    case DType::kBF16: return widen_panel<BF16Format>(s, from, to);
    case DType::kE4M3: return widen_panel<E4M3Format>(s, from, to);
    case DType::kE5M2: return widen_panel<E5M2Format>(s, from, to);
    case DType::kI8: return widen_panel<I8Format>(s, from, to);
    default: std::memcpy(to, from, static_cast<size_t>(s.room_bytes)); return;
  }
}

void prefetch_row(const std::byte* row, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) prefetch(row + i);
}

/// Asks for rows that the next tile packs, of all heads of the unit: its share-th part of `shares`.
void prefetch_rows(const AttendUnit& u, bool keys, int64_t tile, int64_t share, int64_t shares) {
  const bool here = tile + u.tile < u.end;
  const KvTokens& kv = keys ? (here ? u.k : u.ahead.k) : (here ? u.v : u.ahead.v);
  const int64_t next = here ? tile + u.tile : u.ahead.begin;
  const int64_t end = smaller(here ? u.end : u.ahead.end, next + u.tile * (share + 1) / shares);
  const int64_t bytes = kv.head_dim * static_cast<int64_t>(size_of(kv.dtype));
  for_each_token(kv, here ? u.page_ids : u.ahead.page_ids, here ? u.page_size : u.ahead.page_size,
                 next + u.tile * share / shares, end, [&](int64_t, const std::byte* row) {
                   for (int64_t h = 0; h < u.heads; ++h)
                     prefetch_row(row + head_bytes(kv, h), bytes);
                 });
}

/// Panels first .. last of the tile, which hold its keys, of the head-th KV head.
void prepare_panels(const AttendUnit& u, const PanelSource& s, const PanelPlaces& places,
                    int64_t tile, KvBounds keys, int64_t head, Panels* panels) {
  const int64_t first = (keys.begin - tile) / kPanel, last = (keys.end - 1 - tile) / kPanel;
  const int64_t count = last - first + 1, offset = head_bytes(s.kv, head);
  if (s.strided() && s.in_place)
    panels->row_step = s.kv.token_stride * static_cast<int64_t>(size_of(s.kv.dtype));
  for (int64_t p = first; p <= last; ++p) {
    const std::byte* place = places.at[p] == nullptr ? nullptr : places.at[p] + offset;
    if (s.ahead == AskAhead::kWhilePacking)
      prefetch_rows(u, s.keys, tile, head * count + p - first, u.heads * count);
    std::byte* room = s.room + p * s.room_bytes;
    panels->at[p] = s.in_place ? place : room;
    if (s.in_place) continue;
    if (!s.strided()) {
      widen_panel(s, place, room);
      continue;
    }
    const PanelRows rows = rows_of_panel(u, s.kv, place, tile + p * kPanel, keys);
    s.keys ? pack_keys(s, rows, room) : pack_values(s, rows, room);
  }
}

/// by[t] = factor * the scale of token tile + t, for the tile's keys; the others' may be anything
/// finite.
void tile_scales(const AttendUnit& u, const KvTokens& kv, int64_t tile, KvBounds keys, float factor,
                 float* by) {
  for (int64_t t = 0; t < u.tile; t += kPanel) store(by + t, set1(factor));
  if (kv.scales == nullptr) return;
  for (int64_t t = keys.begin; t < keys.end; ++t)
    by[t - tile] = factor * kv.scales[scale_offset(kv, u.page_ids, u.page_size, t)];
}

/// What panels ask for while they are read: the same bytes of `places`, from `offset` on.
struct NextPanels {
  const PanelPlaces* places = nullptr;
  int64_t offset = 0;

  const std::byte* at(int64_t p) const {
    const std::byte* place = places == nullptr ? nullptr : places->at[p];
    return place == nullptr ? nullptr : place + offset;
  }
};
/// After a tile's panels of one head: those of the next head, or of the next tile. Of rows, which
/// lie in one piece for all heads: the head's part of the next tile's.
NextPanels next_panels(const AttendUnit& u, const PanelSource& s, int64_t head,
                       const PanelPlaces& here, const PanelPlaces& after) {
  if (s.ahead != AskAhead::kWhileReading) return {};
  if (s.strided())
    return {&after, head * kPanel * s.kv.head_dim * static_cast<int64_t>(size_of(s.kv.dtype))};
  if (head + 1 < u.heads) return {&here, head_bytes(s.kv, head + 1)};
  return {&after, 0};
}
