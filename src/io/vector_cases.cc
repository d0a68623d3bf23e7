#include "io/vector_cases.h"

namespace shadowgraph {

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

Status case_metadata(const SafetensorsFile& file, const std::string& file_name,
                     const std::string& id, JsonDocument* document) {
  const std::string case_name = file_name + '#' + id;
  const auto metadata = file.metadata.find(id);
  if (metadata != file.metadata.end())
    return parse_strict_json(metadata->second, "vector.case", case_name, 0, document);
  Status status;
  status.add(file_finding("vector.case", case_name, "__metadata__", "a JSON string for this case",
                          "missing"));
  return status;
}

}  // namespace shadowgraph
