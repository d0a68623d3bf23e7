// run_fuzz: many generated cases on all cores. Case i of a seed is the same case wherever and
// whenever it runs. Tested by tests/fuzz/fuzz_test.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/law_counts.h"
#include "core/shard.h"
#include "faults/faults.h"
#include "fuzz/call/ladder.h"
#include "fuzz/features.h"
#include "fuzz/file/run_record.h"
#include "fuzz/history/history.h"
#include "fuzz/pairs.h"

namespace shadowgraph {

struct FuzzOptions {
  uint64_t seed = 1;
  uint64_t first = 0;         // number of the first case
  uint64_t cases = 0;         // 0: no limit; of all shards together
  Shard shard;                // runs the cases whose numbers it has
  double seconds = 0;         // 0: no limit; one of the two is set
  int threads = 0;            // cases at once; 0: one a core
  size_t max_findings = 100;  // stops after so many failing cases; 0: no limit
  // So many failing cases of one law are shrunk, and their findings listed: with one thread the
  // first ones; the others are only counted. 0: all of them
  size_t most_of_a_law = 0;
  std::function<void(uint64_t number)> starts;  // told of each case before it runs; any thread
  RunOptions run;
  // Cases with an odd number are histories of these backends, where there are some; without kernels
  // all are
  bool kernels = true;
  HistoryOptions histories;
  // The tap of histories as generated, where somebody counts how often it acts; empty:
  // histories.tap, with which they are shrunk and compared
  MakeTap counted_tap;
  bool digest = false;  // FuzzResult::runs
};

struct FuzzProgress {
  uint64_t cases = 0, findings = 0;  // skipped cases, too; cases that failed
  double seconds = 0;
};

/// How many cases had which value; keys are counted per case over its requests (median request).
struct FuzzHistograms {
  std::map<int64_t, int64_t> keys, requests, head_dim;
};

/// The failure that was seen first, by the clock, before it was shrunk.
struct FirstFailure {
  double seconds = 0;             // since the start
  uint64_t number = 0;            // of the history
  uint64_t cases = 0;             // that had ended by then
  std::vector<std::string> laws;  // of all its findings, each once
  std::vector<uint32_t> choices;
};

/// A history in which what is planted changed something, and nothing noticed it.
struct Unnoticed {
  uint64_t number = 0;
  std::string what;  // the first: "store_kv reads something else"
  std::vector<uint32_t> choices;
};

struct FuzzResult {
  uint64_t cases = 0;    // judged
  uint64_t skipped = 0;  // histories of which the backend ran no step
  double seconds = 0;
  // case_id and reproduce filled in, in the order of case numbers; of one case first those of the
  // law for which it was shrunk
  Status findings;
  uint64_t unlisted = 0;               // failing cases of which there is none
  std::optional<FirstFailure> first;   // of histories
  uint64_t acted = 0;                  // histories in which what is planted acted
  std::optional<Unnoticed> unnoticed;  // the first that a worker saw
  // Histories that failed, in the order of case numbers: the law, and the choices of the small one
  std::vector<std::pair<std::string, std::vector<uint32_t>>> failures;
  std::vector<std::pair<std::string, std::vector<uint32_t>>> call_failures;  // the same of calls
  std::vector<RunRecord> runs;  // histories in the order of their numbers, as hashes
  FuzzHistograms histograms;
  // "decode_paged uniform eager": cases; "flashattention decode replay": steps
  std::map<std::string, int64_t> coverage;
  // "flashinfer sinks merged": steps of histories (RunnerCounts::parameters)
  std::map<std::string, int64_t> parameters;
  LawCounts laws;          // judgements of the cases as generated, not of shrinking them
  FeatureCounts features;  // those that no case had, too
  PairCounts pairs;        // of each kind that the options have
};

/// What such histories say of a plant.
PlantVerdict verdict_of(const FuzzResult& result);

/// The Case with that number.
Case fuzz_case(uint64_t seed, uint64_t number);

/// Under which FuzzResult::coverage counts a Case.
std::string coverage_key(const Case& x);

/// progress is called a few times a second, from one thread; stop ends the run after the cases in
/// hand.
FuzzResult run_fuzz(const FuzzOptions& options,
                    const std::function<void(const FuzzProgress&)>& progress,
                    const std::atomic<bool>& stop);

}  // namespace shadowgraph
