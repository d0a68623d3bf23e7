// Kernels with a slip, standing in for clean ones: each run makes other launches of the one that it
// is given, over arrays of the device as it takes them to be, and the clean kernels run those. Its
// footprint is theirs. Tested by tests/faults/substitutes_test.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "faults/launches.h"
#include "faults/plant.h"

namespace shadowgraph {

/// One run of a slip: done, or, with a footprint, only noted.
class SlippedRun {
 public:
  explicit SlippedRun(Footprint* spans) : spans_(spans) {}

  bool noted() const { return spans_ != nullptr; }

  /// An array of the device as the kernel takes it to be: values[i] for what it finds at from[i],
  /// which may lie outside. No from: values[i] is at i. Until the run ends.
  template <class T>
  std::span<const T> take(std::span<const T> array, std::vector<T> values,
                          std::vector<int64_t> from = {}) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    Array& a = taken_.emplace_back(Array{
        {bytes, bytes + values.size() * sizeof(T)}, array.data(), std::move(from), sizeof(T)});
    load(array);  // to be changed, all of it
    return {reinterpret_cast<const T*>(a.bytes.data()), values.size()};
  }
  /// An array of the device that the slip itself looks at.
  template <class T>
  std::span<const T> load(std::span<const T> array) {
    note({array.data(), 0, std::ssize(array), sizeof(T), Access::kTouch});
    return array;
  }
  /// An array that only the kernel has.
  template <class T>
  std::span<const T> make(std::vector<T> values) {
    return take(std::span<const T>{}, std::move(values));
  }

  /// What the launch's own kernel does.
  void launch(const KernelLaunch& launch);
  /// One more access.
  void note(const AccessSpan& span) {
    if (noted() && span.buffer != nullptr) spans_->push_back(span);
  }

 private:
  struct Array {
    std::vector<std::byte> bytes;
    const void* device;  // null: not there
    std::vector<int64_t> from;
    uint32_t element_bytes;

    /// Where in it a span's buffer begins; -1: it is of another.
    int64_t place(const AccessSpan& span) const;
  };
  void note_taken(const AccessSpan& span, const Array& array);

  Footprint* spans_;
  std::deque<Array> taken_;
};

/// What a launch becomes, each time that it runs.
using Slip = void (*)(const KernelLaunch& clean, SlippedRun& run);

/// Stand-ins for the kernels of attention and of merges, of the same names.
class Substitutes {
 public:
  using Body = Progress (*)(LaunchFrame& frame);
  using Notes = void (*)(const LaunchFrame& frame, Footprint* spans);
  Substitutes(Body body, Notes footprint);

  const Kernel* of(const Kernel* clean) const;
  /// The launch with the clean kernel.
  KernelLaunch clean(const KernelLaunch& launch) const;

 private:
  std::vector<const Kernel*> clean_;
  std::deque<Kernel> slipped_;
};

template <Slip slip>
struct Slipped {
  static Progress body(LaunchFrame& f) {
    SlippedRun run(nullptr);
    slip(substitutes().clean(f.launch), run);
    return Progress::kDone;
  }
  static void footprint(const LaunchFrame& f, Footprint* spans) {
    SlippedRun run(spans);
    slip(substitutes().clean(f.launch), run);
  }
  static const Substitutes& substitutes() {
    static const Substitutes all(body, footprint);
    return all;
  }
};

/// The launch gets the slip's kernel.
template <Slip slip>
void substitute(KernelLaunch* launch) {
  launch->kernel = Slipped<slip>::substitutes().of(launch->kernel);
}
/// Every launch of these kernels that `where` picks; how many.
template <Slip slip, class Where>
int64_t substitute(std::vector<TappedLaunch>& all, Where where) {
  return std::ranges::count_if(all, [&](TappedLaunch& one) {
    if (!where(std::as_const(one.launch))) return false;
    substitute<slip>(&one.launch);
    return true;
  });
}

/// A fault that gives the slip's kernel to the launches of which `where` holds.
template <Slip slip, bool (*where)(const KernelLaunch&)>
constexpr MakeFault stand_in() {
  return on_launches(
      [](Tap& tap, Launches& all, const Meta&) { tap.act(substitute<slip>(all, where)); });
}

}  // namespace shadowgraph
