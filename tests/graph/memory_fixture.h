// A small device memory, and accesses to it in a line each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/memory/memory.h"

namespace shadowgraph {

inline AccessSpan span_of(const int32_t* p, int64_t first, int64_t count, Access access,
                          int32_t row = -1) {
  return {p, first, count, 4, access, row};
}
inline AccessSpan read_of(const int32_t* p, int64_t first, int64_t count, int32_t row = -1) {
  return span_of(p, first, count, Access::kRead, row);
}
inline AccessSpan write_of(const int32_t* p, int64_t first, int64_t count, int32_t row = -1) {
  return span_of(p, first, count, Access::kWrite, row);
}

struct Memory {
  explicit Memory(MemoryOptions options = {.capacity = size_t{1} << 24}) : memory(options) {}

  int32_t* ints(size_t n) {
    return static_cast<int32_t*>(memory.allocate(n * 4, AllocKind::kMalloc));
  }
  Origin eager() { return {serial, memory.step(), 0, -1, Phase::kEager, "kernel fill"}; }
  Origin replay(uint64_t launch, int32_t node) {
    return {serial, memory.step(), launch, node, Phase::kReplay, "kernel fill"};
  }
  /// By the next operation.
  void write(const int32_t* p, int64_t first, int64_t count) {
    ++serial;
    memory.commit(eager(), {write_of(p, first, count)});
  }
  std::string judge(const Footprint& spans, const std::vector<BakedPointer>& pointers = {}) {
    return judge_by(eager(), spans, pointers);
  }
  /// The laws that are violated, separated by spaces; the last finding is kept.
  std::string judge_by(const Origin& by, const Footprint& spans,
                       const std::vector<BakedPointer>& pointers = {}) {
    Status status;
    may_run = memory.judge(by, pointers, spans, &status);
    std::string laws;
    for (const Finding& f : status.findings()) {
      laws += (laws.empty() ? "" : " ") + f.id;
      last = f;
    }
    return laws;
  }

  DeviceMemory memory;
  uint64_t serial = 0;
  bool may_run = false;
  Finding last;
};

}  // namespace shadowgraph
