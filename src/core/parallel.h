// The one parallel construct: independent items, handed out in order, each run once. Without OpenMP
// it is a loop. What an item computes must not depend on which thread runs it.
#pragma once

#include <cstdint>
#include <functional>

namespace shadowgraph {

/// OpenMP's default; 1 without it.
int default_threads();
bool has_openmp();
/// How many threads a call uses: what it asks for (0: the default), but no more than there are
/// items or than kMostThreads, since a thread that cannot be started ends the process.
int team_size(int wanted, int64_t items);
inline constexpr int kMostThreads = 512;

/// body(item, thread) for 0 <= item < count, 0 <= thread < threads. body must not throw.
void parallel_for(int64_t count, int threads,
                  const std::function<void(int64_t item, int thread)>& body);

}  // namespace shadowgraph
