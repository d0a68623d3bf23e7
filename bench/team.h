// The threads of a measurement: the same OpenMP team that the engine uses, one thread a core,
// pinned.
#pragma once

#include <functional>
#include <vector>

namespace shadowgraph::bench {

/// CPUs that this process may use, in the order in which threads get them: one of every core first,
/// then the siblings.
const std::vector<int>& cpus();
/// How many of cpus() are cores of their own.
int num_cores();

/// Threads that a team can have: any number, or 1 without OpenMP.
int most_threads();

/// Pins thread i of an OpenMP team of so many to cpus()[i], the calling thread being thread 0.
/// Called before every measurement: a team that was smaller in between has new threads. Without
/// OpenMP, or off Linux, nothing happens.
void pin_team(int threads);

/// The calling thread may run on all of cpus() again, until the next pin_team: threads that another
/// library makes from it may do what it may.
void unpin();

/// body(thread) on a pinned team; seconds from the first thread's start to the last one's end.
double time_team(int threads, const std::function<void(int thread)>& body);

/// Seconds on a steady clock.
double now();

}  // namespace shadowgraph::bench
