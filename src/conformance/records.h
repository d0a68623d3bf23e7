// Records as JSON lines: what a GPU answered, and what a device answers here. Fields: vectors
// tests/data/cuda_graph/README.md. Tested by tests/conformance/records_test.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/program.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// "E", "S", "U".
std::string_view name_of(Verdict verdict);

/// One line: a record, and of which class its program was.
struct RecordedProgram {
  Verdict verdict = Verdict::kExact;
  std::string title;
  Record record;
};

struct RecordFile {
  std::string path;
  std::string recorded_on;  // the _env line in words; empty: there is none
  std::vector<RecordedProgram> cases;
};

/// Lines that cannot be read are findings, named "FILE:LINE"; *file gets all others.
Status parse_records(std::string_view text, const std::string& path, RecordFile* file);
Status read_records(const std::string& path, RecordFile* file);

/// Whole or not at all. device and version: the _env line.
Status write_records(const std::string& path, std::string_view device, std::string_view version,
                     std::span<const RecordedProgram> cases);

}  // namespace shadowgraph
