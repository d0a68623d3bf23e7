// Where the keys of a call's rows are said to be: lists of ids, whichever kernel reads them.
#pragma once

#include <algorithm>
#include <optional>

#include "attn/page_table.h"
#include "faults/substitutes.h"

namespace shadowgraph {

/// The ids of pages, or of slots, that the rows of a call read.
template <class T>
struct IdLists {
  struct Row {
    int64_t begin = 0, count = 0;
  };
  std::span<const T>* ids = nullptr;
  std::vector<Row> rows;  // those of their ids that there are
};

namespace lists {

template <class T>
IdLists<T> of_indptr(std::span<const T>* ids, std::span<const int32_t> indptr) {
  IdLists<T> lists{ids, {}};
  const int64_t size = std::ssize(*ids);
  for (size_t i = 0; i + 1 < indptr.size(); ++i) {
    const int64_t begin = std::clamp<int64_t>(indptr[i], 0, size);
    lists.rows.push_back({begin, std::clamp<int64_t>(indptr[i + 1], begin, size) - begin});
  }
  return lists;
}

}  // namespace lists

inline IdLists<int32_t> ids_of(PagedAttention& c) {
  PageTable& t = c.pages;
  if (t.form == PageTable::Form::kCsr) return lists::of_indptr(&t.kv_indices, t.kv_indptr);
  IdLists<int32_t> lists{&t.page_table, {}};
  for (int64_t i = 0; i < t.batch(); ++i) {
    const int64_t keys = std::max(0, t.cache_seqlens[static_cast<size_t>(i)]);
    lists.rows.push_back(
        {i * t.max_pages, std::min(pages_for(keys, c.cache.page_size), t.max_pages)});
  }
  return lists;
}
inline IdLists<int32_t> ids_of(TiledAttention& c) {
  return lists::of_indptr(&c.kv_indices, c.kv_indptr);
}
inline IdLists<int64_t> ids_of(TritonDecode& c) {
  return lists::of_indptr(&c.kv_indices, c.kv_indptr);
}
inline IdLists<int64_t> ids_of(TritonExtend& c) {
  return lists::of_indptr(&c.kv_indices, c.kv_indptr);
}

/// Every id that is read becomes fn(id).
template <class Call, class Fn>
void change_ids(Call& c, SlippedRun& run, Fn fn) {
  auto lists = ids_of(c);
  std::vector values(lists.ids->begin(), lists.ids->end());
  for (const auto& row : lists.rows) {
    for (int64_t j = 0; j < row.count; ++j) {
      auto& id = values[static_cast<size_t>(row.begin + j)];
      id = static_cast<std::decay_t<decltype(id)>>(fn(id));
    }
  }
  *lists.ids = run.take(*lists.ids, std::move(values));
}

/// Id j of row i is read at place from(i, j) of the row; outside of the array that is 0.
template <class Call, class From>
void read_elsewhere(Call& c, SlippedRun& run, From from) {
  auto lists = ids_of(c);
  const auto ids = *lists.ids;
  std::vector values(ids.begin(), ids.end());
  std::vector<int64_t> places(ids.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i);
  for (size_t i = 0; i < lists.rows.size(); ++i) {
    const auto row = lists.rows[i];
    for (int64_t j = 0; j < row.count; ++j) {
      const int64_t at = row.begin + from(i, j);
      places[static_cast<size_t>(row.begin + j)] = at;
      values[static_cast<size_t>(row.begin + j)] =
          at < 0 || at >= std::ssize(ids) ? 0 : ids[static_cast<size_t>(at)];
    }
  }
  *lists.ids = run.take(ids, std::move(values), std::move(places));
}

}  // namespace shadowgraph
