#include "fuzz/device/device_grid.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

namespace shadowgraph {

DeviceGridResult run_device_grid(int max_calls, int threads, size_t max_findings,
                                 const std::function<void(size_t done, size_t of)>& progress,
                                 const std::atomic<bool>& stop, const Shard& shard) {
  const size_t parts = small_scope().size();
  DeviceGridResult all;
  std::mutex mutex;
  std::atomic<size_t> next = 0;
  std::atomic<bool> enough = false;
  size_t done = 0;
  const auto work = [&] {
    for (size_t part = next++; part < parts && !enough && !stop; part = next++) {
      DeviceGridResult mine;
      const CountsJudgements counts(&mine.laws);
      uint64_t number = 0;
      for_each_small_program(part, max_calls, [&](const DeviceProgram& program) {
        if (!shard.has(number++)) return true;
        ++mine.programs;
        mine.findings.add(check_device_program(program, 0, &mine.coverage));
        return !enough && !stop && std::as_const(mine.findings).findings().size() < max_findings;
      });
      const std::lock_guard lock(mutex);
      all.programs += mine.programs;
      all.findings.add(std::move(mine.findings));
      all.coverage.add(mine.coverage), all.laws.add(mine.laws);
      enough = enough || std::as_const(all.findings).findings().size() >= max_findings;
      progress(++done, parts);
    }
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < std::max(1, threads); ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  return all;
}

}  // namespace shadowgraph
