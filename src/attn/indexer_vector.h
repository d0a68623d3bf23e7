// Recorded cases of the indexer and of the compressor, as plain data: parts of a LinearVector. What
// a call writes has shape and dtype and no memory: it is the judge's.
#pragma once

#include <variant>

#include "shadowgraph/compress.h"
#include "shadowgraph/indexer.h"

namespace shadowgraph {

struct ActQuantCase {
  ActQuant call;
  ConstTensorView y, scale;   // as recorded
  ConstTensorView scale_ref;  // before rounding to f32
};

/// Keys stored, then gathered of the pages as recorded.
struct IndexKeysCase {
  StoreIndexKeys store;
  GatherIndexKeys gather;                    // its pages are those that were recorded
  ConstTensorView before, after, reference;  // u8 [pages, 8448]
  ConstTensorView k, k_scale;                // as gathered
};

struct IndexerLogitsCase {
  IndexerLogits call;
  ConstTensorView logits;     // as recorded; what no token sees may be anything
  ConstTensorView reference;  // of what is seen
  ConstTensorView topk_ref;   // i32 [tokens, topk]: the choice among the reference
};

struct TopkTransformCase {
  TransformIndices transform;
  ConstTensorView out, out_ref;
  CompactIndices compact;  // of what was recorded
  // With a few cells behind them
  std::span<const int32_t> kv_indices, kv_indices_ref;
};

using IndexerCase = std::variant<ActQuantCase, IndexKeysCase, IndexerLogitsCase, TopkTransformCase>;
/// Their out and states are the vector's (out_valid: tokens that end a block).
using CompressCase = std::variant<Compress, PoolNormRope>;

}  // namespace shadowgraph
