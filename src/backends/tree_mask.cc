#include "backends/tree_mask.h"

#include "core/laws.h"

namespace shadowgraph {
namespace {

/// Token t's row, given those before it.
bool follows_its_parent(const TreeMask& mask, int32_t t) {
  const auto row = mask.row(t);
  const auto self = static_cast<size_t>(t);
  if (row[self] == 0) return false;
  for (size_t u = self + 1; u < row.size(); ++u)
    if (row[u] != 0) return false;
  size_t parent = self;
  while (parent > 0 && row[parent - 1] == 0) --parent;
  if (parent-- == 0) return true;
  const auto above = mask.row(static_cast<int32_t>(parent));
  return std::equal(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(parent), above.begin(),
                    [](uint8_t a, uint8_t b) { return (a != 0) == (b != 0); });
}

}  // namespace

Status check_trees(const ForwardBatch& batch) {
  Status status;
  std::span<const uint8_t> rest = batch.spec.custom_mask;
  for (int64_t i = 0; i < batch.size(); ++i) {
    const RequestExtent e = batch.extent(i);
    const TreeMask mask(rest, e);
    for (int32_t t = 0; t < e.q_len; ++t) {
      if (!follows_its_parent(mask, t))
        status.add(make_finding("mask.tree", at("custom_mask", i, t),
                                "the row of an earlier token, and itself", "another"));
    }
    rest = mask.rest();
  }
  return status;
}

}  // namespace shadowgraph
