// Whether somebody else had our processors: what the kernel says of this process. Tested by
// tests/bench/contention_test.cc.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace shadowgraph::bench {

/// The first line of a file of the kernel's; empty: it cannot be read.
std::string first_line(const std::filesystem::path& path);

/// Counters that only grow.
struct Contention {
  int64_t involuntary_switches = 0;  // getrusage: a thread of ours was put aside
  // /proc/self/task/*/schedstat: how long each of our threads waited for a processor, by its id. A
  // thread that ends is gone from here.
  std::map<int64_t, int64_t> wait_ns = {};
  int64_t steal_ticks = 0;  // /proc/stat: the hypervisor ran somebody else
  bool counts_wait = true;  // false: this kernel has no schedstat
};

/// Now; zeros where there is no /proc.
Contention contention();

/// The same of the hypervisor alone: for work whose threads are more than the processors, and so
/// wait for each other.
Contention contention_of_others();

/// Run-queue wait of a /proc/PID/schedstat line ("RUN WAIT SLICES"), ns; -1 if it is none.
int64_t wait_of(std::string_view schedstat);
/// Steal ticks of a /proc/stat "cpu" line; 0 if it is none.
int64_t steal_of(std::string_view cpu_line);

/// Nanoseconds that the threads of `after` waited since `before`: what one has more than it had.
int64_t waited_ns(const Contention& before, const Contention& after);

/// Why a time between the two counts is not to be used: any steal, or more than 0.5 % of it lost to
/// waiting for a processor. Empty: it was quiet. A switch counts by what it cost; by itself only
/// where the kernel does not say that.
std::string disturbance(const Contention& before, const Contention& after, double seconds);

}  // namespace shadowgraph::bench
