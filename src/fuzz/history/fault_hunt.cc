#include "fuzz/history/fault_hunt.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "check/mistakes/mistakes.h"

namespace shadowgraph {
namespace {

Status run_clean(std::span<const uint32_t> made, const HistoryOptions& options) {
  Choices choices(made);
  const History h = generate_history(choices, options.backends);
  return run_history(h, choices, {}).findings;
}

HistoryOptions histories_of(const Planted& planted, const HuntOptions& options,
                            const ShrinkBudget& shrink) {
  HistoryOptions histories;
  histories.backends = options.backends;
  for (const Backend* backend : options.backends)
    histories.flags += " --backend " + std::string(backend->info().name);
  if (options.backends.empty())
    histories.backends.assign(all_backends().begin(), all_backends().end());
  histories.tap = planted.tap();
  histories.shrink = shrink;
  for (const Fault* fault : planted.faults()) {
    histories.flags += " --plant " + std::string(fault->id);
    histories.refs.emplace_back(fault->id);
  }
  return histories;
}

/// Only histories, with the fault in them.
FuzzOptions fuzz_of(const Planted& planted, const HuntOptions& options, size_t max_findings) {
  FuzzOptions fuzz;
  fuzz.seed = options.seed, fuzz.cases = options.cases, fuzz.seconds = options.seconds;
  fuzz.threads = options.threads;
  fuzz.max_findings = max_findings;
  fuzz.kernels = false;
  fuzz.histories = histories_of(planted, options, {.tries = 0});
  return fuzz;
}

/// The votes of all histories together.
class Votes {
 public:
  void add(const std::vector<Explanation>& of_history) {
    for (const Explanation& e : of_history) {
      const auto [it, first] = sums_.try_emplace(e.mistake, e);
      if (first) continue;
      it->second.explained += e.explained, it->second.broken += e.broken;
    }
    if (!of_history.empty()) wrong_ += of_history[0].wrong;
  }
  /// Among mistakes that explain equally many results, the one that is believed first stands first.
  std::vector<Explanation> ranked() const {
    std::vector<Explanation> all;
    for (const Mistake& mistake : all_mistakes()) {
      const auto it = sums_.find(std::string(mistake.id));
      if (it == sums_.end()) continue;
      all.push_back(it->second);
      all.back().wrong = wrong_;
    }
    std::ranges::stable_sort(all, std::greater(),
                             [](const Explanation& e) { return e.explained - e.broken; });
    return all;
  }

 private:
  std::map<std::string, Explanation> sums_;
  int64_t wrong_ = 0;
};

/// What such an access reads or hits is the device's own: it lies outside, another may come first,
/// or metadata leads there, which this device refuses call by call and another row by row.
bool is_open(const Finding& f) {
  constexpr std::string_view kLaws[] = {
      "mem.out_of_bounds",    "mem.red_zone",   "mem.use_after_free", "mem.race",
      "mem.unordered_access", "slot.duplicate", "len.total"};
  return std::ranges::find(kLaws, f.id) != std::end(kLaws);
}

}  // namespace

FaultDiagnosis diagnose_fault(const Planted& planted, const HuntOptions& options,
                              const std::atomic<bool>& stop) {
  FuzzOptions fuzz = fuzz_of(planted, options, static_cast<size_t>(options.diagnosed));
  fuzz.histories.outputs_alone = true;
  const FuzzResult result = run_fuzz(fuzz, {}, stop);
  FaultDiagnosis d;
  d.cases = result.cases + result.skipped;
  Votes votes;
  for (const auto& [law, choices] : result.failures) {
    const std::vector<Explanation> of_history = diagnose_history(choices, fuzz.histories);
    d.failed += !of_history.empty();
    votes.add(of_history);
  }
  d.mistakes = votes.ranked();
  return d;
}

FaultHunt hunt_fault(const Planted& planted, const HuntOptions& options,
                     const std::atomic<bool>& stop) {
  FuzzOptions fuzz = fuzz_of(planted, options, 1);
  const FuzzResult result = run_fuzz(fuzz, {}, stop);
  FaultHunt hunt;
  hunt.verdict = verdict_of(result);
  hunt.acted = result.acted, hunt.unnoticed = result.unnoticed;
  hunt.cases = result.cases + result.skipped, hunt.seconds = result.seconds;
  if (!result.first) return hunt;
  hunt.cases = result.first->cases, hunt.seconds = result.first->seconds;
  hunt.laws = result.first->laws;
  HistoryFailure small = shrink_failure(
      result.first->choices, histories_of(planted, options, options.shrink), hunt.laws[0]);
  hunt.findings = std::move(small.findings), hunt.requests = small.requests;
  hunt.choices = std::move(small.choices);
  hunt.clean = run_clean(result.first->choices, fuzz.histories);
  hunt.clean.add(run_clean(hunt.choices, fuzz.histories));
  return hunt;
}

FaultTwin run_fault_on(const MakeDevice& make_device, const Planted& planted,
                       const HuntOptions& options, const std::atomic<bool>& stop) {
  constexpr uint64_t kSearched = 4000;  // histories, only on the simulated device
  FuzzOptions search = fuzz_of(planted, options, 1);
  search.cases = kSearched, search.seconds = 0;
  const std::optional<FirstFailure> noticed = run_fuzz(search, {}, stop).first;
  FuzzOptions fuzz = fuzz_of(planted, options, 0);
  if (noticed) fuzz.first = noticed->number;
  fuzz.histories.flags += " --device cuda";
  fuzz.histories.make_device = make_device;
  const FuzzResult result = run_fuzz(fuzz, {}, stop);
  FaultTwin twin{result.cases + result.skipped, result.failures.size(), result.seconds, {}, {}};
  for (const auto& [law, choices] : result.failures) {
    if (law != "device.twin" && std::ranges::find(twin.laws, law) == twin.laws.end())
      twin.laws.push_back(law);
  }
  std::set<std::string> open;  // histories
  const auto findings = std::as_const(result.findings).findings();
  for (const Finding& f : findings)
    if (is_open(f)) open.insert(f.case_id);
  for (const Finding& f : findings)
    if (f.id == "device.twin" && !open.contains(f.case_id)) twin.differences.add(f);
  return twin;
}

}  // namespace shadowgraph
