// The one parallel construct: independent items, handed out in order, each run once. Without OpenMP it is a loop.
// The result must not depend on which thread runs an item.
#pragma once

#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace shadowgraph {

inline int default_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

/// body(item, thread) for 0 <= item < count, 0 <= thread < threads. body must not throw.
template <class Body>
void parallel_for(int64_t count, int threads, const Body& body) {
#ifdef _OPENMP
  if (threads > 1 && count > 1) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t item = 0; item < count; ++item) body(item, omp_get_thread_num());
    return;
  }
#endif
  (void)threads;
  for (int64_t item = 0; item < count; ++item) body(item, 0);
}

}  // namespace shadowgraph
