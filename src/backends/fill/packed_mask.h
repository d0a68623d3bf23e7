// A request's custom mask as FlashInfer packs it: a bit for each query and key of a list, least
// significant first. Facts: docs/metadata.md "FlashInfer". Tested by
// tests/backends/packed_mask_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "attn/mask.h"
#include "attn/tree_mask.h"
#include "shadowgraph/attention/params.h"

namespace shadowgraph {

struct PackedMask {
  RequestExtent extent;
  KvRange keys;                  // tokens of the request that the list has
  AttentionParams params;        // causal and window, judged by positions
  std::optional<TreeMask> tree;  // takes the place of causal; a draft stands at its depth

  int64_t bits() const { return int64_t{extent.q_len} * keys.size(); }
  int64_t bytes() const { return (bits() + 7) / 8; }
  /// to [bytes()]; the bits behind the last are 0.
  void write(std::span<uint8_t> to) const;

 private:
  int32_t position(int32_t token) const;
};

}  // namespace shadowgraph
