#include "fuzz/device/device_grid.h"

#include <string>

#include "fuzz/device/numbered_cases.h"

namespace shadowgraph {

DeviceGridResult run_device_grid(int max_calls, int threads, size_t max_findings,
                                 const std::function<void(uint64_t done, uint64_t of)>& progress,
                                 const std::atomic<bool>& stop, const CaseRange& range,
                                 const std::function<void(uint64_t)>& starts) {
  const SmallPrograms programs(max_calls);
  const std::string command =
      "shadowgraph fuzz --exhaustive device-" + std::to_string(max_calls) + " --first ";
  DeviceGridResult all;
  const auto check = [&](uint64_t number, DeviceGridResult* mine) {
    Status status = check_device_program(programs[number], 0, &mine->coverage);
    ++mine->programs;
    for (Finding& f : status.findings())
      f.reproduce = command + std::to_string(number) + " --cases 1";
    return status;
  };
  all.findings = run_numbered(programs.size(),
                              {threads, max_findings, progress, stop, range, starts}, &all, check);
  return all;
}

}  // namespace shadowgraph
