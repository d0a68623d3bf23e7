// Faults of kernels that run by a plan's tiles.

#include "faults/lists.h"

namespace shadowgraph {
namespace {

constexpr int64_t kChunkTile = 4, kMaskTile = 16, kWrapped = 15;

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
  auto [c, of] = call_of<TiledAttention>(clean);
  const std::span<const int32_t> size = run.load(c.plan.kv_chunk_size);
  const int32_t chunk = size.empty() ? 0 : size[0];
  const int64_t whole = chunk <= 0 ? 0 : pages_for(chunk, kChunkTile) * kChunkTile;
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
  auto [c, of] = call_of<TiledAttention>(clean);
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
  auto [c, of] = call_of<TiledAttention>(clean);
  std::vector<std::vector<int64_t>> rows;
  for (const auto& row : ids_of(c).rows)
    rows.push_back(places(row.begin, row.count > 0 ? row.count : kWrapped));
  list_anew(c, run, rows);
  run.launch(tile_launch(c, of));
}

void mask_of_whole_tiles(const KernelLaunch& clean, SlippedRun& run) {
  run.launch(clean);
  const TiledAttention c = call_of<TiledAttention>(clean).call;
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

/// Does fn(call) hold of a call by a plan?
template <class Fn>
bool is_tiled(const KernelLaunch& launch, Fn fn) {
  return launch.kernel == &kTiledAttention && fn(call_of<TiledAttention>(launch).call);
}
bool has_mask(const KernelLaunch& launch) {
  return is_tiled(launch, [](const auto& c) { return !c.mask_indptr.empty(); });
}
bool has_pages(const KernelLaunch& launch) {
  return is_tiled(launch, [](const auto& c) { return c.cache.num_pages > 0; });
}
bool cuts_decodes(const KernelLaunch& launch) {
  return is_tiled(launch, [](const TiledAttention& c) {
    return c.plan.split_kv && c.qo_indptr.empty() && c.params.window_left < 0;
  });
}

constexpr Fault kTilesFaults[] = {
    // A decode's chunk need not be whole tiles of keys, here of 4, and the loop runs tiles: a chunk
    // that is not the last one has the next one's first keys, too.
    {"K23", "UNINIT", "A chunk of keys is not whole tiles", "flashinfer#1206",
     "extent.overlap values.no_number", stand_in<chunk_of_part_tiles, cuts_decodes>()},
    // The place of a mask's bit, query * keys + key, is computed in few bits: 32 there, 4 here.
    {"K45", "INTOVF", "The place of a mask's bit wraps round", "flashinfer#1290 flashinfer#1271",
     "mask.wrapped", stand_in<mask_bits_of_few_bits, has_mask>()},
    // The length of an empty list, (pages - 1) * page_size + the last one's, wraps round: to 2^32 -
    // 1 there, 15 here.
    {"K51", "EMPTY", "The length of an empty list wraps round", "flashinfer#353",
     "values.no_number", stand_in<empty_list_wraps, has_pages>()},
    // A mask is asked for all rows and columns of a tile, 16 by 16, those of nobody too.
    {"K69", "TREE", "A mask is asked for rows and columns of nobody",
     "flashinfer#1008 flashinfer#1005", "", stand_in<mask_of_whole_tiles, has_mask>()},
};

}  // namespace

std::span<const Fault> themes::tiles() { return kTilesFaults; }

}  // namespace shadowgraph
