// Runs rows: problems and probes in rounds, results against the oracle, figures into a report.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/peers.h"
#include "bench/probes.h"
#include "bench/rounds.h"
#include "bench/rows.h"
#include "report/bench_report.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/status.h"

namespace shadowgraph::bench {

struct BenchOptions {
  int rounds = 7;   // quiet ones wanted of each row; three times as many are tried
  int threads = 1;  // of shapes that do not say
  uint64_t seed = 1;
  int64_t probe_bytes = bench::probe_bytes();  // a multiple of 2 MiB
  Arith arith = Arith::kPortable;              // fast: for every shape
  std::string flags = {};                      // for the command that a finding names: " --seed 2"
  const std::atomic<bool>* stop = nullptr;
  const Peer* (*find_peer)(std::string_view name) = bench::find_peer;
};

/// A point of a Series: the time of one call, and what the probe says it takes at least; 0 where
/// that probe is below its floor.
struct SeriesPoint {
  int32_t length = 0;
  double ms = 0, limit_ms = 0;
};

/// Why the ratio of these rounds says nothing: what it divides by is below its floor. Empty: it
/// does. Requires a round.
std::string void_reason(const Row& row, const std::vector<Round>& rounds, const ProbeFacts& facts);

class Bench {
 public:
  explicit Bench(const BenchOptions& options)
      : options_(options), probes_(options.seed, options.threads, options.probe_bytes) {}

  /// Findings: what the engine refused, and results that are wrong. The row is in the report in any
  /// case.
  Status run(const Row& row, BenchReport* report);
  /// Median of a few calls at each length. Not ok: as above, and the series ends there.
  Status run(const Series& series, std::vector<SeriesPoint>* points);
  /// The probes as all rounds so far saw them.
  std::vector<BenchProbe> probes();
  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }

 private:
  struct Contestant;
  std::string why_not(const Row& row) const;
  /// *why: whose call was refused or has a wrong result, where the status is not ok.
  Status make_contestants(const Row& row, std::vector<Contestant>* contestants, std::string* why);
  Rounds measure(int threads, int rounds, std::vector<Contestant>& contestants);
  void fill_figures(const Row& row, const std::vector<Round>& rounds, BenchRow* out);

  BenchOptions options_;
  Probes probes_;
  ProbeHistory history_;
};

}  // namespace shadowgraph::bench
