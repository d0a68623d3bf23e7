// Tables of names that more than one verb prints.
#pragma once

#include <string>

#include "core/refs.h"
#include "report/report.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph::cli {

Listing list_modes();
/// Keys of trace lines.
Listing list_keys();
/// What is judged of recorded metadata. Empty: fields of every backend, or of every name.
Listing list_fields(const std::string& backend, const std::string& name = "");
Listing list_backends();
/// Conventions of engines.
Listing list_engines();
Listing list_faults();
Listing list_mistakes();
Listing list_references();
/// A reference's sentence, and why nothing here can break it, if so.
std::string what_it_says(const Reference& r);
/// Laws, with whether judge_metadata knows them.
/// name: what the list is called, "laws" or, as it was called first, "invariants".
Listing list_laws(const std::string& name);
Listing list_kernels();
Listing list_arithmetics();
Listing list_targets();
Listing list_programs();
Listing list_grids();
/// Features of random cases.
Listing list_features();

}  // namespace shadowgraph::cli
