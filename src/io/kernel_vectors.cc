#include "io/kernel_vectors.h"

#include "io/vector_families.h"

namespace shadowgraph {
namespace {

using ReadCase = void (*)(CaseReader&, KernelVector*);

/// Null: no reader knows the case. name: what it calls itself.
ReadCase recognise(CaseReader& reader, std::string* name) {
  for (const char* field : {"kind", "mode"}) {
    if (!reader.has(field)) continue;
    *name = reader.text(field);
    break;
  }
  if (is_attention_case(reader)) return read_attention_vector;
  if (is_fa3_case(reader)) return read_fa3_vector;
  if (!reader.has("kind")) return nullptr;
  if (is_flashmla_kind(*name)) return read_flashmla_vector;
  if (is_flashmla_sparse_kind(*name)) return read_flashmla_sparse_vector;
  return is_flashinfer_kind(*name) ? read_flashinfer_vector : nullptr;
}

}  // namespace

Status parse_kernel_vectors(const SafetensorsFile& file, const std::string& name,
                            std::vector<KernelVector>* cases, std::vector<SkippedCase>* skipped) {
  return read_cases<KernelVector>(file, name, recognise, cases, skipped);
}

Status read_kernel_vectors(const std::string& path, std::vector<KernelVector>* cases,
                           std::vector<SkippedCase>* skipped) {
  SafetensorsFile file;
  Status status = read_safetensors(path, &file);
  if (!status.ok()) return status;
  return parse_kernel_vectors(file, path, cases, skipped);
}

}  // namespace shadowgraph
