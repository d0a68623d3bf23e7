// Kernel vectors: what other people's kernels returned, read from safetensors. A case is one JSON
// string of __metadata__ (its key is the case's id) and the tensors "id/name"; what it is, its own
// fields and tensors say, not the file's name. Tested by tests/io/kernel_vectors_test.cc and
// bad_vectors_test.cc.
#pragma once

#include <string>
#include <vector>

#include "attn/kernel_vector.h"
#include "io/safetensors.h"
#include "io/vector_cases.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// Appends the file's good cases, in the order of their ids. Metadata and tensors must agree with
/// each other (lengths with their indptr, shapes with the sizes); page ids are left to the engine.
/// Every fault of a bad case is a finding with case_id "PATH#ID" (vector.case, vector.tensor, or
/// io.key in its metadata): that case is left out, the others are not. A fault of the file itself
/// has case_id "PATH", and nothing is appended.
Status read_kernel_vectors(const std::string& path, std::vector<KernelVector>* cases,
                           std::vector<SkippedCase>* skipped);

/// The same from a file in memory; name stands for the path in findings.
Status parse_kernel_vectors(const SafetensorsFile& file, const std::string& name,
                            std::vector<KernelVector>* cases, std::vector<SkippedCase>* skipped);

}  // namespace shadowgraph
