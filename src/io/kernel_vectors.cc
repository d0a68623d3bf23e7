#include "io/kernel_vectors.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "io/file.h"
#include "io/strict_json.h"
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
  return is_flashinfer_kind(*name) ? read_flashinfer_vector : nullptr;
}

/// The ids: prefixes of tensors, and metadata keys "case...". Another key may be anything
/// ("format": "pt").
std::set<std::string> case_ids(const SafetensorsFile& file) {
  std::set<std::string> ids;
  const auto add_prefix = [&](const std::string& name) {
    const size_t slash = name.find('/');
    if (slash != std::string::npos) ids.insert(name.substr(0, slash));
  };
  for (const auto& [name, view] : file.tensors) add_prefix(name);
  for (const SkippedTensor& tensor : file.skipped) add_prefix(tensor.name);
  for (const auto& [key, value] : file.metadata) {
    if (key.starts_with("case")) ids.insert(key);
  }
  return ids;
}

Status read_case(const SafetensorsFile& file, const std::string& file_name, const std::string& id,
                 std::vector<KernelVector>* cases, std::vector<SkippedCase>* skipped) {
  const std::string case_name = file_name + '#' + id;
  const auto metadata = file.metadata.find(id);
  Status status;
  if (metadata == file.metadata.end()) {
    status.add(file_finding("vector.case", case_name, "__metadata__", "a JSON string for this case",
                            "missing"));
    return status;
  }
  JsonDocument document;
  status = parse_strict_json(metadata->second, "vector.case", case_name, 0, &document);
  if (!status.ok()) return status;
  CaseReader reader(file, file_name, id, document.root);
  std::string name;
  const ReadCase read = recognise(reader, &name);
  if (!reader.ok()) return reader.take_status();
  if (read == nullptr) {
    skipped->push_back({id, printable(name), "kind not known yet"});
    return status;
  }
  KernelVector vector;
  read(reader, &vector);
  if (!reader.ok()) return reader.take_status();
  vector.id = id;
  vector.storage = reader.take_storage();
  cases->push_back(std::move(vector));
  return status;
}

template <class T>
void append(std::vector<T>* to, std::vector<T>&& more) {
  std::move(more.begin(), more.end(), std::back_inserter(*to));
}

}  // namespace

Status parse_kernel_vectors(const SafetensorsFile& file, const std::string& name,
                            std::vector<KernelVector>* cases, std::vector<SkippedCase>* skipped) {
  return with_memory_findings(name, [&] {
    Status status;
    std::vector<KernelVector> read;
    std::vector<SkippedCase> left_out;
    const std::set<std::string> ids = case_ids(file);
    if (ids.empty()) status.add(file_finding("io.kind", name, "file", "at least one case", "none"));
    for (const std::string& id : ids) status.add(read_case(file, name, id, &read, &left_out));
    cases->reserve(cases->size() + read.size());  // whatever can fail, first
    skipped->reserve(skipped->size() + left_out.size());
    append(cases, std::move(read));
    append(skipped, std::move(left_out));
    return status;
  });
}

Status read_kernel_vectors(const std::string& path, std::vector<KernelVector>* cases,
                           std::vector<SkippedCase>* skipped) {
  SafetensorsFile file;
  Status status = read_safetensors(path, &file);
  if (!status.ok()) return status;
  return parse_kernel_vectors(file, path, cases, skipped);
}

}  // namespace shadowgraph
