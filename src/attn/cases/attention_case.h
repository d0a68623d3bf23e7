// AttentionCase and MergeCase: what a Case is made of that calls dense attention, or merges its
// results.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shadowgraph/attention/attention.h"
#include "shadowgraph/engine/batch.h"

namespace shadowgraph {

/// The kernel that a Case calls; kLinear, kSparse: one of the calls of its family.
enum class CaseKernel : uint8_t {
  kDecodePaged,
  kPrefillPaged,
  kPrefillRagged,
  kMergeStates,
  kLinear,
  kSparse
};

/// The AttentionTerms that a case has. Their numbers follow from its seed.
struct CaseTerms {
  std::optional<AttentionTerms::Alibi> alibi;  // of random data
  bool key_bias = false, qq_bias = false, relative_bias = false;
  int32_t temperature_len = 0;
  int32_t attention_chunk = 0, chunk_lookback = 0;
  bool request_causal = false, cache_leftpad = false, bidirectional = false;
  bool mask_of_heads = false;                             // where there is a mask
  bool head_scales = false, request_head_scales = false;  // one of them
  float q_scale = 1, out_scale = 1;
  bool padded_rows = false;  // not of a decode

  bool operator==(const CaseTerms&) const = default;
  bool any() const { return *this != CaseTerms(); }
};

struct AttentionCase {
  CaseKernel kernel = CaseKernel::kDecodePaged;  // kDecodePaged, kPrefillPaged or kPrefillRagged
  std::vector<RequestExtent> requests;
  int32_t num_qo_heads = 1, num_kv_heads = 1, head_dim_qk = 16, head_dim_vo = 16;
  // kv_dtype i8 is not for kPrefillRagged, where scales have no place
  DType q_dtype = DType::kF32, kv_dtype = DType::kF32, out_dtype = DType::kF32;
  float k_scale = 1, v_scale = 1;

  float sm_scale = 1;
  bool causal = false;
  int32_t window_left = -1, window_right = -1;
  float logits_soft_cap = 0;
  bool sinks = false;
  CustomMask::Kind mask = CustomMask::Kind::kNone;
  LseSink lse_sink = LseSink::kExcluded;
  CaseTerms terms{};
  bool nan = false;  // an element of a key or value that some row sees; of random data, not of i8

  // How it lies in memory. No result may depend on these.
  int32_t page_size = 1;
  KvLayout layout = KvLayout::kNhd;
  PageTable::Form table = PageTable::Form::kDense;
  bool through_store_kv = false;  // K and V are written by store_kv instead of by hand

  /// Query rows of all requests.
  int64_t tokens() const {
    int64_t n = 0;
    for (const RequestExtent& r : requests) n += r.q_len;
    return n;
  }
  /// The call and what it is made of, with the kind of data between.
  std::string to_string(std::string_view data) const;
};

/// Partial results of attention that become one a row.
struct MergeCase {
  int32_t rows = 1, states = 1, heads = 1, head_dim = 16;
  DType dtype = DType::kF32, out_dtype = DType::kF32;
  LseBase lse_base = LseBase::kNatural;

  int64_t tokens() const { return rows; }
  std::string to_string(std::string_view data) const;
};

}  // namespace shadowgraph
