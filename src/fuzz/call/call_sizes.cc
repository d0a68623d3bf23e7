#include "fuzz/call/call_sizes.h"

#include <algorithm>
#include <span>
#include <vector>

namespace shadowgraph {

std::string_view name_of(CallSizes sizes) {
  constexpr std::string_view kNames[] = {"small", "keys", "tokens", "rows", "heads", "width"};
  return kNames[static_cast<size_t>(sizes)];
}

CallSizes choose_sizes(Choices& c, std::initializer_list<CallSizes> has) {
  std::vector<CallSizes> levels((kLargeCallEvery - 1) * has.size(), CallSizes::kSmall);
  levels.insert(levels.end(), has);
  return c.of(kCallSizesFactor, std::span<const CallSizes>(levels));
}

int32_t large_size(Choices& c, Axis axis, int64_t least, int64_t most) {
  const auto low = static_cast<int32_t>(least), high = static_cast<int32_t>(most);
  if (high <= low) return std::max(1, high);
  if (c.one_in(4)) return c.between(low, high);
  constexpr int32_t kTimes = 8;
  return std::clamp(near_edge(c, axis, high, low, kTimes), 1, high);
}

int64_t choose_work(Choices& c) { return int64_t{c.one_in(8) ? 16 : 2} << 20; }

}  // namespace shadowgraph
