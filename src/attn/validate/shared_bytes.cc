#include "attn/validate/shared_bytes.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>

namespace shadowgraph {
namespace {

/// Addresses i * stride, 0 <= i <= last.
struct Axis {
  int64_t stride, last;
};

/// The bytes of a tensor: a first address, and axes that all go up.
struct Bytes {
  uintptr_t first = 0;
  int64_t span = 0;                                        // the last byte lies at first + span
  std::array<Axis, ConstTensorView::kMaxRank + 1> axes{};  // finest first: that of single bytes
  size_t count = 0;

  explicit Bytes(const ConstTensorView& t) {
    const auto size = static_cast<int64_t>(size_of(t.dtype));
    int64_t low = 0, high = 0;
    element_range(t, &low, &high);
    first = reinterpret_cast<uintptr_t>(t.data) + static_cast<uintptr_t>(low * size);
    span = (high - low + 1) * size - 1;
    axes[count++] = {1, size - 1};
    for (size_t i = 0; i < static_cast<size_t>(t.rank); ++i)
      if (t.shape[i] > 1 && t.stride[i] != 0)
        axes[count++] = {std::abs(t.stride[i]) * size, t.shape[i] - 1};
    std::sort(axes.begin(), axes.begin() + static_cast<ptrdiff_t>(count),
              [](const Axis& a, const Axis& b) { return a.stride < b.stride; });
    join();
  }
  bool dense() const { return count == 1; }

 private:
  /// An axis that goes on where the finer one ends is the same axis.
  void join() {
    size_t kept = 0;
    for (size_t i = 1; i < count; ++i) {
      Axis& finer = axes[kept];
      const Axis& next = axes[i];
      if (next.stride % finer.stride == 0 && next.stride / finer.stride <= finer.last + 1) {
        finer.last += next.stride / finer.stride * next.last;
      } else {
        axes[++kept] = next;
      }
    }
    count = kept + 1;
  }
};

/// Is there a sum of i * stride over all axes, least <= i <= most of each, that is 0 from a start?
/// Axes of one stride in both tensors are one here: differences of their indices.
class Search {
 public:
  Search(const Bytes& a, const Bytes& b) {
    for (size_t i = 0; i < a.count; ++i) add(a.axes[i].stride, 0, a.axes[i].last);
    for (size_t i = 0; i < b.count; ++i) add(b.axes[i].stride, -b.axes[i].last, 0);
    std::sort(axes_.begin(), axes_.begin() + static_cast<ptrdiff_t>(count_),
              [](const Difference& x, const Difference& y) { return x.stride > y.stride; });
    // The axes from i on reach [low_[i], high_[i]], on a grid of grid_[i] bytes.
    for (size_t i = count_; i-- > 0;) {
      Difference& x = axes_[i];
      low_[i] = low_[i + 1] + x.stride * x.least, high_[i] = high_[i + 1] + x.stride * x.most;
      grid_[i] = x.stride == 1 ? 0 : std::gcd(grid_[i + 1], x.stride);
    }
    byte_low_ = axes_[count_ - 1].least, byte_high_ = axes_[count_ - 1].most;
  }

  SharedBytes from(int64_t start) { return reach(0, start); }

 private:
  struct Difference {
    int64_t stride, least, most;
  };

  void add(int64_t stride, int64_t least, int64_t most) {
    for (size_t i = 0; i < count_; ++i) {
      if (axes_[i].stride != stride) continue;
      axes_[i].least += least, axes_[i].most += most;
      return;
    }
    axes_[count_++] = {stride, least, most};
  }

  static int64_t floor_div(int64_t x, int64_t y) { return x / y - (x % y != 0 && x < 0 ? 1 : 0); }

  /// Some multiple of the grid lies within the bytes' reach of -start.
  bool on_grid(size_t axis, int64_t start) const {
    const int64_t low = -start - byte_high_, high = -start - byte_low_, grid = grid_[axis];
    if (grid == 0) return low <= 0 && 0 <= high;
    return floor_div(high, grid) * grid >= low;
  }

  SharedBytes reach(size_t axis, int64_t start) {
    if (start + low_[axis] > 0 || start + high_[axis] < 0) return SharedBytes::kNone;
    if (axes_[axis].stride == 1) return SharedBytes::kSome;  // the last one, which leaves no gap
    if (!on_grid(axis, start)) return SharedBytes::kNone;
    const Difference& x = axes_[axis];
    // The finer axes make up for the rest.
    const int64_t first = std::max(x.least, -floor_div(start + high_[axis + 1], x.stride));
    const int64_t last = std::min(x.most, floor_div(-start - low_[axis + 1], x.stride));
    for (int64_t i = first; i <= last; ++i) {
      if (++steps_ > kSharedBytesSteps) return SharedBytes::kUndecided;
      const SharedBytes found = reach(axis + 1, start + i * x.stride);
      if (found != SharedBytes::kNone) return found;
    }
    return SharedBytes::kNone;
  }

  static constexpr size_t kMost = 2 * (ConstTensorView::kMaxRank + 1);
  std::array<Difference, kMost> axes_{};
  size_t count_ = 0;
  std::array<int64_t, kMost + 1> low_{}, high_{}, grid_{};
  int64_t byte_low_ = 0, byte_high_ = 0;
  int64_t steps_ = 0;
};

bool has_elements(const ConstTensorView& t) {
  for (size_t i = 0; i < static_cast<size_t>(t.rank); ++i)
    if (t.shape[i] == 0) return false;
  return t.data != nullptr;
}

}  // namespace

bool element_range(const ConstTensorView& t, int64_t* first, int64_t* last) {
  constexpr int64_t kFar = int64_t{1} << 56;  // elements
  *first = *last = 0;
  for (size_t i = 0; i < static_cast<size_t>(t.rank); ++i) {
    // Kernels multiply the stride of an axis of one element, too.
    if (t.shape[i] < 0 || t.stride[i] < -kFar || t.stride[i] > kFar) return false;
    int64_t reach = 0;
    if (__builtin_mul_overflow(t.shape[i] - 1, t.stride[i], &reach)) return false;
    int64_t* end = reach < 0 ? first : last;
    if (__builtin_add_overflow(*end, reach, end)) return false;
    if (*first < -kFar || *last > kFar) return false;
  }
  return true;
}

SharedBytes shares_bytes(const ConstTensorView& a, const ConstTensorView& b) {
  if (!has_elements(a) || !has_elements(b)) return SharedBytes::kNone;
  const Bytes x(a), y(b);
  if (y.first > x.first + static_cast<uintptr_t>(x.span) ||
      x.first > y.first + static_cast<uintptr_t>(y.span))
    return SharedBytes::kNone;
  if (x.dense() && y.dense()) return SharedBytes::kSome;
  return Search(x, y).from(static_cast<int64_t>(x.first - y.first));
}

}  // namespace shadowgraph
