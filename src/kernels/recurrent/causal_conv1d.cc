#include "kernels/recurrent/causal_conv1d.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "attn/validate/validate_recurrent.h"
#include "core/float_formats.h"
#include "core/parallel.h"
#include "core/plain_exp.h"
#include "kernels/checked_call.h"
#include "kernels/recurrent/state_spans.h"

namespace shadowgraph {
namespace {

/// Channels that one item of work takes: what it holds of them stays in the first cache.
constexpr int64_t kConvChannels = 128;  // edge: channels
using Channels = std::array<float, kConvChannels>;

/// One channel after the other, at equal distances.
template <class Byte>
struct Line {
  Byte* data;
  int64_t step;  // bytes

  Byte* at(int64_t channel) const { return data + channel * step; }
};
template <class Byte>
Line<Byte> line(Byte* data, DType type, int64_t stride) {
  return {data, stride * static_cast<int64_t>(size_of(type))};
}

/// As load_float, of a type that the compiler knows.
template <DType Type>
float load_as(const std::byte* p) {
  if constexpr (Type == DType::kF32) return load_float(p, Type, 0);
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  if constexpr (Type == DType::kBF16)
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  return decode_float(bits, kF16Format);
}
template <DType Type>
void store_as(std::byte* p, float value) {
  if constexpr (Type == DType::kF32) return store_float(p, Type, 0, value);
  auto bits = static_cast<uint16_t>(encode_float(value, kF16Format));
  if constexpr (Type == DType::kBF16) {
    const auto in = std::bit_cast<uint32_t>(value), odd = in >> 16 & 1;
    const bool nan = (in & 0x7fffffffU) > 0x7f800000U;
    bits = static_cast<uint16_t>(nan ? (in >> 16 & 0x8000U) | 0x7fc0U : (in + 0x7fffU + odd) >> 16);
  }
  std::memcpy(p, &bits, 2);
}

/// body.operator()<Type>() of the three types that validate() accepts.
template <class Body>
void with_type(DType type, const Body& body) {
  if (type == DType::kF32) return body.template operator()<DType::kF32>();
  if (type == DType::kF16) return body.template operator()<DType::kF16>();
  return body.template operator()<DType::kBF16>();
}

void load(Line<const std::byte> from, DType type, int64_t count, float* to) {
  with_type(type, [&]<DType Type> {
    constexpr auto kBytes = static_cast<int64_t>(size_of(Type));
    if (from.step == kBytes) {  // of a known step the loop becomes vectors
      for (int64_t c = 0; c < count; ++c) to[c] = load_as<Type>(from.data + c * kBytes);
    } else {
      for (int64_t c = 0; c < count; ++c) to[c] = load_as<Type>(from.at(c));
    }
  });
}

void store(const float* from, DType type, int64_t count, Line<std::byte> to) {
  with_type(type, [&]<DType Type> {
    constexpr auto kBytes = static_cast<int64_t>(size_of(Type));
    if (to.step == kBytes) {
      for (int64_t c = 0; c < count; ++c) store_as<Type>(to.data + c * kBytes, from[c]);
    } else {
      for (int64_t c = 0; c < count; ++c) store_as<Type>(to.at(c), from[c]);
    }
  });
}

/// The bits as they are; from.data null: zeros.
template <class Word>
void copy_words(Line<const std::byte> from, int64_t count, Line<std::byte> to) {
  for (int64_t c = 0; c < count; ++c) {
    Word word = 0;
    if (from.data != nullptr) std::memcpy(&word, from.at(c), sizeof word);
    std::memcpy(to.at(c), &word, sizeof word);
  }
}
void copy(Line<const std::byte> from, DType type, int64_t count, Line<std::byte> to) {
  if (size_of(type) == 4) return copy_words<uint32_t>(from, count, to);
  copy_words<uint16_t>(from, count, to);
}

void silu(float* x, int64_t count) {
  for (int64_t c = 0; c < count; ++c) x[c] = static_cast<float>(plain_silu(x[c]));
}

/// Bias and weights of a block of channels, and the sum: bias first, then the oldest input.
struct Filter {
  Channels bias{};
  std::array<Channels, kMostConvWidth> weight;

  Filter(const CausalConv1d& call, int64_t first, int64_t count) {
    const ConstTensorView &w = call.weight, &b = call.bias;
    for (int64_t i = 0; i < w.shape[1]; ++i)
      load(line(w.at(first, i), w.dtype, w.stride[0]), w.dtype, count,
           weight[static_cast<size_t>(i)].data());
    if (b.defined()) load(line(b.at(first), b.dtype, b.stride[0]), b.dtype, count, bias.data());
  }

  template <int Width>
  void sum(const std::array<const float*, kMostConvWidth>& in, int64_t count,
           float* __restrict y) const {
    for (int64_t c = 0; c < count; ++c) {
      float s = bias[static_cast<size_t>(c)];
      for (size_t i = 0; i < Width; ++i) s += weight[i][static_cast<size_t>(c)] * in[i][c];
      y[c] = s;
    }
  }
  void sum(int64_t width, const std::array<const float*, kMostConvWidth>& in, int64_t count,
           float* y) const {
    switch (width) {
      case 2: return sum<2>(in, count, y);
      case 3: return sum<3>(in, count, y);
      case 4: return sum<4>(in, count, y);
      case 5: return sum<5>(in, count, y);
      case 6: return sum<6>(in, count, y);
      case 7: return sum<7>(in, count, y);
      default: return sum<8>(in, count, y);
    }
  }
};

/// One row at a block of channels. An input is named by its place in the row: tokens from 0 on,
/// what the slot holds before them, -1 the newest.
class RowRun {
 public:
  RowRun(const CausalConv1d& call, const Filter& filter, int64_t row, int64_t first, int64_t count)
      : call_(call),
        filter_(filter),
        row_(row),
        first_(first),
        count_(count),
        width_(call.weight.shape[1]),
        begin_(call.rows.begin(row)),
        tokens_(call.rows.tokens(row)),
        slot_(call.rows.slot(row)),
        reads_(call.rows.starts_from_slot(row)) {}

  void run() {
    if (!call_.rows.is_computed(row_)) {
      if (call_.rows.pad == PadRow::kZeroOut) zero_out();
      return;
    }
    if (tokens_ == 0) return;
    const bool keeps = call_.draft.keeps(slot_ >= 0);
    for (int64_t j = 0; j < tokens_; ++j) {
      const Window window = window_of(j);
      take_inputs(window, j > 0 && call_.draft.parents.empty());
      filter_.sum(width_, inputs_, count_, y_.data());
      if (call_.activation == CausalConv1d::Activation::kSilu) silu(y_.data(), count_);
      store(y_.data(), call_.out.dtype, count_, channels(call_.out, begin_ + j));
      if (keeps) keep_window(j, window);
    }
    if (slot_ >= 0) write_slot();
  }

 private:
  using Window = std::array<int64_t, kMostConvWidth>;  // places, oldest first

  Line<std::byte> channels(const TensorView& t, int64_t token) const {
    return line(t.at(token, first_), t.dtype, t.stride[1]);
  }

  /// What token j sees, itself last: before a token its parent, before the first the slot.
  Window window_of(int64_t j) const {
    const std::span<const int32_t> parents = call_.draft.parents;
    Window w{};
    for (int64_t i = width_ - 1; i >= 0; --i) {
      w[static_cast<size_t>(i)] = j;
      j = j <= 0 || parents.empty() ? j - 1 : parents[static_cast<size_t>(begin_ + j)];
    }
    return w;
  }

  /// Where an input lies; null: it is 0.
  Line<const std::byte> input(int64_t place) const {
    if (place >= 0)
      return line(call_.x.at(begin_ + place, first_), call_.x.dtype, call_.x.stride[1]);
    if (!reads_) return {nullptr, 0};
    const TensorView& s = call_.states;
    const std::byte* from = s.at(slot_, first_, width_ - 1 + place);
    return line(from, s.dtype, s.stride[1]);
  }

  /// The window's inputs in f32. moves_on: it is one further than the last, and but one is there.
  void take_inputs(const Window& window, bool moves_on) {
    if (moves_on) std::rotate(order_.begin(), order_.begin() + 1, order_.begin() + width_);
    for (int64_t i = moves_on ? width_ - 1 : 0; i < width_; ++i) {
      float* to = memory_[order_[static_cast<size_t>(i)]].data();
      const Line<const std::byte> from = input(window[static_cast<size_t>(i)]);
      if (from.data == nullptr) {
        std::fill_n(to, count_, 0.F);
      } else {
        load(from, call_.x.dtype, count_, to);
      }
    }
    for (size_t i = 0; i < static_cast<size_t>(width_); ++i) inputs_[i] = memory_[order_[i]].data();
  }

  void keep_window(int64_t j, const Window& window) const {
    const DraftSteps& d = call_.draft;
    const int64_t place = d.place(row_);
    for (int64_t i = 0; i + 1 < width_; ++i) {
      copy(input(window[static_cast<size_t>(i + 1)]), d.states.dtype, count_,
           line(d.states.at(place, j, first_, i), d.states.dtype, d.states.stride[2]));
    }
  }

  /// The last inputs of slot and tokens: from the oldest on, each comes of a place behind its own.
  void write_slot() const {
    const TensorView& s = call_.states;
    for (int64_t i = 0; i + 1 < width_; ++i) {
      copy(input(tokens_ - (width_ - 1) + i), s.dtype, count_,
           line(s.at(slot_, first_, i), s.dtype, s.stride[1]));
    }
  }

  void zero_out() {
    y_.fill(0);
    for (int64_t j = 0; j < tokens_; ++j)
      store(y_.data(), call_.out.dtype, count_, channels(call_.out, begin_ + j));
  }

  const CausalConv1d& call_;
  const Filter& filter_;
  const int64_t row_, first_, count_, width_, begin_, tokens_, slot_;
  const bool reads_;
  std::array<size_t, kMostConvWidth> order_ = {0, 1, 2, 3, 4, 5, 6, 7};
  std::array<Channels, kMostConvWidth> memory_;
  std::array<const float*, kMostConvWidth> inputs_{};
  Channels y_;
};

void add_row(Footprint* spans, const CausalConv1d& call, int64_t row) {
  const int64_t slot = call.rows.slot(row);
  const DraftSteps& draft = call.draft;
  add_tokens(spans, call.x, call.rows, row, Access::kRead);
  if (call.rows.starts_from_slot(row))
    add_plane(spans, call.states, call.states.offset(slot), Access::kRead, row);
  if (draft.keeps(slot >= 0)) {
    const int64_t place = draft.place(row);
    for (int64_t j = 0; j < call.rows.tokens(row); ++j)
      add_plane(spans, draft.states, draft.states.offset(place, j), Access::kWrite, row);
  }
  if (slot >= 0) add_plane(spans, call.states, call.states.offset(slot), Access::kWrite, row);
}

}  // namespace

void causal_conv1d_kernel(const CausalConv1d& call) {
  const int64_t dim = call.x.shape[1], rows = call.rows.rows();
  const int64_t blocks = (dim + kConvChannels - 1) / kConvChannels;
  if (rows == 0 || blocks == 0) return;
  // An item is a block of channels at some of the rows: few items load weights seldom, and still
  // there is work for every thread.
  const int64_t wanted = 4 * int64_t{team_size(call.options.num_threads, rows * blocks)};
  const int64_t groups = std::clamp<int64_t>(wanted / blocks, 1, rows);
  const int64_t items = blocks * groups;
  parallel_for(items, team_size(call.options.num_threads, items), [&](int64_t item, int) {
    const int64_t group = item / blocks, first = item % blocks * kConvChannels;
    const int64_t count = std::min(kConvChannels, dim - first);
    const Filter filter(call, first, count);
    for (int64_t row = group * rows / groups; row < (group + 1) * rows / groups; ++row)
      RowRun(call, filter, row, first, count).run();
  });
}

Footprint causal_conv1d_footprint(const CausalConv1d& call) {
  Footprint spans;
  add_plane(&spans, call.weight, 0, Access::kRead, -1);
  if (call.bias.defined()) add_plane(&spans, call.bias, 0, Access::kRead, -1);
  add_rows(&spans, call, [&](int64_t row) { add_row(&spans, call, row); });
  return spans;
}

Status causal_conv1d(const CausalConv1d& call) noexcept {
  return checked(call, [&] { causal_conv1d_kernel(call); });
}

}  // namespace shadowgraph
