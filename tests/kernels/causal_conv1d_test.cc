#include "kernels/recurrent/causal_conv1d.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/any_conv.h"

namespace shadowgraph::causal_conv1d_test {
namespace {

using Activation = CausalConv1d::Activation;
constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

/// What is wrong with a run, or "".
std::string judged(SmallConv before, bool exact) {
  SmallConv after = before;
  const std::string status = after.run();
  return status == "ok" ? ConvJudge(std::move(before), after, exact).judge() : status;
}

RC_GTEST_PROP(CausalConv1d, IntegersAreTheOracleBitForBit, ()) {
  SmallConv s = any_conv();
  s.fill_integers(*rc::gen::arbitrary<uint64_t>());
  RC_ASSERT(judged(s, true) == "");
}

RC_GTEST_PROP(CausalConv1d, NumbersAreWithinTheBound, ()) {
  SmallConv s = any_conv();
  s.activation = pick({Activation::kNone, Activation::kSilu});
  s.fill_random(*rc::gen::arbitrary<uint64_t>(), pick({1e-20F, 0.1F, 4.F, 200.F}));
  RC_ASSERT(judged(s, false) == "");
}

SmallConv two_rows() {
  SmallConv s;
  s.add_row(7, 3), s.add_row(2, 1), s.add_row(3, -1), s.add_row(4, 0, 0);
  s.pad = PadRow::kFromZero;
  s.places = 4, s.steps = 8;
  return s;
}

/// The judge of the properties above sees each of these, in exact and in random data.
TEST(CausalConv1d, TheJudgeSeesASlip) {
  const std::function<void(SmallConv&)> slips[] = {
      [](SmallConv& s) {
        s.has = {1, 1, 1, 1};
      },
      [](SmallConv& s) {
        s.has = {0, 1, 1, 0};
      },
      [](SmallConv& s) { s.with_bias = false; },
      [](SmallConv& s) { s.pad = PadRow::kSkip; },
      [](SmallConv& s) { s.pad = PadRow::kZeroOut; },
      [](SmallConv& s) { s.slot_of[0] = 4; },
      [](SmallConv& s) { s.cu[1] = 6; },
      [](SmallConv& s) { s.places = 0; },
      [](SmallConv& s) { s.windows_of_padding = false; },
      [](SmallConv& s) {
        s.draft_indices = {0, 2, 1, 3};
      },
      [](SmallConv& s) {
        s.parents.assign(16, 0);
        for (size_t i : {2, 3, 4, 5}) s.parents[i] = static_cast<int32_t>(i) - 1;
      },
      [](SmallConv& s) { std::swap_ranges(&s.weight[0], &s.weight[4], &s.weight[8]); },
      [](SmallConv& s) { std::swap_ranges(&s.x[0], &s.x[4], &s.x[8]); },
  };
  for (const bool exact : {true, false}) {
    for (size_t i = 0; i < std::size(slips); ++i) {
      SmallConv right = two_rows();
      exact ? right.fill_integers(3) : right.fill_random(3);
      SmallConv after = right;
      slips[i](after);
      ASSERT_EQ(after.run(), "ok");
      after.cu = right.cu, after.places = right.places;
      EXPECT_NE(ConvJudge(right, after, exact).judge(), "") << i;
    }
  }
}

TEST(CausalConv1d, TheBoundIsNotFarFromWhatHappens) {
  for (const Activation a : {Activation::kNone, Activation::kSilu}) {
    SmallConv s;
    s.activation = a, s.dim = 40;
    s.add_row(200, 3);
    s.fill_random(5);
    SmallConv after = s;
    ASSERT_EQ(after.run(), "ok");
    ConvJudge judge(s, after, false);
    EXPECT_EQ(judge.judge(), "");
    EXPECT_GT(judge.worst(), 0.2);
  }
}

TEST(CausalConv1d, TheFormulaByHand) {
  SmallConv s;
  s.dim = 1, s.width = 3, s.slots = 2;
  s.add_row(2, 1);
  s.fill_integers(0);
  const auto set = [](SmallConv::Bytes& bytes, std::initializer_list<float> values) {
    std::memcpy(bytes.data(), values.begin(), values.size() * 4);
  };
  set(s.weight, {100, 10, 1}), set(s.bias, {5000}), set(s.states, {-1, -2, 3, 4}), set(s.x, {7, 8});
  ASSERT_EQ(s.run(), "ok");
  const auto at = [](const SmallConv::Bytes& b, int64_t i) {
    return load_float(b.data(), DType::kF32, i);
  };
  EXPECT_EQ(at(s.out, 0), 5347);
  EXPECT_EQ(at(s.out, 1), 5478);
  EXPECT_EQ(at(s.states, 2), 7);
  EXPECT_EQ(at(s.states, 3), 8);
  EXPECT_EQ(at(s.states, 0), -1);
}

RC_GTEST_PROP(CausalConv1d, APrefillInPiecesIsTheWhole, ()) {
  SmallConv whole;
  whole.type = pick({DType::kF32, DType::kBF16});
  whole.width = between(2, 8);
  whole.activation = Activation::kSilu;
  const auto tokens = static_cast<int32_t>(between(1, 40));
  whole.add_row(tokens, 2, *rc::gen::arbitrary<bool>());
  whole.fill_random(*rc::gen::arbitrary<uint64_t>());
  SmallConv pieces = whole;
  RC_ASSERT(whole.run() == "ok");
  for (int32_t first = 0; first < tokens;) {
    const auto count = static_cast<int32_t>(between(1, tokens - first));
    CausalConv1d call = pieces.call();
    const std::vector<int32_t> cu = {0, count};
    const std::vector<uint8_t> has = {first == 0 ? pieces.has[0] : uint8_t{1}};
    call.x.data = call.x.at(first), call.out.data = call.out.at(first);
    call.x.shape[0] = call.out.shape[0] = count;
    call.rows.cu_seqlens_q = cu, call.rows.has_initial_state = has;
    RC_ASSERT(causal_conv1d(call).to_string() == "ok");
    first += count;
  }
  RC_ASSERT(pieces.out == whole.out);
  RC_ASSERT(pieces.states == whole.states);
}

RC_GTEST_PROP(CausalConv1d, ADraftTokensWindowGoesOnAsItsPath, ()) {
  SmallConv tree;
  tree.width = between(2, 6), tree.activation = Activation::kSilu;
  const auto tokens = static_cast<int32_t>(between(1, 9));
  tree.add_row(tokens, 1);
  tree.places = 1, tree.steps = tokens;
  std::vector<int64_t> path = {between(0, tokens - 1)};  // newest first
  for (int64_t j = 0; j < tokens; ++j)
    tree.parents.push_back(j == 0 ? 0 : static_cast<int32_t>(between(0, j - 1)));
  while (path.back() > 0) path.push_back(tree.parents[static_cast<size_t>(path.back())]);
  tree.fill_random(*rc::gen::arbitrary<uint64_t>());
  SmallConv chain = tree;
  RC_ASSERT(tree.run() == "ok");
  // The path alone, from the slot on.
  const auto row = static_cast<size_t>(tree.dim) * 4;
  chain.parents.clear();
  chain.cu[1] = static_cast<int32_t>(path.size());
  for (size_t i = 0; i < path.size(); ++i) {
    const size_t from = static_cast<size_t>(path[path.size() - 1 - i]) * row;
    std::copy_n(&tree.x[from], row, &chain.x[i * row]);
  }
  RC_ASSERT(chain.run() == "ok");
  const size_t last = path.size() - 1, window = row * static_cast<size_t>(tree.history());
  const auto accepted = static_cast<size_t>(path[0]);
  RC_ASSERT(
      std::equal(&chain.out[last * row], &chain.out[last * row] + row, &tree.out[accepted * row]));
  RC_ASSERT(std::equal(&chain.states[window], &chain.states[window] + window,
                       &tree.windows[accepted * window]));
}

RC_GTEST_PROP(CausalConv1d, AChainsParentsAreAChain, ()) {
  SmallConv s = any_conv();
  s.parents.clear();
  s.fill_random(*rc::gen::arbitrary<uint64_t>());
  SmallConv tree = s;
  for (size_t r = 0; r + 1 < s.cu.size(); ++r)
    for (int32_t j = 0; j < s.cu[r + 1] - s.cu[r]; ++j) tree.parents.push_back(j - 1);
  RC_ASSERT(s.run() == "ok");
  RC_ASSERT(tree.run() == "ok");
  RC_ASSERT(tree.out == s.out);
  RC_ASSERT(tree.states == s.states);
  RC_ASSERT(tree.windows == s.windows);
}

RC_GTEST_PROP(CausalConv1d, ARowWithoutInitialStateDoesNotSeeItsSlot, ()) {
  SmallConv s = any_conv();
  s.has.assign(s.slot_of.size(), 0);
  s.fill_random(*rc::gen::arbitrary<uint64_t>());
  SmallConv poisoned = s;
  std::fill(poisoned.states.begin(), poisoned.states.end(), std::byte{0xff});  // NaN
  RC_ASSERT(s.run() == "ok");
  RC_ASSERT(poisoned.run() == "ok");
  RC_ASSERT(poisoned.out == s.out);
  RC_ASSERT(poisoned.windows == s.windows);
  const size_t slot = poisoned.states.size() / static_cast<size_t>(s.slots);
  for (size_t r = 0; r < s.slot_of.size(); ++r) {
    if (s.slot_of[r] < 0 || s.cu[r + 1] == s.cu[r]) continue;
    const size_t at = slot * static_cast<size_t>(s.slot_of[r]);
    RC_ASSERT(std::equal(&s.states[at], &s.states[at] + slot, &poisoned.states[at]));
  }
}

/// dim of more than one block, and more rows than threads.
SmallConv wide_conv(DType type) {
  SmallConv s;
  s.type = type, s.dim = 300, s.slots = 8;
  s.activation = Activation::kSilu;
  s.add_row(9, 3), s.add_row(1, 0), s.add_row(0, 2), s.add_row(5, -1), s.add_row(1, 7, 0);
  s.add_row(30, 5);
  s.places = 6, s.steps = 30;
  s.fill_random(11);
  return s;
}

TEST(CausalConv1d, BlocksOfChannelsAreWithinTheBound) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16})
    EXPECT_EQ(judged(wide_conv(type), false), "");
}

TEST(CausalConv1d, ThreadsDoNotMatter) {
  SmallConv one = wide_conv(DType::kBF16);
  one.options.num_threads = 1;
  ASSERT_EQ(one.run(), "ok");
  for (const int threads : {0, 2, 3, 7}) {
    SmallConv more = wide_conv(DType::kBF16);
    more.options.num_threads = threads;
    ASSERT_EQ(more.run(), "ok");
    EXPECT_EQ(more.out, one.out);
    EXPECT_EQ(more.states, one.states);
    EXPECT_EQ(more.windows, one.windows);
  }
}

TEST(CausalConv1d, ARowAloneHasTheSameBits) {
  SmallConv all = wide_conv(DType::kF32);
  ASSERT_EQ(all.run(), "ok");
  const size_t token = static_cast<size_t>(all.dim) * 4;
  for (size_t r = 0; r < all.slot_of.size(); ++r) {
    SmallConv one = wide_conv(DType::kF32);
    one.cu = {0, all.cu[r + 1] - all.cu[r]};
    one.slot_of = {all.slot_of[r]}, one.has = {all.has[r]};
    one.draft_indices = {static_cast<int32_t>(r)};
    const size_t first = token * static_cast<size_t>(all.cu[r]);
    const size_t count = token * static_cast<size_t>(one.cu[1]);
    one.x.assign(&all.x[0] + first, &all.x[0] + first + count);
    one.out.assign(count, SmallConv::kMark);
    ASSERT_EQ(one.run(), "ok");
    EXPECT_TRUE(std::equal(one.out.begin(), one.out.end(), all.out.begin() + first)) << r;
  }
}

TEST(CausalConv1d, StridesDoNotMatter) {
  SmallConv dense = wide_conv(DType::kF16);
  // The last axis of slots first, tokens apart, a block of other channels between.
  std::vector<std::byte> x(dense.x.size() * 2), out = x;
  std::vector<std::byte> states(dense.states.size());
  CausalConv1d call = dense.call();
  const int64_t dim = dense.dim, tokens = dense.tokens(), history = dense.history();
  call.x = TensorView(x.data(), dense.type, {tokens, dim}, {2 * dim, 1});
  call.out = TensorView(out.data(), dense.type, {tokens, dim}, {1, 2 * tokens});
  call.states =
      TensorView(states.data(), dense.type, {dense.slots, dim, history}, {dim * history, 1, dim});
  const CausalConv1d from = dense.call();
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t c = 0; c < dim; ++c)
      std::memcpy(x.data() + call.x.offset(t, c) * 2, from.x.at(t, c), 2);
  const auto each_state = [&](const auto& body) {
    for (int64_t s = 0; s < dense.slots; ++s)
      for (int64_t c = 0; c < dim; ++c)
        for (int64_t i = 0; i < history; ++i)
          body(call.states.at(s, c, i), from.states.at(s, c, i));
  };
  each_state([](std::byte* to, const std::byte* at) { std::memcpy(to, at, 2); });
  ASSERT_EQ(causal_conv1d(call).to_string(), "ok");
  ASSERT_EQ(dense.run(), "ok");
  each_state(
      [](const std::byte* got, const std::byte* at) { EXPECT_EQ(std::memcmp(got, at, 2), 0); });
  for (int64_t t = 0; t < tokens; ++t) {
    if (t >= 10 && t < 15) continue;  // padding
    for (int64_t c = 0; c < dim; ++c)
      ASSERT_EQ(std::memcmp(call.out.at(t, c), from.out.at(t, c), 2), 0) << t << ", " << c;
  }
}

TEST(CausalConv1d, WeightsMayBeOfAnotherType) {
  SmallConv s = wide_conv(DType::kBF16), again = s;
  std::vector<float> weight, bias;
  for (int64_t i = 0; i < s.dim * s.width; ++i)
    weight.push_back(load_float(s.weight.data(), s.type, i));
  for (int64_t i = 0; i < s.dim; ++i) bias.push_back(load_float(s.bias.data(), s.type, i));
  CausalConv1d call = again.call();
  call.weight = ConstTensorView(weight.data(), DType::kF32, {s.dim, s.width});
  call.bias = ConstTensorView(bias.data(), DType::kF32, {s.dim});
  ASSERT_EQ(causal_conv1d(call).to_string(), "ok");
  ASSERT_EQ(s.run(), "ok");
  EXPECT_EQ(again.out, s.out);
  bias[7] = std::bit_cast<float>(0x7fffffffU);  // rounding it as a number would give -0
  ASSERT_EQ(causal_conv1d(call).to_string(), "ok");
  EXPECT_TRUE(std::isnan(load_float(again.out.data(), s.type, 7)));
}

TEST(CausalConv1d, StatesKeepEveryBitOfTheInputs) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    SmallConv s;
    s.type = type, s.dim = 2, s.width = 2, s.slots = 1;
    s.places = 1, s.steps = 1;
    s.add_row(1, 0);
    s.fill_integers(1);
    for (size_t i = 0; i < s.x.size(); ++i) s.x[i] = std::byte{static_cast<uint8_t>(0x7f + i % 2)};
    s.x[size_of(type) - 1] = std::byte{0xff}, s.x[0] = std::byte{1};  // NaN, with a payload
    ASSERT_EQ(s.run(), "ok");
    EXPECT_EQ(s.states, s.x);
    EXPECT_EQ(s.windows, s.x);
  }
}

/// Each input and half a unit of the last place.
TEST(CausalConv1d, OutputsRoundToNearestEven) {
  for (const DType type : {DType::kBF16, DType::kF16}) {
    const float ulp = type == DType::kBF16 ? 0x1p-7F : 0x1p-10F;
    const std::vector<std::pair<float, float>> halves = {
        {1, 1}, {1 + ulp, 1 + 2 * ulp}, {1 + 2 * ulp, 1 + 2 * ulp}, {-1 - ulp, -1}};
    for (const auto& [x, y] : halves) {
      SmallConv s;
      s.type = type, s.dim = 1, s.width = 2;
      s.add_row(1, 0, 0);
      s.fill_integers(0);
      store_float(s.bias.data(), type, 0, ulp / 2);
      store_float(s.weight.data(), type, 1, 1);
      store_float(s.x.data(), type, 0, x);
      ASSERT_EQ(s.run(), "ok");
      EXPECT_EQ(load_float(s.out.data(), type, 0), y) << x;
      store_float(s.x.data(), type, 0, x < 0 ? -kNaN : kNaN);
      ASSERT_EQ(s.run(), "ok");
      EXPECT_TRUE(std::isnan(load_float(s.out.data(), type, 0)));
    }
  }
}

TEST(CausalConv1d, ANaNReachesTheTokensThatSeeIt) {
  SmallConv s;
  s.dim = 3;
  s.add_row(12, 2);
  s.fill_random(8);
  SmallConv poisoned = s;
  store_float(poisoned.x.data(), s.type, 4 * s.dim + 1, kNaN);
  ASSERT_EQ(s.run(), "ok");
  ASSERT_EQ(poisoned.run(), "ok");
  for (int64_t i = 0; i < 12 * 3; ++i) {
    const float clean = load_float(s.out.data(), s.type, i);
    const float got = load_float(poisoned.out.data(), s.type, i);
    if (i % 3 == 1 && i / 3 >= 4 && i / 3 < 8) {
      EXPECT_TRUE(std::isnan(got)) << i;
    } else {
      EXPECT_EQ(got, clean) << i;
    }
  }
}

TEST(CausalConv1d, SiluAtItsEnds) {
  const std::vector<std::pair<float, float>> values = {
      {0, 0},     {kInf, kInf},    {3e38F, 3e38F}, {-3e38F, -0.F}, {-100, -3.720076e-42F},
      {100, 100}, {1e-40F, 5e-41F}};
  for (const auto& [x, y] : values) {
    SmallConv s;
    s.dim = 1, s.width = 2, s.with_bias = false, s.activation = Activation::kSilu;
    s.add_row(1, 0, 0);
    s.fill_integers(0);
    store_float(s.weight.data(), s.type, 0, 0), store_float(s.weight.data(), s.type, 1, 1);
    store_float(s.x.data(), s.type, 0, x);
    ASSERT_EQ(s.run(), "ok");
    const float got = load_float(s.out.data(), s.type, 0);
    EXPECT_EQ(got, y) << x;
  }
}

TEST(CausalConv1d, ARefusedCallWritesNothing) {
  SmallConv s = wide_conv(DType::kF32);
  const SmallConv before = s;
  s.slot_of[0] = 99;
  EXPECT_NE(s.run(), "ok");
  s.slot_of[0] = 3, s.options.isa = "nothing";
  EXPECT_NE(s.run().find("input.isa"), std::string::npos);
  EXPECT_EQ(s.out, before.out);
  EXPECT_EQ(s.states, before.states);
  EXPECT_EQ(s.windows, before.windows);
}

}  // namespace
}  // namespace shadowgraph::causal_conv1d_test
