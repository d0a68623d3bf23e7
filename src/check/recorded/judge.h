// Judging recorded cases: our call of each case, and what others recorded, each with its own
// arithmetic; places that nobody writes bit for bit. Tested by tests/check/vectors_test.cc,
// linear_vectors_test.cc and their neighbours.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/cases/recorded_case.h"
#include "check/device_calls.h"
#include "check/runner.h"

namespace shadowgraph {

/// Largest error over its bound; absent where there was nothing to judge. out: the largest of all
/// arrays of a call other than attention.
struct ErrorRatios {
  std::optional<double> out, lse;
};

struct RecordedVerdict {
  std::string id, kind;  // kind: with its system, where the case has one
  DType dtype = DType::kF32;
  ErrorRatios ours;       // over all calls
  ErrorRatios twin;       // of FlashInfer's cases: planned and run by the twin's launches
  ErrorRatios gpu;        // over what was recorded, known-wrong variants left out
  ErrorRatios reference;  // the file's own float64 result
  bool acted = true;      // the planted fault, if there is one, changed something
  int64_t rows = 0;       // of our calls; of attention (query row, head) pairs
  int64_t empty_rows = 0;
  int64_t marked_rows = 0;  // of recorded kernels, those with a mark that the case does not promise
  // Whether what was recorded of the kernel broke no law; absent: nothing of it was judged. The
  // file's own reference has no part in it
  std::optional<bool> kernel_accepted;
  int64_t unbounded_rows = 0;  // rows about which a bound says nothing
  std::vector<std::string> notes;
  // Variants recorded as wrong on purpose, kernels that are known to depart, and how far off they
  // are
  std::vector<std::string> known_wrong;
  // num.bound, num.lse_bound, num.empty_row, num.recorded, num.reference; num.bits: rows that are
  // another case's; num.write_set: a slot or step that nobody writes changed; num.exact: our store
  // of appended keys left other bits, parents and lists; input.* if a call is refused. case_id is
  // the case's id
  Status findings;
};

struct RecordedOptions {
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
bool is_planted(const RecordedCase& c);

/// vector.case for each case whose kernel has an arithmetic that no list has; it is taken away.
/// case_id is "FILE#ID".
Status take_unknown_arithmetics(const std::string& file, std::vector<RecordedCase>* cases);

/// Never throws but std::bad_alloc.
RecordedVerdict judge_recorded(const RecordedCase& c, const RecordedOptions& options = {});

}  // namespace shadowgraph
