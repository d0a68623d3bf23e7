// What FlashInfer's cases share: the metadata's fields, and the tensors of a paged cache.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/recorded/attention_fields.h"

namespace shadowgraph {

/// The tensor of query offsets in packed rows that have padding between requests.
inline constexpr std::string_view kPaddedQueries = "qo_indptr_padded";

/// A kind of keys: kPaged in pages with heads, kLatent in pages without, kPacked in no pages,
/// kMerge states of a merge.
enum class FlashInferKind : uint8_t { kPaged, kLatent, kPacked, kMerge };

struct FlashInferBatch {
  AttentionParams params;
  bool decode = false;  // one query a request, which says so by giving no offsets
  bool hnd = false;
  DType kv_dtype = DType::kF16;
  float k_scale = 1, v_scale = 1;
  int32_t page_size = 0;
  std::vector<int32_t> prefix_lens;  // of the cases that have "extend_lens"
  std::vector<int32_t> q_lens, kv_lens;
};

/// The metadata, defaults where the format leaves a field out; sets the case's dtype, and binds
/// "rows" where there are lengths.
FlashInferBatch read_flashinfer_batch(CaseReader& reader, FlashInferKind kind, RecordedCase* c);

/// prefix + "kv_indptr", "kv_indices": the pages of requests with these lengths. last_page_len is
/// the name of that tensor, in which a request without pages may say anything; empty: not set.
PageTable read_csr(CaseReader& reader, const FlashInferBatch& b, const std::string& prefix,
                   const std::string& last_page_len, std::span<const int32_t> kv_lens);

/// Everything except the custom mask. fp8 bytes are views of type e4m3.
PagedAttention read_paged_call(CaseReader& reader, const FlashInferBatch& b, const RecordedCase& c);

/// [prefix]out and [prefix]lse, base 2.
void read_log2_answer(CaseReader& reader, const std::string& prefix, Recorded* answer);

}  // namespace shadowgraph
