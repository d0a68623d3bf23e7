// The families of kernel vectors. A reader fills kind, dtype, calls, recorded and references, and
// leaves findings in the CaseReader; kernel_vectors.cc adds id and storage, and drops the case
// where there are findings.
#pragma once

#include "attn/kernel_vector.h"
#include "io/case_reader.h"

namespace shadowgraph {

/// PyTorch's FlashAttention-2 varlen kernel: known by its tensors, and by having no "kind". "mode"
/// is a name, and only "decode" means something.
bool is_attention_case(const CaseReader& reader);
void read_attention_vector(CaseReader& reader, KernelVector* vector);

/// FlashAttention-3's forward op: known by having a "q_layout"; "kind" is a name.
bool is_fa3_case(const CaseReader& reader);
void read_fa3_vector(CaseReader& reader, KernelVector* vector);

/// FlashMLA's decode over whole requests: kinds "dense_...".
bool is_flashmla_kind(std::string_view kind);
void read_flashmla_vector(CaseReader& reader, KernelVector* vector);

/// FlashMLA over chosen keys: "sparse_decode_fp8" and "sparse_prefill".
bool is_flashmla_sparse_kind(std::string_view kind);
void read_flashmla_sparse_vector(CaseReader& reader, KernelVector* vector);

/// Is this "kind" one of FlashInfer's that are known here?
bool is_flashinfer_kind(std::string_view kind);
void read_flashinfer_vector(CaseReader& reader, KernelVector* vector);

}  // namespace shadowgraph
