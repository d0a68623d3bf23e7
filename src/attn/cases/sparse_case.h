// SparseCase: what a Case is made of that calls the sparse family: attention over chosen keys, the
// indexer that chooses them, or the compressor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shadowgraph/layers/compress.h"
#include "shadowgraph/layers/indexer.h"
#include "shadowgraph/layers/sparse.h"

namespace shadowgraph {

struct SparseCase {
  enum class Call : uint8_t {
    kAttention,
    kPack,
    kActQuant,
    kStoreKeys,
    kGatherKeys,
    kLogits,
    kSelect,
    kTransform,
    kCompact,
    kCompress,
    kPoolNormRope,
    kNormRope,
  };
  /// A token; of kGatherKeys and kCompress a request; of norms a block.
  struct Row {
    int32_t first = 0;  // keys of its request before those that it sees; of kCompress tokens
    int32_t count = 1;  // keys that it sees, scores or entries that it has; of kCompress tokens
    int32_t extra = 0;  // keys of attention's second list
    bool slot = true;   // false: what it stores is dropped
  };

  Call call = Call::kAttention;
  std::vector<Row> rows;
  // Type of the inputs (q, latents, activations, rows of kv and score), and of the outputs
  DType dtype = DType::kF32, out_dtype = DType::kF32;
  int32_t heads = 1;                       // of attention and of the indexer
  int32_t head_dim = 16, head_dim_v = 16;  // head_dim: also of activations, blocks and norms
  DType rows_dtype = DType::kF32;          // of pools of LatentLayout::kRows
  LatentLayout layout = LatentLayout::kRows, extra_layout = LatentLayout::kRows;
  bool has_extra = false, sinks = false;
  LseSink lse_sink = LseSink::kExcluded;

  int32_t requests = 1;       // of kLogits and kTransform: row t is a token of request t % requests
  int32_t topk = 4;           // of kSelect, and entries of a row of lists
  bool ue8m0 = false;         // of kActQuant
  bool by_table = true;       // of kTransform; else offsets
  bool padding_page = false;  // of kPack, kStoreKeys and kCompress: page 0 is for padding
  int32_t ratio = 4;          // of kCompress and kPoolNormRope
  bool ring = false;          // of kCompress: a request's pages are used again in turn
  int32_t rope_dim = 0;       // of norms

  CompressShape shape() const { return {ratio}; }
  /// Tokens or rows, one after the other.
  int64_t tokens() const;
  /// The call and what it is made of, with the kind of data between.
  std::string to_string(std::string_view data) const;
};

}  // namespace shadowgraph
