// The swa_merge cases: an extend with a cached prefix under a sliding window, in one pass and in
// parts.
#pragma once

#include "io/flashinfer_case.h"

namespace shadowgraph {

void read_swa_merge(CaseReader& reader, const FlashInferCase& c, KernelVector* vector);

}  // namespace shadowgraph
