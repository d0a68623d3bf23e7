#include "fuzz/device/device_grid.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace shadowgraph {

DeviceGridResult run_device_grid(int max_calls, int threads, size_t max_findings,
                                 const std::function<void(uint64_t done, uint64_t of)>& progress,
                                 const std::atomic<bool>& stop, const CaseRange& range,
                                 const std::function<void(uint64_t)>& starts) {
  const SmallPrograms programs(max_calls);
  const uint64_t first = range.next(0), of = range.within(0, programs.size()).size();
  const std::string command =
      "shadowgraph fuzz --exhaustive device-" + std::to_string(max_calls) + " --first ";
  DeviceGridResult all;
  std::map<uint64_t, Status> failed;
  std::mutex mutex;
  std::atomic<uint64_t> next = 0;
  std::atomic<size_t> found = 0;
  const auto work = [&] {
    DeviceGridResult mine;
    {
      const CountsJudgements counts(&mine.laws);
      for (uint64_t i = next++; i < of && found < max_findings && !stop; i = next++) {
        const uint64_t number = first + i * range.shard.count;
        if (starts) starts(number);
        Status status = check_device_program(programs[number], 0, &mine.coverage);
        ++mine.programs;
        if (i % 1024 == 0) progress(i, of);
        if (status.ok()) continue;
        for (Finding& f : status.findings())
          f.reproduce = command + std::to_string(number) + " --cases 1";
        found += status.findings().size();
        const std::lock_guard lock(mutex);
        failed.emplace(number, std::move(status));
      }
    }
    const std::lock_guard lock(mutex);
    all.programs += mine.programs;
    all.coverage.add(mine.coverage), all.laws.add(mine.laws);
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < std::max(1, threads); ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  for (auto& [number, status] : failed) all.findings.add(std::move(status));
  return all;
}

}  // namespace shadowgraph
