// Judging recorded cases of recurrent kernels: our calls on each, and what others recorded, each
// with its own arithmetic; untouched slots bit for bit. Tested by
// tests/check/linear_vectors_test.cc.
#pragma once

#include "attn/linear_vector.h"
#include "check/vectors.h"

namespace shadowgraph {

/// ErrorRatios::out is the largest of all arrays of a case. Laws: num.bound (ours), num.recorded,
/// num.reference, num.write_set (a slot or step that nobody writes changed), num.exact (parents and
/// lists). A kernel that is known to depart is noted under known_wrong. Never throws but
/// std::bad_alloc.
VectorVerdict judge_linear_vector(const LinearVector& vector);

}  // namespace shadowgraph
