// A record against a recorded one: steps without their arguments, capture status, graphs up to
// isomorphism, buffers, facts, host calls. Tested by tests/conformance/compare_test.cc.
#pragma once

#include <string>
#include <vector>

#include "conformance/program.h"

namespace shadowgraph {

/// One difference, in the words of the field.
struct Difference {
  std::string field;              // "step 5 cudaStreamEndCapture ret", "buffer A[2]"
  std::string got, recorded;      // "0", "901"
  std::string to_string() const;  // "step 5 cudaStreamEndCapture ret: 0, recorded 901"
};

/// Empty: they agree.
std::vector<Difference> compare(const Record& got, const Record& recorded);

/// A fact in a word; "true", "-1", "cudaErrorNotPermitted".
std::string to_string(const Fact& fact);

/// Whether there is a one-to-one map of nodes that keeps labels and edges with their data. Kernel
/// labels agree by name and value; where one states no value, by name.
bool is_isomorphic(const GraphDump& a, const GraphDump& b);
/// Whether node i of one is node i of the other.
bool is_identical(const GraphDump& a, const GraphDump& b);

}  // namespace shadowgraph
