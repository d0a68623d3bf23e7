// The curated kernel vectors of tests/data, whole or case by case, for tests that change them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/recorded/recorded_cases.h"

namespace shadowgraph {

using Json = nlohmann::json;

inline constexpr const char* kCuratedFiles[] = {"attention.safetensors", "flashinfer.safetensors",
                                                "fa3.safetensors", "flashmla.safetensors"};

/// Below tests/data.
inline SafetensorsFile curated_file(const std::string& path) {
  SafetensorsFile file;
  EXPECT_EQ(read_safetensors(SHADOWGRAPH_TEST_DATA "/" + path, &file).to_string(), "ok");
  return file;
}
inline SafetensorsFile curated(const std::string& name) { return curated_file("kernels/" + name); }

struct Parsed {
  Status status;
  std::vector<RecordedCase> cases;
  std::vector<SkippedCase> skipped;
};
inline Parsed parse(const SafetensorsFile& file) {
  Parsed p;
  p.status = parse_recorded_cases(file, "test", &p.cases, &p.skipped);
  return p;
}

/// The file with only one case.
inline SafetensorsFile only(const SafetensorsFile& file, const std::string& id) {
  SafetensorsFile one;
  one.bytes = file.bytes;
  one.metadata[id] = file.metadata.at(id);
  for (const auto& [name, view] : file.tensors) {
    if (name.starts_with(id + '/')) one.tensors.emplace(name, view);
  }
  return one;
}

/// The first case of every kind in the curated files, by itself.
inline std::vector<std::pair<std::string, SafetensorsFile>> one_case_per_kind() {
  std::vector<std::pair<std::string, SafetensorsFile>> cases;
  for (const char* name : kCuratedFiles) {
    const SafetensorsFile file = curated(name);
    std::set<std::string> seen;
    for (const RecordedCase& v : parse(file).cases) {
      if (seen.insert(v.kind).second) cases.emplace_back(v.id, only(file, v.id));
    }
  }
  return cases;
}

inline bool names(const Status& status, const std::string& field) {
  return std::any_of(status.findings().begin(), status.findings().end(),
                     [&](const Finding& f) { return f.where.field == field; });
}

/// The first curated case of that kind, by itself.
inline std::pair<std::string, SafetensorsFile> case_of_kind(const std::string& kind) {
  for (const auto& [id, file] : one_case_per_kind()) {
    if (parse(file).cases.at(0).kind == kind) return {id, file};
  }
  ADD_FAILURE() << "no case of kind " << kind;
  return {};
}

inline void set_field(SafetensorsFile& file, const std::string& id, const char* field,
                      const Json& value) {
  Json metadata = Json::parse(file.metadata.at(id));
  metadata[field] = value;
  file.metadata[id] = metadata.dump();
}

}  // namespace shadowgraph
