// RecurrentCase: what a Case is made of that calls the linear family: linear_attention,
// causal_conv1d or decay_gate.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

struct RecurrentCase {
  enum class Call : uint8_t { kAttention, kConv1d, kGate };
  struct Row {
    int32_t tokens = 1;
    bool slot = true;     // false: padding
    bool initial = true;  // starts from its slot; false: from zero, whatever the slot holds
  };

  Call call = Call::kAttention;
  std::vector<Row> rows;  // a gate has only tokens
  DType dtype = DType::kF32, state_dtype = DType::kF32, out_dtype = DType::kF32;
  PadRow pad = PadRow::kSkip;
  // States behind draft tokens, in draft_dtype (a convolution's: its dtype), and a tree of them
  bool drafts = false, tree = false, of_padding = true;
  DType draft_dtype = DType::kF32;

  // linear_attention; gates use these members too where both have them
  LinearAttention::Rule rule = LinearAttention::Rule::kAdd;
  LinearAttention::Form form = LinearAttention::Form::kRecurrent;  // chunked: without drafts
  LinearAttention::StateOrder order = LinearAttention::StateOrder::kValueKey;
  int32_t num_k_heads = 1, num_v_heads = 1, head_dim_k = 16, head_dim_v = 16;
  int32_t decay_rank = 2;  // of a gate: x's
  bool beta = false, l2norm = false, skip = false, z = false, store = true;
  float scale = 1;
  int32_t chunk_size = 0;  // 0: no states of chunks are kept
  DType chunk_dtype = DType::kF32;
  ChunkGrid chunk_grid = ChunkGrid::kRow;

  // causal_conv1d
  int32_t dim = 1, width = 4;
  bool bias = false, silu = false;

  // decay_gate
  DecayGate::Kind gate = DecayGate::Kind::kSoftplus;
  bool dt_bias = false, b = false;
  float lower_bound = -1;

  int64_t tokens() const {
    int64_t n = 0;
    for (const Row& r : rows) n += r.tokens;
    return n;
  }
  /// The call and what it is made of, with the kind of data between.
  std::string to_string(std::string_view data) const;
};

}  // namespace shadowgraph
