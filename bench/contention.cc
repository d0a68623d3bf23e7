#include "bench/contention.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace shadowgraph::bench {
namespace {

constexpr double kWaitShare = 0.005;

}  // namespace

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int64_t wait_of(std::string_view schedstat) {
  std::istringstream fields{std::string(schedstat)};
  int64_t run = 0, wait = 0;
  return fields >> run >> wait ? wait : -1;
}

int64_t steal_of(std::string_view cpu_line) {
  std::istringstream fields{std::string(cpu_line)};
  std::string name;
  int64_t user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  fields >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  return fields && name == "cpu" ? steal : 0;
}

Contention contention() {
  Contention c;
  struct rusage usage {};
  if (getrusage(RUSAGE_SELF, &usage) == 0) c.involuntary_switches = usage.ru_nivcsw;
  c.steal_ticks = steal_of(first_line("/proc/stat"));
  c.counts_wait = false;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    const int64_t wait = wait_of(first_line(task.path() / "schedstat"));
    if (wait < 0) continue;  // or the thread has just ended
    c.wait_ns[std::atoll(task.path().filename().c_str())] = wait;
    c.counts_wait = true;
  }
  return c;
}

Contention contention_of_others() {
  Contention c;
  c.steal_ticks = contention().steal_ticks;
  return c;
}

int64_t waited_ns(const Contention& before, const Contention& after) {
  int64_t sum = 0;
  for (const auto& [thread, wait] : after.wait_ns) {
    const auto known = before.wait_ns.find(thread);
    // Less than before: another thread has got the id of one that ended.
    sum += std::max<int64_t>(0, wait - (known != before.wait_ns.end() ? known->second : 0));
  }
  return sum;
}

std::string disturbance(const Contention& before, const Contention& after, double seconds) {
  const int64_t switches = after.involuntary_switches - before.involuntary_switches;
  const int64_t steal = after.steal_ticks - before.steal_ticks;
  const double waited = static_cast<double>(waited_ns(before, after)) * 1e-9;
  if (steal > 0) return "the hypervisor ran somebody else";
  if (waited > kWaitShare * seconds) return "a thread of ours waited for a processor";
  if (switches > 0 && !after.counts_wait) return "a thread of ours was put aside";
  return "";
}

}  // namespace shadowgraph::bench
