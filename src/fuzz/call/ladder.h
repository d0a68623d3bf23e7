// The oracle ladder for one Case: T0 (exact data: the result is known bit for bit), T1 (the derived
// bound against the oracle), T3 (the same values arranged otherwise have the same bits), write set
// and footprint, and refusals. Tested by tests/fuzz/*_laws_test.cc.
#pragma once

#include <string>

#include "attn/cases/case.h"
#include "check/device_calls.h"
#include "core/choices.h"

namespace shadowgraph {

/// What a run of cases has in common.
struct RunOptions {
  Arith arith = Arith::kPortable;
  std::string_view isa;  // empty: the default
  // Runs each case there, as an engine with portable arithmetic: the CPU's gives the same values
  // arranged otherwise the same bits. Null: the CPU runs both
  DeviceCalls* device = nullptr;
  // Findings of wrong outputs of dense attention say which known mistakes would give them
  bool diagnose = false;

  /// As options of `shadowgraph fuzz`: " --arith fast --isa avx2"; only what is not the default.
  std::string flags() const;
};

/// For a variant of a call that must have the same bits: sometimes more threads, and another
/// instruction set where that does not matter.
CallOptions vary_options(const RunOptions& options, Rng& rng);

/// Is there a launch of what the case calls, so that a device can run it?
bool has_launch(const Case& x);

/// Findings of one case; case_id and reproduce are left to the caller.
Status check_case(const Case& x, const RunOptions& options);

}  // namespace shadowgraph
