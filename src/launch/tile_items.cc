#include "launch/tile_items.h"

#include <algorithm>

namespace shadowgraph {

bool ItemReader::hide(const WorkItem& item, TileRange tokens, std::vector<uint8_t>* pairs) {
  if (prefix_lens.size() == 0) return true;
  const int32_t r = item.request;
  const auto prefix = prefix_lens.load(r, r), longest = max_item_lens.load(r, r);
  if (!prefix || !longest) return false;
  const int64_t row = token_pos.size() / prefix_lens.size(), width = item.keys.size();
  pairs->resize(static_cast<size_t>(tokens.size() * width), 1);
  for (int64_t q = tokens.begin; q < tokens.end; ++q) {
    const int64_t at = q + item.kv_len - item.q_len;
    if (at < *prefix) continue;
    const auto place = token_pos.load(r * row + at - *prefix, r);
    if (!place) return false;
    // Behind the prefix the token sees the keys of its own item, without the delimiter.
    const int64_t own = at - std::min(*place, *longest) + 1;
    const int64_t begin = std::max<int64_t>(item.keys.begin, *prefix);
    const int64_t end = std::min(item.keys.end, own);
    uint8_t* const keys = pairs->data() + (q - tokens.begin) * width;
    for (int64_t k = begin; k < end; ++k) keys[k - item.keys.begin] = 0;
  }
  return true;
}

}  // namespace shadowgraph
