// Recurrent vectors: what other people's linear attention, convolutions and gates returned, read
// from safetensors. The format is that of kernel vectors; a case's metadata names its "system".
// Fields and conventions: tests/data/README.md. Tested by tests/io/linear_vectors_test.cc and
// bad_linear_vectors_test.cc.
#pragma once

#include <string>
#include <vector>

#include "attn/linear_vector.h"
#include "io/safetensors.h"
#include "io/vector_cases.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// Does a case name one of the systems of such files? Also of one that is not known yet.
bool holds_linear_cases(const SafetensorsFile& file);

/// As read_kernel_vectors(). Metadata and tensors must agree: offsets with lengths, -1 among the
/// slots with pad_rows. Every index is in range; what two rows may share is left to the engine.
Status read_linear_vectors(const std::string& path, std::vector<LinearVector>* cases,
                           std::vector<SkippedCase>* skipped);

/// The same from a file in memory; name stands for the path in findings.
Status parse_linear_vectors(const SafetensorsFile& file, const std::string& name,
                            std::vector<LinearVector>* cases, std::vector<SkippedCase>* skipped);

}  // namespace shadowgraph
