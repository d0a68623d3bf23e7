// Recorded cases: what other people's kernels returned, read from safetensors. A case is one JSON
// string of __metadata__ (its key is the case's id) and the tensors "id/name"; its own fields and
// tensors say what it is, not the file's name. Where one case of a file names a known "system", all
// of them do. Tested by tests/io/kernel_vectors_test.cc, linear_vectors_test.cc and the bad_*
// tests.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "attn/cases/recorded_case.h"
#include "io/recorded/case_reader.h"
#include "io/safetensors.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// A case that is not judged, and said so. Readers leave out those of a kind that none of them
/// knows.
struct SkippedCase {
  std::string id, kind, reason;
  std::string_view law = "skip.kind";
  bool operator==(const SkippedCase&) const = default;
};

/// The ids: prefixes of tensors, and metadata keys "case..." or of an object. Another key may be
/// anything ("format": "pt"). Beside these a tensor without a prefix is a case, too: one that has
/// no metadata, and so is named.
std::set<std::string> case_ids(const SafetensorsFile& file);

/// Does a case name a system of recorded_kinds.inc? Also of a kind that is not known yet.
bool names_systems(const SafetensorsFile& file);

/// Appends the file's good cases, and those that nobody knows, in the order of their ids. Metadata
/// and tensors must agree with each other (lengths with their offsets, shapes with the sizes, -1
/// among the slots with pad_rows). Every index that a reader follows is in range; page ids, and
/// whether two rows may share a slot, are left to the engine. Every fault of a bad case is a
/// finding with case_id "PATH#ID" (vector.case, vector.tensor, or io.key in its metadata): that
/// case is left out, the others are not. A fault of the file itself has case_id "PATH", and nothing
/// is appended. Out of memory: nothing is appended.
Status read_recorded_cases(const std::string& path, std::vector<RecordedCase>* cases,
                           std::vector<SkippedCase>* skipped);

/// The same from a file in memory; name stands for the path in findings.
Status parse_recorded_cases(const SafetensorsFile& file, const std::string& name,
                            std::vector<RecordedCase>* cases, std::vector<SkippedCase>* skipped);

// The readers. Each gets a case with id, system, kind, and one Recorded, the "gpu" of its line's
// kernel, and leaves findings in the reader.
#define SG_RECORDED_KIND(system, kind, kernel, reader) void reader(CaseReader&, RecordedCase*);
#include "io/recorded/recorded_kinds.inc"
#undef SG_RECORDED_KIND

}  // namespace shadowgraph
