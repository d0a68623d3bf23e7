// The cases of a vector file, one by one: what the readers of kernel vectors and of recurrent
// vectors have in common. Tested by tests/io/bad_vectors_test.cc and linear_vectors_test.cc.
#pragma once

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/case_reader.h"
#include "io/file.h"

namespace shadowgraph {

/// A case of a kind that no reader knows: not judged, and said so.
struct SkippedCase {
  std::string id, kind, reason;
  bool operator==(const SkippedCase&) const = default;
};

/// The ids: prefixes of tensors, and metadata keys "case...". Another key may be anything
/// ("format": "pt").
std::set<std::string> case_ids(const SafetensorsFile& file);

/// The case's metadata, an object.
Status case_metadata(const SafetensorsFile& file, const std::string& file_name,
                     const std::string& id, JsonDocument* document);

/// What reads the case, or null: no reader knows it. name: what it calls itself.
template <class Vector>
using RecogniseCase = void (*(*)(CaseReader& reader, std::string* name))(CaseReader&, Vector*);

template <class Vector>
Status read_case(const SafetensorsFile& file, const std::string& file_name, const std::string& id,
                 RecogniseCase<Vector> recognise, std::vector<Vector>* cases,
                 std::vector<SkippedCase>* skipped) {
  JsonDocument document;
  Status status = case_metadata(file, file_name, id, &document);
  if (!status.ok()) return status;
  CaseReader reader(file, file_name, id, document.root);
  std::string name;
  const auto read = recognise(reader, &name);
  if (!reader.ok()) return reader.take_status();
  if (read == nullptr) {
    skipped->push_back({id, printable(name), "kind not known yet"});
    return status;
  }
  Vector vector;
  read(reader, &vector);
  if (!reader.ok()) return reader.take_status();
  vector.id = id;
  vector.storage = reader.take_storage();
  cases->push_back(std::move(vector));
  return status;
}

/// Appends the file's good cases and those that nobody knows, in the order of their ids. The Status
/// holds what is wrong with the others. Out of memory: nothing is appended.
template <class Vector>
Status read_cases(const SafetensorsFile& file, const std::string& name,
                  RecogniseCase<Vector> recognise, std::vector<Vector>* cases,
                  std::vector<SkippedCase>* skipped) {
  return with_memory_findings(name, [&] {
    Status status;
    std::vector<Vector> read;
    std::vector<SkippedCase> left_out;
    const std::set<std::string> ids = case_ids(file);
    if (ids.empty()) status.add(file_finding("io.kind", name, "file", "at least one case", "none"));
    for (const std::string& id : ids)
      status.add(read_case(file, name, id, recognise, &read, &left_out));
    cases->reserve(cases->size() + read.size());  // whatever can fail, first
    skipped->reserve(skipped->size() + left_out.size());
    std::move(read.begin(), read.end(), std::back_inserter(*cases));
    std::move(left_out.begin(), left_out.end(), std::back_inserter(*skipped));
    return status;
  });
}

}  // namespace shadowgraph
