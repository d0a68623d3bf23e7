// Says which probes lie below their floors, and why; rows that divide by such a probe are void.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/probes.h"

namespace shadowgraph::bench {
namespace {

constexpr double kHugePageShare = 0.9, kGatherOfStream = 0.80, kGatherOfStreamOneThread = 0.50;
constexpr double kUnrollsAgree = 0.95, kWholeClock = 0.05, kOfCalibrated = 0.9;

std::string below(std::string_view what, double is, double floor) {
  return fmt::format("{} is {:.2f}, below its floor of {:.2f}", what, is, floor);
}

/// What both peaks must be: a figure that another unroll reaches too, and these rounds as well.
std::string below_peak_floor(Probe probe, double figure, const ProbeChoice& choice) {
  if (!unrolls_agree(choice))
    return below(fmt::format("second best unroll of {} over the best", name_of(probe)),
                 choice.best > 0 ? choice.second / choice.best : 0, kUnrollsAgree);
  if (figure < kOfCalibrated * choice.best)
    return below(fmt::format("{} in these rounds over its best", name_of(probe)),
                 figure / choice.best, kOfCalibrated);
  return "";
}

}  // namespace

std::string_view name_of(Probe probe) {
  switch (probe) {
    case Probe::kStreamRead: return "stream_read";
    case Probe::kPageGather: return "page_gather";
    case Probe::kStreamUpdate: return "stream_update";
    case Probe::kFmaPeak: return "fma_peak";
    case Probe::kBf16Peak: return "bf16_peak";
    case Probe::kAmxPeak: return "amx_peak";
  }
  return "";
}

bool unrolls_agree(const ProbeChoice& choice) {
  return choice.best > 0 && choice.second >= kUnrollsAgree * choice.best;
}

bool is_whole(double operations) {
  const double whole = std::max(1.0, std::round(operations));
  return operations == 0 || std::abs(operations - whole) <= kWholeClock * whole;
}

std::span<const Probe> probes_of_limit(Probe probe) {
  static constexpr Probe kReads[] = {Probe::kStreamRead, Probe::kPageGather};
  static constexpr Probe kFastArithmetic[] = {Probe::kBf16Peak, Probe::kFmaPeak, Probe::kAmxPeak};
  if (probe == Probe::kStreamRead) return kReads;
  if (probe == Probe::kBf16Peak) return kFastArithmetic;
  return {&kAllProbes[static_cast<size_t>(probe)], 1};
}

std::optional<double> limit_of(Probe probe, const ProbeFigures& figures) {
  std::optional<double> best;
  for (const Probe p : probes_of_limit(probe))
    best = std::max(best, figures[static_cast<size_t>(p)]);
  return best;
}

std::string limit_below_floor(Probe probe, const ProbeFigures& figures, const ProbeFacts& facts) {
  const std::optional<double> best = limit_of(probe, figures);
  if (!best) return below_floor(probe, figures, facts);
  // Nothing that slows a dot product down makes tiles the faster of the two.
  if (probe == Probe::kBf16Peak && best == figures[static_cast<size_t>(Probe::kAmxPeak)])
    return below_floor(Probe::kAmxPeak, figures, facts);
  for (const Probe p : probes_of_limit(probe)) {
    const auto& figure = figures[static_cast<size_t>(p)];
    if (!figure || (p != probe && figure != best)) continue;
    std::string why = below_floor(p, figures, facts);
    if (!why.empty()) return why;
  }
  return "";
}

std::string below_floor(Probe probe, const ProbeFigures& figures, const ProbeFacts& facts) {
  const auto figure = [&](Probe p) { return figures[static_cast<size_t>(p)].value_or(0); };
  const ProbeChoice& choice = facts.choices[static_cast<size_t>(probe)];
  if (!choice.absent.empty()) return choice.absent;
  if (counts_bytes(probe) && facts.cold_share < 1)
    return below("memory read over 8 times the last-level caches", facts.cold_share, 1);
  switch (probe) {
    case Probe::kStreamUpdate:
    case Probe::kStreamRead:
      if (facts.huge_page_share < kHugePageShare)
        return below(fmt::format("share of 2 MiB pages in {}", name_of(probe)),
                     facts.huge_page_share, kHugePageShare);
      return "";
    case Probe::kPageGather: {
      const double floor = facts.threads > 1 ? kGatherOfStream : kGatherOfStreamOneThread;
      const double share = figure(probe) / figure(Probe::kStreamRead);
      if (share < floor) return below("page_gather over stream_read", share, floor);
      return "";
    }
    case Probe::kFmaPeak: {
      std::string why = below_peak_floor(probe, figure(probe), choice);
      if (why.empty() && !is_whole(facts.fma_per_clock))
        why = fmt::format("fma_peak is {:.2f} vector operations a clock, no whole number",
                          facts.fma_per_clock);
      return why;
    }
    case Probe::kBf16Peak: {
      std::string why = below_peak_floor(probe, figure(probe), choice);
      if (why.empty() && !is_whole(2 * facts.dot_per_clock))
        why = fmt::format("bf16_peak is {:.2f} vector operations in two clocks, no whole number",
                          2 * facts.dot_per_clock);
      return why;
    }
    case Probe::kAmxPeak: return "";
  }
  return "";
}

}  // namespace shadowgraph::bench
