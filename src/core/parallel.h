// The parallel constructs: independent items, handed out in order, each run once; or a team whose
// threads hand out work among themselves. Without OpenMP one thread does it all. What an item
// computes must not depend on which thread runs it.
#pragma once

#include <cstdint>
#include <functional>

namespace shadowgraph {

/// OpenMP's default; 1 without it, and where a SerialScope lives.
int default_threads();
bool has_openmp();
/// How many threads a call uses: what it asks for (0: the default), but no more than there are
/// items or than kMostThreads, since a thread that cannot be started ends the process.
int team_size(int wanted, int64_t items);
inline constexpr int kMostThreads = 512;

/// While one lives on a thread, the default there is 1: for calls too small for a team, or from
/// threads that share out the work already.
class SerialScope {
 public:
  SerialScope();
  ~SerialScope();
  SerialScope(const SerialScope&) = delete;
  SerialScope& operator=(const SerialScope&) = delete;
};

/// body(item, thread) for 0 <= item < count, 0 <= thread < threads. body must not throw.
void parallel_for(int64_t count, int threads,
                  const std::function<void(int64_t item, int thread)>& body);

/// body(thread) once on each thread of a team of `threads`, or of fewer where OpenMP gives fewer:
/// so the work must not be divided by their number beforehand. body must not throw.
void parallel_team(int threads, const std::function<void(int thread)>& body);

}  // namespace shadowgraph
