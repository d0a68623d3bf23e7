#include "faults/tiles.h"

#include "faults/lists.h"

namespace shadowgraph {
namespace {

constexpr int64_t kTileKeys = 4, kMaskTile = 16, kWrapped = 15;

/// Places in the list of keys, row by row, become a list and offsets of the kernel's own.
void list_anew(TiledAttention& c, SlippedRun& run, const std::vector<std::vector<int64_t>>& rows) {
  std::vector<int32_t> indptr = {0}, ids;
  std::vector<int64_t> places;
  for (const std::vector<int64_t>& row : rows) {
    for (const int64_t at : row)
      ids.push_back(at < std::ssize(c.kv_indices) ? c.kv_indices[static_cast<size_t>(at)] : 0);
    places.insert(places.end(), row.begin(), row.end());
    indptr.push_back(static_cast<int32_t>(ids.size()));
  }
  c.kv_indices = run.take(c.kv_indices, std::move(ids), std::move(places));
  c.kv_indptr = run.take(c.kv_indptr, std::move(indptr));
}

std::vector<int64_t> places(int64_t begin, int64_t count) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(begin + i);
  return all;
}

void chunk_of_part_tiles(const KernelLaunch& clean, SlippedRun& run) {
  auto [c, of] = tile_call(clean);
  const std::span<const int32_t> size = run.load(c.plan.kv_chunk_size);
  const int32_t chunk = size.empty() ? 0 : size[0];
  const int64_t whole = chunk <= 0 ? 0 : pages_for(chunk, kTileKeys) * kTileKeys;
  if (whole <= chunk || whole > INT32_MAX) return run.launch(clean);
  std::vector<std::vector<int64_t>> rows;
  for (const auto& row : ids_of(c).rows) {
    std::vector<int64_t>& all = rows.emplace_back();
    for (int64_t first = 0; first < row.count; first += chunk) {
      const int64_t rest = row.count - first;
      const std::vector<int64_t> more = places(row.begin + first, rest > chunk ? whole : rest);
      all.insert(all.end(), more.begin(), more.end());
    }
  }
  list_anew(c, run, rows);
  c.plan.kv_chunk_size = run.take(c.plan.kv_chunk_size, std::vector{static_cast<int32_t>(whole)});
  run.launch(tile_launch(c, of));
}

void mask_bits_of_few_bits(const KernelLaunch& clean, SlippedRun& run) {
  constexpr int64_t kBytes = 16 / 8;
  auto [c, of] = tile_call(clean);
  const int64_t size = std::ssize(c.packed_mask);
  std::vector<uint8_t> bytes(c.packed_mask.begin(), c.packed_mask.end());
  std::vector<int64_t> from = places(0, size);
  const auto mask_indptr = run.load(c.mask_indptr);
  for (size_t i = 0; i + 1 < mask_indptr.size(); ++i) {
    const int64_t begin = std::clamp<int64_t>(mask_indptr[i], 0, size);
    const int64_t end = std::clamp<int64_t>(mask_indptr[i + 1], begin, size);
    for (int64_t at = begin + kBytes; at < end; ++at) {
      const int64_t wrapped = begin + (at - begin) % kBytes;
      bytes[static_cast<size_t>(at)] = c.packed_mask[static_cast<size_t>(wrapped)];
      from[static_cast<size_t>(at)] = wrapped;
    }
  }
  c.packed_mask = run.take(c.packed_mask, std::move(bytes), std::move(from));
  run.launch(tile_launch(c, of));
}

void empty_list_wraps(const KernelLaunch& clean, SlippedRun& run) {
  auto [c, of] = tile_call(clean);
  std::vector<std::vector<int64_t>> rows;
  for (const auto& row : ids_of(c).rows)
    rows.push_back(places(row.begin, row.count > 0 ? row.count : kWrapped));
  list_anew(c, run, rows);
  run.launch(tile_launch(c, of));
}

void mask_of_whole_tiles(const KernelLaunch& clean, SlippedRun& run) {
  run.launch(clean);
  const TiledAttention c = tile_call(clean).call;
  const auto up = [](int64_t n) { return pages_for(n, kMaskTile) * kMaskTile; };
  const auto mask_indptr = run.load(c.mask_indptr);
  const auto qo_indptr = run.load(c.qo_indptr), kv_indptr = run.load(c.kv_indptr);
  for (size_t i = 0; i + 1 < std::min(mask_indptr.size(), qo_indptr.size()); ++i) {
    const int64_t queries = qo_indptr[i + 1] - qo_indptr[i], keys = kv_indptr[i + 1] - kv_indptr[i];
    if (queries <= 0 || keys <= 0) continue;
    const int64_t last = (up(queries) - 1) * keys + up(keys) - 1;
    run.note({c.packed_mask.data(), mask_indptr[i], last / 8 + 1, 1, Access::kRead});
  }
}

/// fn(call) of launches by a plan.
template <class Fn>
auto of_tiles(Fn fn) {
  return [fn](const KernelLaunch& launch) {
    return launch.kernel == &kTiledAttention && fn(tile_call(launch).call);
  };
}

bool has_mask(const TiledAttention& c) { return !c.mask_indptr.empty(); }

}  // namespace

void ChunkOfPartTiles::launches(std::vector<TappedLaunch>& all, const Meta&, bool) {
  const auto cuts_decodes = [](const TiledAttention& c) {
    return c.plan.split_kv && c.qo_indptr.empty() && c.params.window_left < 0;
  };
  act(substitute<chunk_of_part_tiles>(all, of_tiles(cuts_decodes)));
}

void MaskBitsOfFewBits::launches(std::vector<TappedLaunch>& all, const Meta&, bool) {
  act(substitute<mask_bits_of_few_bits>(all, of_tiles(has_mask)));
}

void EmptyListWraps::launches(std::vector<TappedLaunch>& all, const Meta&, bool) {
  const auto paged = [](const TiledAttention& c) { return c.cache.num_pages > 0; };
  act(substitute<empty_list_wraps>(all, of_tiles(paged)));
}

void MaskOfWholeTiles::launches(std::vector<TappedLaunch>& all, const Meta&, bool) {
  act(substitute<mask_of_whole_tiles>(all, of_tiles(has_mask)));
}

}  // namespace shadowgraph
