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

}  // namespace shadowgraph
