// The curated recurrent vectors of tests/data, whole or case by case, for tests that change them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "io/curated_vectors.h"
#include "io/recorded/recorded_cases.h"

namespace shadowgraph {

inline constexpr const char* kLinearFiles[] = {
    "gdn", "kda", "conv", "mamba2", "lightning", "indexer", "compress", "dualchunk", "sparse"};

inline SafetensorsFile curated_linear(const std::string& name) {
  return curated_file("linear/" + name + ".safetensors");
}

struct LinearFile {
  std::string id, kind;  // kind: "SYSTEM KIND"
  SafetensorsFile file;
};
/// The first case of every kind in the curated files, by itself.
inline std::vector<LinearFile> one_linear_case_per_kind() {
  std::vector<LinearFile> cases;
  std::set<std::string> seen;
  for (const char* name : kLinearFiles) {
    const SafetensorsFile file = curated_linear(name);
    for (const RecordedCase& v : parse(file).cases) {
      const std::string kind = v.system + ' ' + v.kind;
      if (seen.insert(kind).second) cases.push_back({v.id, kind, only(file, v.id)});
    }
  }
  return cases;
}

inline LinearFile linear_case_of_kind(const std::string& kind) {
  for (const LinearFile& one : one_linear_case_per_kind())
    if (one.kind == kind) return one;
  ADD_FAILURE() << "no case of kind " << kind;
  return {};
}

}  // namespace shadowgraph
