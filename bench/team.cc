#include "bench/team.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#ifdef __linux__
#include <sched.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

namespace shadowgraph::bench {
namespace {

struct CpuList {
  std::vector<int> cpus;
  int cores = 0;
};

#ifdef __linux__
std::set<int> allowed_cpus() {
  cpu_set_t set;
  std::set<int> allowed;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) allowed.insert(cpu);
    }
  }
  if (allowed.empty()) allowed.insert(0);
  return allowed;
}

/// The calling thread runs on these CPUs only.
void set_affinity(const std::vector<int>& to) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : to) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

/// The name of the core that a CPU belongs to: the list of its siblings.
std::string core_of(int cpu) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                     "/topology/thread_siblings_list");
  std::string siblings;
  std::getline(file, siblings);
  return siblings.empty() ? std::to_string(cpu) : siblings;
}
#else
std::set<int> allowed_cpus() {
  std::set<int> all = {0};
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i)
    all.insert(static_cast<int>(i));
  return all;
}
void set_affinity(const std::vector<int>&) {}
std::string core_of(int cpu) { return std::to_string(cpu); }
#endif

/// With OMP_PROC_BIND (or OMP_PLACES) OpenMP has bound the first thread before main: the CPUs of
/// the process are then those of its places. Empty: nothing is bound.
std::set<int> places() {
  std::set<int> all;
#ifdef _OPENMP
  if (omp_get_proc_bind() == omp_proc_bind_false) return all;
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> place_cpus(static_cast<size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, place_cpus.data());
    all.insert(place_cpus.begin(), place_cpus.end());
  }
#endif
  return all;
}

CpuList list_cpus() {
  CpuList list;
  std::vector<int> siblings;
  std::set<std::string> cores;
  std::set<int> usable = places();
  if (usable.empty()) usable = allowed_cpus();
  for (int cpu : usable) {
    (cores.insert(core_of(cpu)).second ? list.cpus : siblings).push_back(cpu);
  }
  list.cores = static_cast<int>(list.cpus.size());
  list.cpus.insert(list.cpus.end(), siblings.begin(), siblings.end());
  return list;
}

/// Read before anything is pinned.
const CpuList& cpu_list() {
  static const CpuList list = list_cpus();
  return list;
}

thread_local int pinned_to = -1;  // a CPU; -1: to none

void pin_thread(int thread) {
  const int cpu = cpus()[static_cast<size_t>(thread) % cpus().size()];
  if (pinned_to == cpu) return;
  set_affinity({cpu});
  pinned_to = cpu;
}

}  // namespace

const std::vector<int>& cpus() { return cpu_list().cpus; }
int num_cores() { return cpu_list().cores; }

void unpin() {
  if (pinned_to < 0) return;
  set_affinity(cpus());
  pinned_to = -1;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

#ifdef _OPENMP

int most_threads() { return omp_get_thread_limit(); }

void pin_team(int threads) {
  cpu_list();
#pragma omp parallel num_threads(threads)
  pin_thread(omp_get_thread_num());
}

double time_team(int threads, const std::function<void(int)>& body) {
  pin_team(threads);
  std::vector<double> begin(static_cast<size_t>(threads)), end(begin);
#pragma omp parallel num_threads(threads)
  {
    const int thread = omp_get_thread_num();
#pragma omp barrier
    begin[static_cast<size_t>(thread)] = now();
    body(thread);
    end[static_cast<size_t>(thread)] = now();
  }
  return *std::max_element(end.begin(), end.end()) - *std::min_element(begin.begin(), begin.end());
}

#else

int most_threads() { return 1; }

void pin_team(int) { pin_thread(0); }

double time_team(int, const std::function<void(int)>& body) {
  pin_team(1);
  const double begin = now();
  body(0);
  return now() - begin;
}

#endif

}  // namespace shadowgraph::bench
