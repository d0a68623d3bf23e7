// Where index keys and their scales lie, in pages or one after the other; whatever reads or writes
// them goes by this.
#pragma once

#include <cstring>

#include "shadowgraph/layers/indexer.h"

namespace shadowgraph {

/// One key's bytes and its scale's, from a view's data pointer on. Views: `pages`, or k and
/// k_scale.
struct IndexKeyPlace {
  int64_t key = 0, scale = 0;  // bytes
};

/// The place of a slot in a pool of pages.
inline IndexKeyPlace place_in_pages(const ConstTensorView& pages, int64_t page, int64_t in_page) {
  const int64_t first = pages.offset(page);
  return {first + in_page * kIndexDim,
          first + kIndexPageTokens * kIndexDim + in_page * static_cast<int64_t>(sizeof(float))};
}

inline int32_t load_i32(const ConstTensorView& t, int64_t i, int64_t j) {
  int32_t value;
  std::memcpy(&value, t.at(i, j), sizeof value);
  return value;
}

/// Where key s of a token's row lies. Requires a call that validate() accepts.
inline IndexKeyPlace key_place(const IndexerLogits& call, int64_t row, int64_t s) {
  if (!call.is_paged())
    return {call.k.offset(s), call.k_scale.offset(s) * static_cast<int64_t>(sizeof(float))};
  return place_in_pages(call.pages, load_i32(call.page_table, row, s / kIndexPageTokens),
                        s % kIndexPageTokens);
}
/// The bytes of the key, and the value of the scale, at a place.
inline const std::byte* key_bytes(const IndexerLogits& call, const IndexKeyPlace& place) {
  return (call.is_paged() ? call.pages.data : call.k.data) + place.key;
}
inline float key_scale(const IndexerLogits& call, const IndexKeyPlace& place) {
  float value;
  std::memcpy(&value, (call.is_paged() ? call.pages.data : call.k_scale.data) + place.scale,
              sizeof value);
  return value;
}

}  // namespace shadowgraph
