// The draft tree of target verify, as custom_mask says it: a token's row holds its ancestors and
// itself. Facts: docs/metadata.md "Drafts". Tested by tests/attn/tree_mask_test.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "shadowgraph/engine/batch.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// One request's part of custom_mask.
class TreeMask {
 public:
  /// mask begins with the request's rows.
  TreeMask(std::span<const uint8_t> mask, const RequestExtent& e) : mask_(mask), extent_(e) {}

  /// Row of draft token t, one byte per draft token.
  std::span<const uint8_t> row(int32_t t) const {
    return mask_.subspan(static_cast<size_t>(t) * static_cast<size_t>(extent_.kv_len) +
                             static_cast<size_t>(extent_.prefix_len),
                         static_cast<size_t>(extent_.q_len));
  }
  int32_t visible(int32_t t) const {
    const auto bits = row(t);
    return static_cast<int32_t>(bits.size() - static_cast<size_t>(std::ranges::count(bits, 0)));
  }
  /// The latest draft before t that it sees; -1: none, it is a root.
  int32_t parent(int32_t t) const;
  /// Draft token t sees all of the prefix, itself, and of the other drafts what its parent sees.
  /// Requires the same of the tokens before it.
  bool follows_its_parent(int32_t t) const;
  /// What follows the request's rows.
  std::span<const uint8_t> rest() const {
    return mask_.subspan(static_cast<size_t>(extent_.q_len) * static_cast<size_t>(extent_.kv_len));
  }

 private:
  std::span<const uint8_t> mask_;
  RequestExtent extent_;
};

/// mask.tree: every token follows its parent, or is a root. So it stands at position prefix +
/// depth, and among the drafts that it sees, in order, at its depth.
Status check_trees(const ForwardBatch& batch);

}  // namespace shadowgraph
