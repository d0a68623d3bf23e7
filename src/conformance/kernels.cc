#include "conformance/kernels.h"

#include <algorithm>

namespace shadowgraph::k {
namespace {

int64_t threads(const LaunchFrame& f) {
  return int64_t{f.launch.grid.x} * int64_t{f.launch.block.x};
}
/// How many of n elements have a thread.
int64_t covered(const LaunchFrame& f, int64_t n) { return std::clamp(n, int64_t{0}, threads(f)); }
int64_t covered_arg(const LaunchFrame& f, size_t i) { return covered(f, f.scalar<int32_t>(i)); }

void span(Footprint* spans, const void* p, int64_t first, int64_t count, Access access) {
  if (count > 0) spans->push_back({p, first, count, sizeof(int32_t), access, -1});
}
void reads(Footprint* spans, const void* p, int64_t count) {
  span(spans, p, 0, count, Access::kRead);
}
void writes(Footprint* spans, const void* p, int64_t count) {
  span(spans, p, 0, count, Access::kWrite);
}
/// Atomic operations race with plain writes but not with each other: counted as reads.
void atomics(Footprint* spans, const void* p, int64_t count) { reads(spans, p, count); }

int32_t* p0(const LaunchFrame& f) { return f.pointer<int32_t>(0); }

/// *p = v, and nothing else.
Progress store_one(const LaunchFrame& f, int32_t v) {
  *p0(f) = v;
  return Progress::kDone;
}
void writes_one(const LaunchFrame& f, Footprint* spans) { writes(spans, p0(f), 1); }

Progress fill_body(LaunchFrame& f) {
  std::fill_n(p0(f), covered_arg(f, 2), f.scalar<int32_t>(1));
  return Progress::kDone;
}
void fill_footprint(const LaunchFrame& f, Footprint* spans) {
  writes(spans, p0(f), covered_arg(f, 2));
}

Progress add_body(LaunchFrame& f) {
  const int64_t n = covered_arg(f, 2);
  for (int64_t i = 0; i < n; ++i) p0(f)[i] += f.scalar<int32_t>(1);
  return Progress::kDone;
}
void add_footprint(const LaunchFrame& f, Footprint* spans) {
  reads(spans, p0(f), covered_arg(f, 2));
  writes(spans, p0(f), covered_arg(f, 2));
}

Progress mul_body(LaunchFrame& f) {
  const int64_t n = covered_arg(f, 3);
  for (int64_t i = 0; i < n; ++i) p0(f)[i] = f.scalar<int32_t>(2) * f.pointer<int32_t>(1)[i];
  return Progress::kDone;
}
void mul_footprint(const LaunchFrame& f, Footprint* spans) {
  reads(spans, f.pointer<int32_t>(1), covered_arg(f, 3));
  writes(spans, p0(f), covered_arg(f, 3));
}

Progress copy_body(LaunchFrame& f) {
  const int64_t n = covered_arg(f, 2);
  for (int64_t i = 0; i < n; ++i) p0(f)[i] = f.pointer<int32_t>(1)[i];
  return Progress::kDone;
}
void copy_footprint(const LaunchFrame& f, Footprint* spans) {
  reads(spans, f.pointer<int32_t>(1), covered_arg(f, 2));
  writes(spans, p0(f), covered_arg(f, 2));
}

int64_t len_count(const LaunchFrame& f) { return covered(f, std::min(*f.pointer<int32_t>(1), 32)); }
Progress len_body(LaunchFrame& f) {
  std::fill_n(p0(f), len_count(f), f.scalar<int32_t>(2));
  return Progress::kDone;
}
void len_footprint(const LaunchFrame& f, Footprint* spans) {
  reads(spans, f.pointer<int32_t>(1), 1);
  writes(spans, p0(f), len_count(f));
}

Progress struct_body(LaunchFrame& f) {
  const S4 s = f.scalar<S4>(1);
  std::copy_n(s.v, covered(f, 4), p0(f));
  return Progress::kDone;
}
void struct_footprint(const LaunchFrame& f, Footprint* spans) {
  writes(spans, p0(f), covered(f, 4));
}

Progress count_body(LaunchFrame& f) {
  if (f.scalar<int32_t>(1) != 0) {
    p0(f)[0] += static_cast<int32_t>(f.launch.grid.volume());
    p0(f)[1] += static_cast<int32_t>(f.launch.grid.volume() * f.launch.block.volume());
  }
  return Progress::kDone;
}
void count_footprint(const LaunchFrame& f, Footprint* spans) {
  atomics(spans, p0(f), f.scalar<int32_t>(1) != 0 ? 2 : 0);
}

Progress append_body(LaunchFrame& f) {
  int32_t* log = p0(f);
  const int32_t n = log[0]++;
  log[1 + n] = f.scalar<int32_t>(1);
  return Progress::kDone;
}
void append_footprint(const LaunchFrame& f, Footprint* spans) {
  atomics(spans, p0(f), 1);
  span(spans, p0(f), 1 + int64_t{*p0(f)}, 1, Access::kWrite);
}

Progress spin_body(LaunchFrame& f) {
  if (f.calls < 2 && !f.stalled) return Progress::kWaiting;
  return store_one(f, f.scalar<int32_t>(1));
}

Progress spinflag_body(LaunchFrame& f) {
  const bool set = *f.pointer<volatile int32_t>(0) != 0;
  if (!set && !f.stalled) return Progress::kWaiting;
  *f.pointer<int32_t>(1) = set ? f.scalar<int32_t>(2) : -1;
  return Progress::kDone;
}
void spinflag_footprint(const LaunchFrame& f, Footprint* spans) {
  reads(spans, p0(f), 1);
  writes(spans, f.pointer<int32_t>(1), 1);
}

Progress rmw_body(LaunchFrame& f) {
  if (f.calls == 0) {
    f.state = *p0(f);
    return Progress::kWaiting;
  }
  return store_one(f, static_cast<int32_t>(f.state) + f.scalar<int32_t>(1));
}
void rmw_footprint(const LaunchFrame& f, Footprint* spans) {
  reads(spans, p0(f), 1);
  writes(spans, p0(f), 1);
}

Progress store_body(LaunchFrame& f) { return store_one(f, f.scalar<int32_t>(1)); }

Progress ptr_body(LaunchFrame& f) {
  *f.pointer<void*>(0) = f.pointer<void>(1);
  return Progress::kDone;
}
void ptr_footprint(const LaunchFrame& f, Footprint* spans) {
  writes(spans, p0(f), sizeof(void*) / sizeof(int32_t));
}

Progress wild_body(LaunchFrame& f) {
  p0(f)[f.scalar<int64_t>(1)] = 1;
  return Progress::kDone;
}
void wild_footprint(const LaunchFrame& f, Footprint* spans) {
  span(spans, p0(f), f.scalar<int64_t>(1), 1, Access::kWrite);
}

Progress cold2_body(LaunchFrame& f) { return store_one(f, f.scalar<int32_t>(1) + 1); }

void set_handle(LaunchFrame& f, size_t arg, int32_t value) {
  f.set_conditional(f, f.scalar<uint64_t>(arg), static_cast<uint32_t>(value));
}

Progress whilestep_body(LaunchFrame& f) {
  *p0(f) -= 1;
  set_handle(f, 1, *p0(f) > 0 ? 1 : 0);
  return Progress::kDone;
}

Progress setcond_body(LaunchFrame& f) {
  set_handle(f, 0, *f.pointer<int32_t>(1));
  return Progress::kDone;
}
void setcond_footprint(const LaunchFrame& f, Footprint* spans) {
  reads(spans, f.pointer<int32_t>(1), 1);
}

}  // namespace

constinit const Kernel fill{"fill", fill_body, fill_footprint, 1};
constinit const Kernel add{"add", add_body, add_footprint, 1};
constinit const Kernel mul{"mul", mul_body, mul_footprint, 2};
constinit const Kernel copy{"copy", copy_body, copy_footprint};
constinit const Kernel len{"len", len_body, len_footprint, 2};
constinit const Kernel struct4{"struct", struct_body, struct_footprint};
constinit const Kernel count{"count", count_body, count_footprint};
constinit const Kernel append{"append", append_body, append_footprint, 1};
constinit const Kernel spin{"spin", spin_body, writes_one, 1};
constinit const Kernel spinflag{"spinflag", spinflag_body, spinflag_footprint, 2};
constinit const Kernel rmw{"rmw", rmw_body, rmw_footprint, 1};
constinit const Kernel sys{"sys", store_body, writes_one, 1};
constinit const Kernel ptr{"ptr", ptr_body, ptr_footprint};
constinit const Kernel wild{"wild", wild_body, wild_footprint};
constinit const Kernel cold{"cold", store_body, writes_one, 1};
constinit const Kernel cold2{"cold2", cold2_body, writes_one, 1};
constinit const Kernel whilestep{"whilestep", whilestep_body, rmw_footprint};
constinit const Kernel setcond{"setcond", setcond_body, setcond_footprint};

}  // namespace shadowgraph::k
