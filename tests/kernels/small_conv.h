// A small causal convolution that owns its memory, and can be copied: the same batch twice, once
// with one thing changed.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "check/bounds/conv_bound.h"
#include "check/bounds/error_bound.h"
#include "core/choices.h"
#include "core/float_formats.h"
#include "oracle/conv_oracle.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {

struct SmallConv {
  using Bytes = std::vector<std::byte>;

  DType type = DType::kF32;
  int64_t dim = 5, width = 4, slots = 6;
  std::vector<int32_t> cu = {0}, slot_of;
  std::vector<uint8_t> has;  // empty: all
  PadRow pad = PadRow::kSkip;
  CausalConv1d::Activation activation = CausalConv1d::Activation::kNone;
  bool with_bias = true;
  bool channels_first = false;  // x, out: [dim, tokens] in memory; states: [slots, width - 1, dim]
  int64_t places = 0, steps = 0;  // of draft windows; 0: none are kept
  std::vector<int32_t> draft_indices, parents;
  bool windows_of_padding = true;
  CallOptions options;
  Bytes x, weight, bias, states, windows, out;

  void add_row(int32_t tokens, int32_t slot, uint8_t has_state = 1) {
    cu.push_back(cu.back() + tokens);
    slot_of.push_back(slot);
    has.push_back(has_state);
  }
  int64_t tokens() const { return cu.back(); }
  int64_t history() const { return width - 1; }

  /// value(): the next number, of what is read and of the states. What is written holds 0x7e bytes.
  template <class Value>
  void fill(const Value& value) {
    const auto make = [&](int64_t count) {
      Bytes bytes(static_cast<size_t>(count) * size_of(type));
      for (int64_t i = 0; i < count; ++i) store_float(bytes.data(), type, i, value());
      return bytes;
    };
    x = make(tokens() * dim), weight = make(dim * width), bias = make(dim);
    states = make(slots * dim * history());
    windows.assign(static_cast<size_t>(places * steps * dim * history()) * size_of(type), kMark);
    out.assign(static_cast<size_t>(tokens() * dim) * size_of(type), kMark);
  }
  /// Sums of these are exact in every type.
  void fill_integers(uint64_t seed) {
    Rng rng(seed);
    fill([&] { return static_cast<float>(rng.below(9)) - 4; });
  }
  void fill_random(uint64_t seed, float largest = 4) {
    Rng rng(seed);
    fill([&] { return largest * rng.signed_unit(); });
  }

  CausalConv1d call() {
    const auto view = [&](Bytes& bytes, std::initializer_list<int64_t> shape,
                          std::initializer_list<int64_t> strides) {
      return channels_first ? TensorView(bytes.data(), type, shape, strides)
                            : TensorView(bytes.data(), type, shape);
    };
    CausalConv1d c;
    c.x = view(x, {tokens(), dim}, {1, tokens()});
    c.weight = view(weight, {dim, width}, {width, 1});
    if (with_bias) c.bias = view(bias, {dim}, {1});
    c.activation = activation;
    c.rows = {cu, slot_of, has, pad};
    c.states = view(states, {slots, dim, history()}, {dim * history(), 1, dim});
    if (places > 0)
      c.draft.states = view(windows, {places, steps, dim, history()},
                            {steps * dim * history(), dim * history(), 1, dim});
    c.draft.indices = draft_indices, c.draft.parents = parents;
    c.draft.of_padding = windows_of_padding;
    c.out = view(out, {tokens(), dim}, {1, tokens()});
    c.options = options;
    return c;
  }
  std::string run() { return causal_conv1d(call()).to_string(); }

  static constexpr std::byte kMark{0x7e};
};

/// The first number that is not what the oracle says of `before`, or "". Exact data: bit for bit;
/// else outputs are within the bound. Whatever the call does not name is as it was.
class ConvJudge {
 public:
  ConvJudge(SmallConv before, const SmallConv& after, bool exact)
      : before_(std::move(before)), after_(after), wanted_(before_), exact_(exact) {}

  std::string judge() {
    const CausalConv1d call = before_.call(), wanted = wanted_.call();
    for_each_token(call, [&](const ConvToken& t) { take(wanted, t); });
    for (int64_t r = 0; r < call.rows.rows(); ++r) {
      const int32_t slot = before_.slot_of[static_cast<size_t>(r)];
      if (slot >= 0 && call.rows.tokens(r) > 0)
        write_matrix(wanted.states, wanted.states.at(slot), conv_state_after(call, r));
    }
    if (after_.states != wanted_.states) say("states");
    if (after_.windows != wanted_.windows) say("windows");
    if (after_.out != wanted_.out) say("out where it is exact or not written");
    return found_;
  }
  double worst() const { return worst_; }  // largest error, of its bound

 private:
  void say(const std::string& what) {
    if (found_.empty()) found_ = what;
  }

  void take(const CausalConv1d& wanted, const ConvToken& t) {
    const Eigen::ArrayXd bound =
        conv_bound(t, before_.width, before_.activation, ConvArithmetic(), before_.type);
    const TensorView out = after_.call().out;
    for (Eigen::Index c = 0; c < t.out.size(); ++c) {
      const float got = load_float(out.at(t.token, c), before_.type, 0);
      if (exact_ || !t.computed) {
        store_float(wanted.out.at(t.token, c), before_.type, 0, static_cast<float>(t.out[c]));
        continue;
      }
      const double error = std::abs(got - t.out[c]);
      const bool past = std::isinf(got) && std::signbit(got) == std::signbit(t.out[c]) &&
                        std::abs(t.out[c]) + bound[c] > largest_finite(before_.type);
      if (!past && !(error <= bound[c]))
        say("out of token " + std::to_string(t.token) + ", channel " + std::to_string(c));
      if (!past) worst_ = std::max(worst_, error / bound[c]);
      store_float(wanted.out.at(t.token, c), before_.type, 0, got);
    }
    if (!t.kept) return;
    const auto r = static_cast<size_t>(t.row);
    const int64_t place = before_.draft_indices.empty() ? t.row : before_.draft_indices[r];
    write_matrix(wanted.draft.states, wanted.draft.states.at(place, t.in_row), t.window);
  }

  static void write_matrix(const TensorView& t, std::byte* at, const RowMatrix& m) {
    const int64_t last = t.stride[static_cast<size_t>(t.rank) - 1];
    const int64_t channel = t.stride[static_cast<size_t>(t.rank) - 2];
    for (Eigen::Index c = 0; c < m.rows(); ++c)
      for (Eigen::Index i = 0; i < m.cols(); ++i)
        store_float(at, t.dtype, c * channel + i * last, static_cast<float>(m(c, i)));
  }

  SmallConv before_, after_, wanted_;
  bool exact_;
  std::string found_;
  double worst_ = 0;
};

}  // namespace shadowgraph
