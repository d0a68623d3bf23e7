// A ragged call of one or more requests that owns its data, all f32 and row-major.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "oracle/oracle.h"

namespace shadowgraph {

struct SmallCall {
  std::vector<int32_t> cu_seqlens_q, cu_seqlens_k;
  std::vector<float> q, k, v, sinks;
  std::vector<uint8_t> mask;
  std::vector<int64_t> mask_indptr;
  RaggedAttention call;

  /// One request; q, k and v are 0.
  SmallCall(int32_t q_len, int32_t kv_len, int32_t heads, int32_t kv_heads, int32_t dim_qk,
            int32_t dim_vo)
      : cu_seqlens_q{0, q_len},
        cu_seqlens_k{0, kv_len},
        q(static_cast<size_t>(q_len * heads * dim_qk)),
        k(static_cast<size_t>(kv_len * kv_heads * dim_qk)),
        v(static_cast<size_t>(kv_len * kv_heads * dim_vo)) {
    call.q = ConstTensorView(q.data(), DType::kF32, {q_len, heads, dim_qk});
    call.k = ConstTensorView(k.data(), DType::kF32, {kv_len, kv_heads, dim_qk});
    call.v = ConstTensorView(v.data(), DType::kF32, {kv_len, kv_heads, dim_vo});
    call.cu_seqlens_q = cu_seqlens_q;
    call.cu_seqlens_k = cu_seqlens_k;
    call.params.num_qo_heads = heads;
    call.params.num_kv_heads = kv_heads;
    call.params.head_dim_qk = dim_qk;
    call.params.head_dim_vo = dim_vo;
    call.params.sm_scale = 1;
  }
  SmallCall(const SmallCall&) = delete;
  SmallCall& operator=(const SmallCall&) = delete;

  AttentionParams& params() { return call.params; }
  void set_sinks(std::vector<float> values) {
    sinks = std::move(values);
    params().sinks = sinks;
  }
  void set_mask(CustomMask::Kind kind, std::vector<uint8_t> bytes) {
    mask = std::move(bytes);
    mask_indptr = {0, static_cast<int64_t>(mask.size())};
    params().custom_mask = {kind, mask, mask_indptr};
  }

  /// All rows, copied. Their `values` no longer point anywhere.
  std::vector<OracleRow> rows() const {
    std::vector<OracleRow> all;
    for_each_row(call, [&](const OracleRow& row) { all.push_back(row); });
    for (OracleRow& row : all) row.values = nullptr;
    return all;
  }
};

}  // namespace shadowgraph
