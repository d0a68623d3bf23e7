#include "core/edges.h"

#include <algorithm>

namespace shadowgraph {
namespace {

constexpr Edge kEdges[] = {
#define SG_EDGE(file, axis, size) {file, Axis::axis, size},
#include "core/edges.inc"
#undef SG_EDGE
};

}  // namespace

std::vector<int32_t> edges_of(std::string_view part, Axis axis) {
  std::vector<int32_t> sizes;
  for (const Edge& e : kEdges)
    if (e.axis == axis && e.file.find(part) != std::string_view::npos) sizes.push_back(e.size);
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

int32_t near_edge(Choices& c, Axis axis, int32_t most, int32_t least, int32_t times) {
  std::vector<int32_t> edges = edges_of("", axis);
  std::erase_if(edges, [&](int32_t size) { return size < least || size > most; });
  if (edges.empty()) edges = {most};
  const int32_t edge = edges[c.below(static_cast<uint32_t>(edges.size()))];
  return edge * c.between(1, std::min(times, most / edge)) + c.between(-1, 1);
}

}  // namespace shadowgraph
