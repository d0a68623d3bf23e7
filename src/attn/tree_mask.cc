#include "attn/tree_mask.h"

#include <cstring>

#include "core/laws.h"

namespace shadowgraph {

int32_t TreeMask::parent(int32_t t) const {
  const auto drafts = row(t);
  while (t > 0 && drafts[static_cast<size_t>(t) - 1] == 0) --t;
  return t - 1;
}

bool TreeMask::follows_its_parent(int32_t t) const {
  const auto drafts = row(t);
  const auto prefix = static_cast<size_t>(extent_.prefix_len), self = static_cast<size_t>(t);
  const auto shows = [](uint8_t bit) { return bit != 0; };
  if (std::memchr(drafts.data() - prefix, 0, prefix) != nullptr) return false;  // the long part
  if (!shows(drafts[self])) return false;
  if (std::ranges::any_of(drafts.subspan(self + 1), shows)) return false;
  const int32_t token = parent(t);
  if (token < 0) return true;
  const auto before = static_cast<size_t>(token);
  const auto above = row(token).first(before);
  return std::ranges::equal(drafts.first(before), above, {}, shows, shows);
}

Status check_trees(const ForwardBatch& batch) {
  Status status;
  std::span<const uint8_t> rest = batch.spec.custom_mask;
  for (int64_t i = 0; i < batch.size(); ++i) {
    const RequestExtent e = batch.extent(i);
    const TreeMask mask(rest, e);
    for (int32_t t = 0; t < e.q_len; ++t) {
      if (!mask.follows_its_parent(t))
        status.add(make_finding("mask.tree", at("custom_mask", i, t),
                                "the prefix, and a path of drafts", "another"));
    }
    rest = mask.rest();
  }
  return status;
}

}  // namespace shadowgraph
