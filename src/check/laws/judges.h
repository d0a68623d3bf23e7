// The functions of metadata_laws.inc. Each may be given metadata that other laws have found broken.
#pragma once

#include "check/laws/facts.h"

namespace shadowgraph {

// A function of several laws is declared once for each: the same declaration.
#define SG_METADATA_LAW(law, function) void function(const MetaFacts& facts, LawReport& report);
#include "check/laws/metadata_laws.inc"
#undef SG_METADATA_LAW

}  // namespace shadowgraph
