// Rounds: in each, everything that a ratio is made of is measured once, back to back, and the ratio
// is taken within the round; what is reported is the median over rounds in which nobody else had
// the machine. Tested by tests/bench/rounds_test.cc.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/contention.h"
#include "bench/probes.h"

namespace shadowgraph::bench {

/// Quartiles, interpolated between neighbours; of nothing: NaN.
struct Quartiles {
  double low = 0, median = 0, high = 0;
};
Quartiles quartiles(std::vector<double> values);
double median(std::vector<double> values);

/// What one round measured.
struct Round {
  ProbeFigures probes;
  std::vector<double> seconds;  // of every contestant, in the row's order
};

/// The figures of every round of a session, quiet or not: what a probe usually says here.
class ProbeHistory {
 public:
  void add(int threads, const ProbeFigures& figures);
  /// Why a round is not to be used: a probe more than 15 % below the median of the session so far.
  /// Empty: none is, or fewer than 5 rounds are known.
  std::string slump(int threads, const ProbeFigures& figures) const;
  /// Medians so far.
  ProbeFigures medians(int threads) const;
  /// Sizes of teams that there are figures of, ascending.
  std::vector<int> threads() const;

 private:
  std::map<std::pair<int, Probe>, std::vector<double>> figures_;
};

inline constexpr int kEnoughRounds = 5;

struct RoundsOptions {
  int rounds = 7;  // quiet ones wanted
  int most = 21;   // rounds in all
  int threads = 1;
  const std::atomic<bool>* stop = nullptr;
};

struct Rounds {
  std::vector<Round> rounds;            // the quiet ones; all, if fewer than kEnoughRounds were
  bool quiet = false;                   // at least kEnoughRounds rounds were
  std::map<std::string, int> rejected;  // why, and how often
  bool stopped = false;
};

/// Measures until enough rounds were quiet. `now` reads the counters before and after each.
Rounds run_rounds(const RoundsOptions& options, ProbeHistory& history,
                  const std::function<Round()>& measure,
                  const std::function<Contention()>& counters = contention);

}  // namespace shadowgraph::bench
