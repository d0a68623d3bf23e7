#include "fuzz/fault_hunt.h"

#include <utility>

namespace shadowgraph {
namespace {

Status run_clean(std::span<const uint32_t> made, const HistoryOptions& options) {
  Choices choices(made);
  const History h = generate_history(choices, options.backends);
  return run_history(h, choices, {}).findings;
}

HistoryOptions histories_of(const Planted& planted, int64_t shrink_tries) {
  HistoryOptions options;
  options.backends.assign(all_backends().begin(), all_backends().end());
  options.tap = planted.tap();
  options.shrink_tries = shrink_tries;
  for (const Fault* fault : planted.faults()) {
    options.flags += " --plant " + std::string(fault->id);
    options.refs.emplace_back(fault->id);
  }
  return options;
}

}  // namespace

FaultHunt hunt_fault(const Planted& planted, const HuntOptions& options,
                     const std::atomic<bool>& stop) {
  FuzzOptions fuzz;
  fuzz.seed = options.seed, fuzz.cases = options.cases, fuzz.seconds = options.seconds;
  fuzz.threads = options.threads;
  fuzz.max_findings = 1;
  fuzz.kernels = false;
  fuzz.histories = histories_of(planted, 0);
  const FuzzResult result = run_fuzz(fuzz, {}, stop);
  FaultHunt hunt;
  hunt.cases = result.cases + result.skipped, hunt.seconds = result.seconds;
  if (!result.first) return hunt;
  hunt.cases = result.first->cases, hunt.seconds = result.first->seconds;
  hunt.laws = result.first->laws;
  HistoryFailure small = shrink_failure(
      result.first->choices, histories_of(planted, options.shrink_tries), hunt.laws[0]);
  hunt.findings = std::move(small.findings), hunt.requests = small.requests;
  hunt.choices = std::move(small.choices);
  hunt.clean = run_clean(result.first->choices, fuzz.histories);
  hunt.clean.add(run_clean(hunt.choices, fuzz.histories));
  return hunt;
}

}  // namespace shadowgraph
