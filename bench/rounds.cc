#include "bench/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/team.h"

namespace shadowgraph::bench {
namespace {

constexpr double kSlump = 0.85;

}  // namespace

Quartiles quartiles(std::vector<double> values) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (values.empty()) return {kNone, kNone, kNone};
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double position = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(position);
    const size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (values[above] - values[below]) * (position - std::floor(position));
  };
  return {at(0.25), at(0.5), at(0.75)};
}

double median(std::vector<double> values) { return quartiles(std::move(values)).median; }

void ProbeHistory::add(int threads, const ProbeFigures& figures) {
  for (const Probe probe : kAllProbes) {
    const auto& figure = figures[static_cast<size_t>(probe)];
    if (figure) figures_[{threads, probe}].push_back(*figure);
  }
}

std::string ProbeHistory::slump(int threads, const ProbeFigures& figures) const {
  for (const Probe probe : kAllProbes) {
    const auto known = figures_.find({threads, probe});
    const auto& figure = figures[static_cast<size_t>(probe)];
    if (!figure || known == figures_.end() || known->second.size() < kEnoughRounds) continue;
    if (*figure < kSlump * median(known->second))
      return fmt::format("{} more than 15 % below its median", name_of(probe));
  }
  return "";
}

ProbeFigures ProbeHistory::medians(int threads) const {
  ProbeFigures medians;
  for (const Probe probe : kAllProbes) {
    const auto known = figures_.find({threads, probe});
    if (known != figures_.end()) medians[static_cast<size_t>(probe)] = median(known->second);
  }
  return medians;
}

std::vector<int> ProbeHistory::threads() const {
  std::vector<int> sizes;
  for (const auto& [key, figures] : figures_) {
    if (sizes.empty() || sizes.back() != key.first) sizes.push_back(key.first);
  }
  return sizes;
}

Rounds run_rounds(const RoundsOptions& options, ProbeHistory& history,
                  const std::function<Round()>& measure,
                  const std::function<Contention()>& counters) {
  Rounds result;
  std::vector<Round> disturbed;
  for (int i = 0; i < options.most; ++i) {
    if (static_cast<int>(result.rounds.size()) >= options.rounds) break;
    result.stopped = options.stop != nullptr && options.stop->load();
    if (result.stopped) break;
    const Contention before = counters();
    const double start = now();
    Round round = measure();
    const double seconds = now() - start;
    std::string why = disturbance(before, counters(), seconds);
    if (why.empty()) why = history.slump(options.threads, round.probes);
    history.add(options.threads, round.probes);
    if (why.empty()) {
      result.rounds.push_back(std::move(round));
    } else {
      ++result.rejected[why];
      disturbed.push_back(std::move(round));
    }
  }
  result.quiet = static_cast<int>(result.rounds.size()) >= kEnoughRounds;
  if (!result.quiet) {
    result.rounds.insert(result.rounds.end(), std::make_move_iterator(disturbed.begin()),
                         std::make_move_iterator(disturbed.end()));
  }
  return result;
}

}  // namespace shadowgraph::bench
