// A history: a backend, a model and a scheduler that plays requests, step by step through the one
// path. All of it is a function of choices. Tested by tests/fuzz/history_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "check/runner.h"
#include "core/choices.h"
#include "core/shrink.h"
#include "runtime/pool_state.h"

namespace shadowgraph {

/// Sizes that a history has around the constants of backends and kernels (tiles, blocks, chunks,
/// buckets): of one kind, since each costs much of its time. Of small ones it has many. A backend's
/// histories have the others in this order; what shrinks slowly, a crowd, comes last.
enum class HistorySizes : uint8_t { kSmall, kLongExtends, kLongContexts, kManyRequests };

struct History {
  const Backend* backend = nullptr;
  HistorySizes sizes = HistorySizes::kSmall;
  ModelConfig model;
  RuntimeConfig runtime;
  RunnerOptions runner;
  int32_t sisters =
      0;  // of the layers, the last: each differs from another in one thing, or nothing
  int32_t steps = 0;
  bool items = false;  // extends may have some

  /// One line a person can read.
  std::string to_string() const;
};

/// The draws of the backend, by its number in the list, and of HistorySizes.
inline constexpr std::string_view kBackendFactor = "backend", kSizesFactor = "sizes";
/// Requires at least one backend.
History generate_history(Choices& choices, std::span<const Backend* const> backends);

struct HistoryResult {
  Status findings;               // of the first step that has some: there it ends
  int32_t steps = 0;             // that were played
  int32_t judged = 0;            // that the backend ran; 0: nothing is known of it
  int64_t failing_requests = 0;  // of that step
  int64_t acted = 0;             // how often what is planted changed something
  RunnerCounts counts;
  std::map<std::string, int64_t> coverage;  // "flashattention decode replay": steps
  std::vector<Level> ran;                   // the same as levels (run_level)
  std::vector<size_t> parts;  // the choices with which steps and requests begin (MadeCase)
};

/// What a run of histories has in common.
struct HistoryOptions {
  std::vector<const Backend*> backends;
  MakeTap tap;                 // a planted fault
  MakeDevice make_device;      // RunnerOptions'
  bool outputs_alone = false;  // RunnerOptions'
  int32_t steps = 30;          // of a history, at most
  ShrinkBudget shrink;         // of each history that fails
  /// Words before and behind the choices, where a finding says how to repeat a history.
  std::string repeat = "shadowgraph fuzz --choices ";
  std::string flags;              // " --backend flashattention --plant K04"
  std::vector<std::string> refs;  // of what is planted: findings stand on them too
};

/// As generated, with what all of them have in common.
History generate_history(Choices& choices, const HistoryOptions& options);

/// What a plant changes in a history that anything reads, by Effects::first_difference; empty:
/// nothing.
std::string changed_by_plant(std::span<const uint32_t> made, const HistoryOptions& options);

/// Which known mistakes would give the wrong outputs of a history that fails; in full pools, if it
/// fails there, too.
std::vector<Explanation> diagnose_history(std::span<const uint32_t> made,
                                          const HistoryOptions& options,
                                          const std::function<bool()>& stop = {});

/// A history that failed, and the smallest that was found to fail in the same way.
struct HistoryFailure {
  Status findings;       // of the small one; case_id and reproduce are filled in
  int64_t requests = 0;  // in its failing step
  std::vector<uint32_t> choices;
};
HistoryFailure shrink_failure(std::span<const uint32_t> made, const HistoryOptions& options,
                              std::string_view law);
/// Goes on with the choices that made it. tap: a planted fault, or empty. played: gets the steps
/// that were handed over, the failing one last; or nullptr. stop is asked before each step, and
/// ends the history.
HistoryResult run_history(const History& history, Choices& choices, const MakeTap& tap,
                          std::vector<Step>* played = nullptr,
                          const std::function<bool()>& stop = {});

}  // namespace shadowgraph
