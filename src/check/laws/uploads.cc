// What a fill writes on the host reaches the device. Other laws read the host's side, and launches
// need not read every element: what stays behind is found here.
#include <cstring>

#include "check/laws/judges.h"

namespace shadowgraph {
namespace {

/// The first element of a range that differs; -1: none.
int64_t first_difference(const Buffer& b, const std::byte* staged, Elements range) {
  const size_t size = size_of(b.dtype);
  for (int64_t i = range.first; i < range.first + range.count; ++i) {
    const size_t at = static_cast<size_t>(i) * size;
    if (std::memcmp(staged + at, b.data + at, size) != 0) return i;
  }
  return -1;
}

std::string element(const std::byte* data, DType dtype, int64_t i) {
  const std::byte* at = data + static_cast<size_t>(i) * size_of(dtype);
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return std::to_string(value);
  }
  int64_t value = 0;
  std::memcpy(&value, at, size_of(dtype));
  return number(dtype == DType::kI32 ? static_cast<int32_t>(value) : value);
}

Where where_of(const Buffer& b, int64_t i) {
  if (b.shape.size() != 2) return at(b.name, i);
  return at(b.name, i / b.shape[1], i % b.shape[1]);
}

}  // namespace

void judge_uploads(const MetaFacts& m, LawReport& report) {
  if (!m.ran) return;
  for (const Buffer& b : m.meta.buffers) {
    if (b.data == nullptr || b.lifetime != Lifetime::kPerStep) continue;
    const std::byte* staged = m.meta.arena.staged(b);
    for (const Elements& range : m.meta.arena.filled(b)) {
      const int64_t i = first_difference(b, staged, range);
      judged("mem.not_uploaded", range.count);
      if (i < 0) continue;
      report.fail("mem.not_uploaded", where_of(b, i),
                  element(staged, b.dtype, i) + ", as the step's fill has it",
                  element(b.data, b.dtype, i));
      break;
    }
  }
}

}  // namespace shadowgraph
