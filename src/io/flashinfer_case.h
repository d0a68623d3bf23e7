// What FlashInfer's cases share: the metadata's fields, the tensors of a paged cache, and a
// recorded result.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/case_reader.h"

namespace shadowgraph {

struct FlashInferCase;

/// Which lists of lengths a kind's metadata has.
enum class Lengths : uint8_t {
  kNone,    // no requests at all
  kDecode,  // kv_lens; q_lens may be given and are 1
  kVarlen,  // q_lens, kv_lens
  kExtend,  // extend_lens, prefix_lens
};

/// One line of the table of kinds. A name that ends in '_' stands for all that begin with it.
struct FlashInferKind {
  std::string_view name;
  std::string_view kernel;  // whose arithmetic, Recorded::kernel
  Lengths lengths;
  void (*read)(CaseReader&, const FlashInferCase&, KernelVector*);
};

struct FlashInferCase {
  const FlashInferKind* kind = nullptr;
  AttentionParams params;
  DType dtype = DType::kF16;
  DType kv_dtype = DType::kF16;
  float k_scale = 1, v_scale = 1;
  bool hnd = false;
  int32_t batch = 0, page_size = 0;
  std::vector<int32_t> prefix_lens;  // Lengths::kExtend
  std::vector<int32_t> q_lens, kv_lens;
  int64_t rows = 0;  // of q, the sum of q_lens; Lengths::kNone: of v
};

/// The metadata, defaults where the format leaves a field out.
FlashInferCase read_flashinfer_case(CaseReader& reader, const FlashInferKind& kind);

/// q [rows, num_qo_heads, head_dim_qk]
ConstTensorView read_query(CaseReader& reader, const FlashInferCase& c);

/// prefix + "kv_indptr", "kv_indices": the pages of requests with these lengths. last_page_len is
/// not set.
PageTable read_csr(CaseReader& reader, const FlashInferCase& c, const std::string& prefix,
                   std::span<const int32_t> kv_lens);

/// "last_page_len" under its name in the file; a request without pages may say anything.
std::span<const int32_t> read_last_page_len(CaseReader& reader, const FlashInferCase& c,
                                            const std::string& name,
                                            std::span<const int32_t> kv_lens);

/// Everything but the custom mask. fp8 bytes are views of type e4m3.
PagedAttention read_paged_call(CaseReader& reader, const FlashInferCase& c);

/// [prefix]out and [prefix]lse, base 2, as the next of vector->recorded.
void read_recorded(CaseReader& reader, const FlashInferCase& c, const std::string& prefix,
                   Recorded recorded, KernelVector* vector);

}  // namespace shadowgraph
