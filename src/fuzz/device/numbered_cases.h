// Cases that have numbers, run on all cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/law_counts.h"
#include "core/shard.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// How a grid's cases run: those of the range, until max_findings findings. progress(done, of)
/// counts cases, and starts is told of each before it runs; any thread may call them.
struct NumberedRun {
  int threads = 1;
  size_t max_findings = 1;
  const std::function<void(uint64_t done, uint64_t of)>& progress;
  const std::atomic<bool>& stop;
  CaseRange range = {};
  std::function<void(uint64_t number)> starts = {};
};

/// check(number, &mine) -> Status, for each number below size; mine is a thread's own, and
/// all.add(mine) joins them. Result has `laws` besides. The findings come by number.
template <class Result, class Check>
Status run_numbered(uint64_t size, const NumberedRun& run, Result* all, Check check) {
  const uint64_t first = run.range.next(0), of = run.range.within(0, size).size();
  std::map<uint64_t, Status> failed;
  std::mutex mutex;
  std::atomic<uint64_t> next = 0;
  std::atomic<size_t> found = 0;
  const auto work = [&] {
    Result mine;
    {
      const CountsJudgements counts(&mine.laws);
      for (uint64_t i = next++; i < of && found < run.max_findings && !run.stop; i = next++) {
        const uint64_t number = first + i * run.range.shard.count;
        if (run.starts) run.starts(number);
        Status status = check(number, &mine);
        if (i % 1024 == 0) run.progress(i, of);
        if (status.ok()) continue;
        found += status.findings().size();
        const std::lock_guard lock(mutex);
        failed.emplace(number, std::move(status));
      }
    }
    const std::lock_guard lock(mutex);
    all->add(mine);
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < std::max(1, run.threads); ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  Status findings;
  for (auto& [number, status] : failed) findings.add(std::move(status));
  return findings;
}

}  // namespace shadowgraph
