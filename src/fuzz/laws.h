// The oracle ladder for one Case: T0 (exact data: the result is known bit for bit), T1 (the derived
// bound against the oracle), T3 (the same values arranged otherwise have the same bits), and the
// write set. Tested by tests/fuzz/laws_test.cc.
#pragma once

#include "attn/case.h"

namespace shadowgraph {

/// What a run of cases has in common.
struct RunOptions {
  Arith arith = Arith::kPortable;
  std::string_view isa;  // empty: the default
};

/// Findings of one case; case_id and reproduce are left to the caller.
Status check_case(const Case& x, const RunOptions& options);

}  // namespace shadowgraph
