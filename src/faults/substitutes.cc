#include "faults/substitutes.h"

#include <algorithm>
#include <functional>

namespace shadowgraph {

void SlippedRun::launch(const KernelLaunch& launch) {
  if (!noted()) {
    LaunchFrame frame{launch};
    launch.kernel->body(frame);
    return;
  }
  Footprint spans;
  launch.kernel->footprint(LaunchFrame{launch}, &spans);
  for (const AccessSpan& span : spans) {
    const auto of =
        std::ranges::find_if(taken_, [&](const Array& a) { return a.place(span) >= 0; });
    if (of == taken_.end()) {
      note(span);
    } else {
      note_taken(span, *of);
    }
  }
}

int64_t SlippedRun::Array::place(const AccessSpan& span) const {
  const auto* at = static_cast<const std::byte*>(span.buffer);
  const std::less<> before;
  if (before(at, bytes.data()) || !before(at, bytes.data() + bytes.size())) return -1;
  return (at - bytes.data()) / element_bytes;
}

/// Where the elements really are; those behind the last one follow it.
void SlippedRun::note_taken(const AccessSpan& span, const Array& array) {
  AccessSpan one = span;
  one.buffer = array.device;
  one.first += array.place(span);
  if (array.from.empty()) return note(one);
  const int64_t first = one.first, end = first + span.count;
  const auto size = std::ssize(array.from);
  one.count = std::min<int64_t>(end, 0) - first;
  if (one.count > 0) note(one);
  one.count = 0;
  for (int64_t i = std::max<int64_t>(first, 0); i < std::min(end, size); ++i) {
    const int64_t at = array.from[static_cast<size_t>(i)];
    if (one.count > 0 && at != one.first + one.count) {
      note(one);
      one.count = 0;
    }
    if (one.count == 0) one.first = at;
    ++one.count;
  }
  if (one.count > 0 && end > size) one.count += end - size;
  if (one.count > 0) note(one);
  if (first < size) return;
  one.first = array.from.back() + 1 + first - size, one.count = span.count;
  note(one);
}

Substitutes::Substitutes(Body body, Notes footprint)
    : clean_{&kPagedAttention,     &kRaggedAttention, &kTiledAttention, &kTritonDecodeStage1,
             &kTritonDecodeStage2, &kTritonExtend,    &kMergeState,     &kMergeTiles,
             &kMergePair,          &kMlaParts,        &kMlaMerge,       &kLinearAttention,
             &kScheduledAttention} {
  for (const Kernel* kernel : clean_)
    slipped_.push_back({.name = kernel->name,
                        .body = body,
                        .footprint = footprint,
                        .stands_in = true,
                        .operands = kernel->operands});
}

const Kernel* Substitutes::of(const Kernel* clean) const {
  const auto it = std::ranges::find(clean_, clean);
  return it == clean_.end() ? clean : &slipped_[static_cast<size_t>(it - clean_.begin())];
}

KernelLaunch Substitutes::clean(const KernelLaunch& launch) const {
  KernelLaunch clean = launch;
  for (size_t i = 0; i < clean_.size(); ++i)
    if (launch.kernel == &slipped_[i]) clean.kernel = clean_[i];
  return clean;
}

}  // namespace shadowgraph
