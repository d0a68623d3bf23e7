// The grid of mutated calls: some small legal calls of every kind, and of each every mutation, one
// a case. A mutated call is refused by a law that is about what was changed, and changes nothing;
// or it is taken, and what it leaves is right by the oracle of the call that it now is. Tested by
// tests/fuzz/call_grid_test.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>

#include "core/law_counts.h"
#include "core/shard.h"
#include "fuzz/mutate/mutation.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

inline constexpr std::string_view kCallGrid = "call-mutate";

enum class CallVerdict : uint8_t {
  kRefused,
  kRight,
  kReadsPoison,  // taken, and reads what nobody wrote: only what it writes where is judged
  kUnbacked,     // taken by its numbers, which speak of memory that nobody gave: it is not run
  kWrong,        // there is a finding
};
std::string_view name_of(CallVerdict verdict);

struct CallGridResult {
  uint64_t cases = 0;
  /// By the call, the kind of mutation and the verdict: "sparse pack_latents", "dtype".
  std::map<std::tuple<std::string, std::string, CallVerdict>, int64_t> counts;
  LawCounts laws;
  Status findings;  // by number; reproduce: the command that runs its case alone

  void add(CallGridResult other);
};

/// A slip of the engine that is planted between it and its judge: changes what it said of a call.
using AnswerTap = std::function<void(const Mutation& mutation, Status* said)>;

uint64_t call_grid_size();
/// Stops after max_findings findings. progress(done, of) counts cases, and starts is told of each
/// before it runs; any thread may call them.
CallGridResult run_call_grid(int threads, size_t max_findings,
                             const std::function<void(uint64_t done, uint64_t of)>& progress,
                             const std::atomic<bool>& stop, const CaseRange& range = {},
                             const std::function<void(uint64_t number)>& starts = {},
                             const AnswerTap& tap = {});

}  // namespace shadowgraph
