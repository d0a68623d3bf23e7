#include "check/causes.h"

#include <algorithm>
#include <span>

namespace shadowgraph {
namespace {

int rank_of(const Finding& f) {
  if (f.id.ends_with(".capacity")) return 0;
  return f.id == "graph.device_error" ? 2 : 1;
}

bool says_unwritten(const Finding& f) {
  return f.id == "mem.uninit_read" || f.id == "mem.stale_input" || f.id == "mem.not_uploaded";
}

}  // namespace

void causes_first(Status* status) {
  const std::span<Finding> all = status->findings();
  std::stable_sort(all.begin(), all.end(),
                   [](const Finding& a, const Finding& b) { return rank_of(a) < rank_of(b); });
  for (auto it = all.begin(); it != all.end(); ++it) {
    if (!says_unwritten(*it)) continue;
    const auto of_values = std::find_if(all.begin(), it, [&](const Finding& f) {
      return f.where.field == it->where.field && !says_unwritten(f) && rank_of(f) > 0;
    });
    std::rotate(of_values, it, it + 1);
  }
}

}  // namespace shadowgraph
