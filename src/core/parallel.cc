#include "core/parallel.h"

#include <algorithm>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace shadowgraph {
namespace {

thread_local int serial_scopes = 0;

}  // namespace

SerialScope::SerialScope() { ++serial_scopes; }
SerialScope::~SerialScope() { --serial_scopes; }

int team_size(int wanted, int64_t items) {
  const int threads = std::min(wanted > 0 ? wanted : default_threads(), kMostThreads);
  return static_cast<int>(std::clamp<int64_t>(items, 1, threads));
}

#ifdef _OPENMP

int default_threads() { return serial_scopes > 0 ? 1 : omp_get_max_threads(); }
bool has_openmp() { return true; }

void parallel_for(int64_t count, int threads, const std::function<void(int64_t, int)>& body) {
  if (threads <= 1 || count <= 1) {
    for (int64_t item = 0; item < count; ++item) body(item, 0);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64_t item = 0; item < count; ++item) body(item, omp_get_thread_num());
}

void parallel_team(int threads, const std::function<void(int)>& body) {
  if (threads <= 1) return body(0);
#pragma omp parallel num_threads(threads)
  body(omp_get_thread_num());
}

#else

int default_threads() { return 1; }
bool has_openmp() { return false; }

void parallel_for(int64_t count, int, const std::function<void(int64_t, int)>& body) {
  for (int64_t item = 0; item < count; ++item) body(item, 0);
}

void parallel_team(int, const std::function<void(int)>& body) { body(0); }

#endif

}  // namespace shadowgraph
