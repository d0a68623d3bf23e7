// The values of a Case of dense attention, as bytes in their types, in logical order, before
// anything is laid out.
#pragma once

#include <cstdint>
#include <vector>

#include "attn/mask.h"
#include "fuzz/call/data.h"

namespace shadowgraph {

struct RequestData {
  LogicalTensor q, k, v;      // [q_len | kv_len, heads, dim]
  std::vector<uint8_t> mask;  // [q_len * kv_len] or empty
  // [kv_len]: the keys that score far from 0: some (kSelector), or all, far below in rows that
  // `below` marks (kShifted, kHuge)
  std::vector<uint8_t> hot;
  std::vector<uint8_t> below;    // [q_len, num_qo_heads] or empty
  std::vector<uint8_t> visible;  // [kv_len]: does any query see the key?
  // [kv_len]: the same without the custom mask; its page must exist
  std::vector<uint8_t> reachable;
  // AttentionTerms of the request
  bool causal = false;
  int32_t cache_leftpad = 0;
  std::vector<int32_t> bidirectional;     // [ranges, 2]
  std::vector<float> key_bias;            // [num_qo_heads, kv_len] or empty
  std::vector<float> k_scales, v_scales;  // [num_kv_heads]; 1 without terms
};

struct AttentionData {
  std::vector<RequestData> requests;
  std::vector<float> sinks;
  std::vector<float> alibi_slopes, qq_bias, relative_bias;  // as in AttentionTerms
};

/// Does a query of a head see the key? The Case's own mask arithmetic: asks the predicate, pair by
/// pair. On exact data a bias is 0, or it hides the key.
bool sees(const AttentionCase& x, const AttentionData& data, size_t request, int64_t head,
          int64_t q, int64_t key);

AttentionData make_attention_data(const Case& x);

/// An element of a key or value that some row sees becomes NaN, mostly of one that another row does
/// not see. False: there is none. Requires no i8.
bool plant_nan(const AttentionCase& x, Rng& rng, AttentionData* data);

}  // namespace shadowgraph
