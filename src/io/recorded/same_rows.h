// Cases whose rows are another case's: the two are looked up in their file. Tested by
// tests/io/form_fields_test.cc.
#pragma once

#include <string>
#include <vector>

#include "attn/cases/recorded_case.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// Gives each case that has same_rows what the other case's kernel left. A case whose other one is
/// not among the cases, or has no such rows, is a finding (vector.case), and is taken away. name:
/// the file's.
Status find_same_rows(const std::string& name, std::vector<RecordedCase>* cases);

}  // namespace shadowgraph
