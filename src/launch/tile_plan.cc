#include "launch/tile_plan.h"

#include <algorithm>

namespace shadowgraph {

namespace {

/// Elements i and i + 1 of an indptr, where they exist and do not fall.
std::optional<TileRange> range_at(IntArray& indptr, int64_t i, int32_t row) {
  const auto begin = indptr.load(i, row), end = indptr.load(i + 1, row);
  if (!begin || !end || *begin < 0 || *end < *begin) return {};
  return TileRange{*begin, *end};
}

}  // namespace

std::vector<TileSegment> segments_of(TileRange packed, int64_t group) {
  std::vector<TileSegment> segments;
  const int64_t whole = packed.end / group;  // tokens that end inside
  for (int64_t at = packed.begin; at < packed.end;) {
    const int64_t token = at / group, head = at % group;
    if (head == 0 && token < whole) {
      segments.push_back({{token, whole}, {}});
      at = whole * group;
      continue;
    }
    const int64_t end = std::min(packed.end, (token + 1) * group);
    segments.push_back({{token, token + 1}, {head, head + end - at}});
    at = end;
  }
  return segments;
}

std::optional<WorkItem> PlanReader::item(int64_t i) {
  if (valid.size() > 0 && valid.load(i, -1).value_or(0) == 0) return {};
  const int32_t r = *requests.load(i, -1);
  if (r < 0 || r >= kv_indptr.size() - 1) {
    kv_indptr.load(r < 0 ? r : int64_t{r} + 1, -1);
    return {};
  }
  const auto queries =
      qo_indptr.size() > 0 ? range_at(qo_indptr, r, r) : TileRange{r, int64_t{r} + 1};
  const auto listed = range_at(kv_indptr, r, r);
  const auto tile = qo_tiles.size() > 0 ? qo_tiles.load(i, r) : 0;
  if (!queries || !listed || !tile || *tile < 0) return {};
  WorkItem item;
  item.request = r;
  item.q_begin = item.out_begin = queries->begin, item.q_len = queries->size();
  item.kv_begin = listed->begin, item.kv_len = listed->size();
  item.keys = {0, item.kv_len};
  item.packed = {0, item.q_len * group};
  if (qo_tiles.size() > 0) {
    item.packed.begin = std::min(int64_t{*tile} * cta_tile_q, item.packed.end);
    item.packed.end = std::min(item.packed.begin + cta_tile_q, item.packed.end);
  }
  if (item.packed.size() == 0 || (split_kv && !cut_keys(i, &item))) return {};
  return item;
}

/// The item's chunk of the keys, and where its partial rows lie. False where neither can be said.
bool PlanReader::cut_keys(int64_t i, WorkItem* item) {
  const int32_t r = item->request;
  const auto chunk = kv_tiles.load(i, r), size = kv_chunk_size.load(0, r),
             row = o_indptr.load(r, r);
  if (!chunk || !size || !row || *size <= 0) return false;
  const int64_t first = int64_t{*chunk} * *size;
  item->keys = {first, std::min(first + *size, item->kv_len)};
  item->first_chunk = *chunk == 0;
  item->out_begin = int64_t{*row} + *chunk;
  item->out_step = (std::max<int64_t>(item->kv_len, 1) + *size - 1) / *size;
  return true;
}

}  // namespace shadowgraph
