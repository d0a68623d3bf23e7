// Numbers that a call may name once: slots and pages that are written, keys that are chosen.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace shadowgraph {

/// Number of a slot or page, and its index in the call.
using Numbered = std::vector<std::pair<int64_t, size_t>>;

/// fail(number, later index, earlier index) for each that occurs again.
template <class Fail>
void find_duplicates(Numbered all, const Fail& fail) {
  std::sort(all.begin(), all.end());
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i].first == all[i - 1].first) fail(all[i].first, all[i].second, all[i - 1].second);
  }
}

}  // namespace shadowgraph
