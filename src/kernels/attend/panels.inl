// The panels of a tile: the cache's own where it holds them, else packed into scratch, once for all
// rows of the unit.

/// How a panel's elements lie when the products read them.
enum class PanelFormat : uint8_t { kF32, kF16, kBF16, kE4M3, kE5M2, kI8 };

/// Keys begin <= k < end of one tile.
struct KvBounds {
  int64_t begin, end;
};

struct PanelSource {
  KvTokens kv;
  bool keys = false;
  PanelFormat format = PanelFormat::kF32;
  bool in_place = false;      // the cache's panels are in that format
  std::byte* room = nullptr;  // else: of the tile's panels
  int64_t room_bytes = 0;     // of one of them
};

/// More rows than these are worth a pass that makes f32 of a narrow tile first.
constexpr int64_t kWidenRows = 2 * kMostStripRows;

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

/// narrow: the products read the cache's own type, if they can have it without a conversion pass.
PanelSource panel_source(const KvTokens& kv, bool keys, bool narrow, float* room) {
  PanelSource s{kv, keys};
  const bool panels = kv.order != KvOrder::kStrided;
  // Packing costs less as bf16 pairs; every other type widens while it is packed.
  if (narrow && (panels || kv.dtype == DType::kBF16)) s.format = panel_format(kv.dtype);
  s.in_place = panels && s.format == panel_format(kv.dtype);
  s.room = reinterpret_cast<std::byte*>(room);
  s.room_bytes = 4 * kPanel * round_up(kv.head_dim, keys ? 2 : kPanel);
  return s;
}

const std::byte* token_address(const AttendUnit& u, const KvTokens& kv, int64_t token) {
  const int64_t element = token_offset(kv, u.page_ids, u.page_size, token);
  return kv.data + element * static_cast<int64_t>(size_of(kv.dtype));
}

/// The same plane, of the head-th KV head of the unit.
KvTokens at_head(KvTokens kv, int64_t head_stride, int64_t head) {
  kv.data += head * head_stride * static_cast<int64_t>(size_of(kv.dtype));
  if (kv.scales != nullptr) kv.scales += head * kv.scale_head_stride;
  return kv;
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

/// The rows of a panel's tokens; a token outside `keys` has the row of one inside.
struct PanelRows {
  const std::byte* at[kPanel];
};
PanelRows rows_of_panel(const AttendUnit& u, const KvTokens& kv, int64_t first, KvBounds keys) {
  PanelRows rows;
  const int64_t begin = larger(first, keys.begin), end = smaller(first + kPanel, keys.end);
  for_each_token(kv, u.page_ids, u.page_size, begin, end,
                 [&](int64_t t, const std::byte* row) { rows.at[t - first] = row; });
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

void pack_keys(const PanelSource& s, const PanelRows& rows, std::byte* panel) {
  const bool pairs = s.format == PanelFormat::kBF16;
  const int64_t dims = pairs ? 2 * kPanel : kPanel, dim = s.kv.head_dim;
  const auto size = static_cast<int64_t>(size_of(s.kv.dtype));
  Vec block[kPanel];
  for (int64_t i = 0; i < dim; i += dims) {
    for (int t = 0; t < kPanel; ++t) {
      block[t] = pairs ? load_some_pairs(rows.at[t] + i * size, dim - i)
                       : load_some(rows.at[t] + i * size, s.kv.dtype, dim - i);
    }
    transpose(block);
    const int64_t steps = smaller(kPanel, pairs ? (dim - i + 1) / 2 : dim - i);
    for (int64_t k = 0; k < steps; ++k) {
      store_bits(panel, block[k]);
      panel += 4 * kPanel;
    }
  }
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
    default: return;
  }
}

void prefetch_row(const std::byte* row, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) prefetch(row + i);
}

/// Asks for rows that the next tile packs, of all heads of the unit: its share-th part of `shares`.
void prefetch_rows(const AttendUnit& u, bool keys, int64_t tile, int64_t share, int64_t shares) {
  const bool here = tile + u.tile < u.end;
  const KvTokens& kv = keys ? (here ? u.k : u.ahead.k) : (here ? u.v : u.ahead.v);
  if (kv.order != KvOrder::kStrided) return;
  const int64_t next = here ? tile + u.tile : u.ahead.begin;
  const int64_t end = smaller(here ? u.end : u.ahead.end, next + u.tile * (share + 1) / shares);
  const int64_t bytes = kv.head_dim * static_cast<int64_t>(size_of(kv.dtype));
  const int64_t stride = keys ? u.k_head_stride : u.v_head_stride;
  for_each_token(kv, here ? u.page_ids : u.ahead.page_ids, here ? u.page_size : u.ahead.page_size,
                 next + u.tile * share / shares, end, [&](int64_t, const std::byte* row) {
                   for (int64_t h = 0; h < u.heads; ++h)
                     prefetch_row(row + h * stride * static_cast<int64_t>(size_of(kv.dtype)),
                                  bytes);
                 });
}

/// Panels first .. last of the tile, which hold its keys, of the head-th KV head.
void prepare_panels(const AttendUnit& u, const PanelSource& s, int64_t tile, KvBounds keys,
                    int64_t head, Panels* panels) {
  const int64_t first = (keys.begin - tile) / kPanel, last = (keys.end - 1 - tile) / kPanel;
  const int64_t count = last - first + 1;
  for (int64_t p = first; p <= last; ++p) {
    const int64_t token = tile + p * kPanel;
    std::byte* room = s.room + p * s.room_bytes;
    panels->at[p] = panels->ahead[p] = room;
    if (s.kv.order != KvOrder::kStrided) {
      const std::byte* from = token_address(u, s.kv, token);
      if (s.in_place) {
        panels->at[p] = panels->ahead[p] = from;
      } else {
        widen_panel(s, from, room);
      }
      continue;
    }
    const PanelRows rows = rows_of_panel(u, s.kv, token, keys);
    prefetch_rows(u, s.keys, tile, head * count + p - first, u.heads * count);
    s.keys ? pack_keys(s, rows, room) : pack_values(s, rows, room);
  }
}

/// by[t] = factor * the scale of token tile + t, for the tile's keys; the others' may be anything
/// finite.
void tile_scales(const AttendUnit& u, const KvTokens& kv, int64_t tile, KvBounds keys, float factor,
                 float* by) {
  for (int64_t t = 0; t < u.tile; t += kPanel) store(by + t, set1(factor));
  if (kv.scales == nullptr) return;
  for (int64_t t = keys.begin; t < keys.end; ++t) {
    const int64_t page = u.page_ids[t / u.page_size], in_page = t % u.page_size;
    by[t - tile] =
        factor * kv.scales[page * kv.scale_page_stride + in_page * kv.scale_token_stride];
  }
}

/// The panels that come after those of a tile and head: of the next head, of the next tile, or of
/// the next unit's first; null where there is none.
struct NextPanels {
  const std::byte* at[kTilePanels];
};
NextPanels next_panels(const AttendUnit& u, bool keys, int64_t tile, int64_t head) {
  const bool same_tile = head + 1 < u.heads;
  const bool here = same_tile || tile + u.tile < u.end;
  const KvTokens& first = keys ? (here ? u.k : u.ahead.k) : (here ? u.v : u.ahead.v);
  const KvTokens kv =
      at_head(first, keys ? u.k_head_stride : u.v_head_stride, same_tile ? head + 1 : 0);
  int64_t token = same_tile ? tile : here ? tile + u.tile : u.ahead.begin / kPanel * kPanel;
  const int64_t end = kv.order == KvOrder::kStrided ? token : here ? u.end : u.ahead.end;
  const int64_t begin = here ? u.begin / kPanel * kPanel : token;
  NextPanels next;
  for (int64_t p = 0; p < u.tile / kPanel; ++p, token += kPanel) {
    next.at[p] = nullptr;
    if (token < begin || token >= end) continue;
    const int64_t element = here ? token_offset(kv, u.page_ids, u.page_size, token)
                                 : token_offset(kv, u.ahead.page_ids, u.ahead.page_size, token);
    next.at[p] = kv.data + element * static_cast<int64_t>(size_of(kv.dtype));
  }
  return next;
}

/// Panels first .. last ask for those of `next` whose turn it is: that part of them which rows
/// [row, row + count) are of all rows.
void share_ahead(const NextPanels& next, int64_t row, int64_t count, int64_t rows, int64_t first,
                 int64_t last, Panels* panels) {
  const int64_t all = last - first + 1;
  const int64_t begin = first + all * row / rows, end = first + all * (row + count) / rows;
  for (int64_t p = first; p <= last; ++p) {
    const bool turn = p >= begin && p < end && next.at[p] != nullptr;
    panels->ahead[p] = turn ? next.at[p] : panels->at[p];
  }
}
