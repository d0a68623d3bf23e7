#include "fuzz/mutate/call_grid.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "fuzz/mutate/legal_calls.h"

namespace shadowgraph {
namespace {

/// The grid's calls, and the number of the first case of each.
struct Numbers {
  std::vector<LegalCallId> calls;
  std::vector<uint64_t> first = {0};  // [calls + 1]
};

const Numbers& numbers() {
  static const Numbers all = [] {
    Numbers n;
    n.calls = legal_calls();
    for (const LegalCallId& id : n.calls)
      n.first.push_back(n.first.back() + make_legal_call(id)->num_mutations());
    return n;
  }();
  return all;
}

}  // namespace

std::string_view name_of(CallVerdict verdict) {
  switch (verdict) {
    case CallVerdict::kRefused: return "refused";
    case CallVerdict::kRight: return "right";
    case CallVerdict::kReadsPoison: return "unwritten";
    case CallVerdict::kUnbacked: return "unbacked";
    case CallVerdict::kWrong: return "wrong";
  }
  return "";
}

void CallGridResult::add(CallGridResult other) {
  cases += other.cases;
  for (const auto& [key, count] : other.counts) counts[key] += count;
  laws.add(other.laws);
  findings.add(std::move(other.findings));
}

uint64_t call_grid_size() { return numbers().first.back(); }

CallGridResult run_call_grid(int threads, size_t max_findings,
                             const std::function<void(uint64_t done, uint64_t of)>& progress,
                             const std::atomic<bool>& stop, const CaseRange& range,
                             const std::function<void(uint64_t)>& starts, const AnswerTap& tap) {
  const Numbers& grid = numbers();
  const uint64_t of = range.within(0, call_grid_size()).size();
  const std::string command =
      "shadowgraph fuzz --exhaustive " + std::string(kCallGrid) + " --first ";
  std::map<size_t, CallGridResult> results;
  std::mutex mutex;
  std::atomic<size_t> next = 0, found = 0;
  std::atomic<uint64_t> done = 0;
  const auto run_call = [&](size_t i) {
    CallGridResult mine;
    const CountsJudgements counts(&mine.laws);
    const CaseRange cases = range.within(grid.first[i], grid.first[i + 1]);
    std::unique_ptr<LegalCall> call;
    for (uint64_t at = cases.next(0); at < cases.end(); at = cases.next(at + 1)) {
      if (stop || found >= max_findings) break;
      if (starts) starts(at);
      if (call == nullptr) call = make_legal_call(grid.calls[i]);
      MutatedCall result = call->run(at - grid.first[i], tap);
      ++mine.cases;
      ++mine.counts[{call->name(), std::string(result.mutation.kind->name), result.verdict}];
      if (++done % 256 == 0) progress(done, of);
      if (result.findings.ok()) continue;
      for (Finding& f : result.findings.findings()) {
        f.case_id = result.mutation.name + ": " + call->to_string();
        f.reproduce = command + std::to_string(at) + " --cases 1";
      }
      found += result.findings.findings().size();
      mine.findings.add(std::move(result.findings));
      call.reset();  // the next case is not blamed for what a failing one leaves
    }
    return mine;
  };
  const auto work = [&] {
    for (size_t i = next++; i < grid.calls.size(); i = next++) {
      CallGridResult mine = run_call(i);
      const std::lock_guard lock(mutex);
      results.emplace(i, std::move(mine));
    }
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < std::max(1, threads); ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  CallGridResult all;
  for (auto& [call, result] : results) all.add(std::move(result));
  return all;
}

}  // namespace shadowgraph
