// Judging kernel vectors: our engine on every call of a case, and what others recorded, each with
// its own arithmetic. Tested by tests/check/vectors_test.cc.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/kernel_vector.h"
#include "check/compare.h"
#include "check/device_calls.h"
#include "check/runner.h"

namespace shadowgraph {

/// Largest error over its bound; absent where there was nothing to judge.
struct ErrorRatios {
  std::optional<double> out, lse;
};

struct VectorVerdict {
  std::string id, kind;
  DType dtype = DType::kF32;
  ErrorRatios ours;       // over all calls
  ErrorRatios twin;       // of FlashInfer's cases: planned and run by the twin's launches
  ErrorRatios gpu;        // over what was recorded, known-wrong variants left out
  ErrorRatios reference;  // the file's own float64 result
  bool acted = true;      // the planted fault, if there is one, changed something
  int64_t rows = 0;       // (query row, head) pairs of our calls
  int64_t empty_rows = 0;
  int64_t unbounded_rows = 0;  // rows about which a bound says nothing
  std::vector<std::string> notes;
  // Variants recorded as wrong on purpose, and how far off they are
  std::vector<std::string> known_wrong;
  // num.bound, num.lse_bound, num.empty_row, num.recorded, num.reference; num.exact: our store of
  // appended keys left other bits; input.* if a call is refused. case_id is the case's id
  Status findings;
};

struct VectorOptions {
  Arith arith = Arith::kPortable;
  // A planted fault, of one case at a time: only the twin's step of a two-part prefill is judged,
  // against what was recorded of the fault
  MakeTap tap = {};
  // Findings of wrong results, and notes on known-wrong variants, say which known mistakes would
  // give them
  bool diagnose = false;
  // Runs attention calls, in portable arithmetic: with the CPU's bits, else num.bits. Null: the CPU
  DeviceCalls* device = nullptr;
};

/// With a tap: whether it stands on this case's path.
bool is_planted(const KernelVector& vector);

/// Never throws but std::bad_alloc.
VectorVerdict judge_vector(const KernelVector& vector, const VectorOptions& options = {});

}  // namespace shadowgraph
