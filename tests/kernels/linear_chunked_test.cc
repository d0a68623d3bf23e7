// The chunked form of linear attention: within its derived bound of the oracle, and its bits.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/linear_laws.h"

namespace shadowgraph::linear_chunked_test {
namespace {

using Rule = LinearAttention::Rule;
using Order = LinearAttention::StateOrder;
using Form = LinearAttention::Form;

/// Rows of several chunks, of one token, of a chunk and one more.
std::vector<LinearShape> shapes() {
  std::vector<LinearShape> all;
  for (const Rule rule : {Rule::kAdd, Rule::kDelta}) {
    for (const Order order : {Order::kValueKey, Order::kKeyValue}) {
      for (const int rank : {1, 2, 3}) {
        for (const auto& [k, v] : {std::pair(16, 32), std::pair(33, 20), std::pair(64, 80)}) {
          LinearShape s;
          s.rule = rule, s.order = order, s.decay_rank = rank, s.dim_k = k, s.dim_v = v;
          s.lens = {70, 1, 33};
          s.l2norm = rank == 2, s.skip = rank == 1, s.z = rank == 3, s.beta = rank != 1;
          s.dtype = k == 33 ? DType::kBF16 : DType::kF32;
          s.state_dtype = v == 80 ? DType::kBF16 : DType::kF32;
          all.push_back(s);
        }
      }
    }
  }
  return all;
}

class Chunked : public LinearOfForm {
 public:
  explicit Chunked(const LinearShape& s) : LinearOfForm(s, Form::kChunked) {}
};

TEST(LinearChunked, IsWithinItsBoundOfTheOracle) {
  for (const LinearShape& s : shapes()) {
    const SmallLinear before(s);
    Chunked x(s);
    x.run();
    double states = 0;
    EXPECT_LE(worst(before.call, x.call, &states), 1) << name_of(s);
    EXPECT_LE(states, 1) << name_of(s);
  }
}

/// More value heads than an item takes, of each of two key heads.
TEST(LinearChunked, EveryHeadIsWithinItsBound) {
  for (LinearShape s : shapes()) {
    s.k_heads = 2, s.v_heads = 20, s.lens = {34};
    if (s.dtype != DType::kF32 || s.dim_k > 16) continue;
    const SmallLinear before(s);
    Chunked x(s);
    x.run();
    double states = 0;
    EXPECT_LE(worst(before.call, x.call, &states), 1) << name_of(s);
    EXPECT_LE(states, 1) << name_of(s);
  }
}

TEST(LinearChunked, DecaysOfAnySizeAreWithinTheBound) {
  for (LinearShape s : shapes()) {
    if (s.decay_rank == 1 || s.dtype != DType::kF32) continue;
    for (const float strongest : {0.F, 1e-3F, 20.F, 300.F, HUGE_VALF}) {
      SmallLinear before(s);
      auto* g = reinterpret_cast<float*>(before.decay.data());
      for (size_t i = 0; i < before.decay.size() / 4; ++i)
        g[i] = i % 5 == 0 ? -strongest : i % 3 == 0 ? 0.F : g[i] * std::min(strongest, 1.F);
      Chunked x(s);
      x.copy_inputs(before);
      x.run();
      double states = 0;
      EXPECT_LE(worst(before.call, x.call, &states), 1) << name_of(s) << ' ' << strongest;
      EXPECT_LE(states, 1) << name_of(s) << ' ' << strongest;
    }
  }
}

TEST(LinearChunked, TheBoundSeesKnownSlips) {
  for (const LinearShape& s : shapes()) {
    if (s.state_dtype != DType::kF32 || s.dtype != DType::kF32) continue;
    expect_bound_sees_slips(s, Form::kChunked, 1e-2F);
  }
}

/// So both forms give the same.
TEST(LinearChunked, IsExactWhereEveryNumberIs) {
  for (const Order order : {Order::kValueKey, Order::kKeyValue}) {
    for (const Rule rule : {Rule::kAdd, Rule::kDelta}) {
      for (const int rank : {2, 3}) {
        LinearShape s;
        s.rule = rule, s.order = order, s.scale = 1, s.lens = {9, 75}, s.decay_rank = rank;
        SmallLinear whole(s);
        make_exact(whole);
        Chunked x(s);
        x.copy_inputs(whole);
        x.run(), whole.run();
        for (int64_t i = 0; i < x.call.out.numel(); ++i) {
          ASSERT_EQ(load_float(x.out.data(), DType::kF32, i),
                    load_float(whole.out.data(), DType::kF32, i))
              << name_of(s) << ", element " << i;
        }
      }
    }
  }
}

TEST(LinearChunked, APrefillInWholeChunksHasTheBitsOfTheWhole) {
  for (LinearShape s : shapes()) {
    if (s.state_dtype != DType::kF32) continue;
    s.lens = {70};
    Chunked whole(s);
    whole.run();
    for (const int32_t cut : {32, 64}) {
      Chunked x(s);
      run_part(x.call, 0, cut);
      run_part(x.call, cut, 70 - cut);
      EXPECT_TRUE(x.out == whole.out) << name_of(s) << " cut at " << cut;
      EXPECT_TRUE(x.states == whole.states) << name_of(s) << " cut at " << cut;
    }
  }
}

TEST(LinearChunked, BitsDoNotDependOnThreadsOrInstructionSets) {
  for (LinearShape s : shapes()) {
    s.k_heads = 2, s.v_heads = 20;  // more than an item takes
    Chunked one(s);
    one.call.options.isa = "generic";
    one.run();
    for (const std::string_view isa : available_isas()) {
      Chunked x(s);
      x.call.options.num_threads = 3;
      x.call.options.isa = isa;
      x.run();
      EXPECT_TRUE(x.out == one.out && x.states == one.states) << name_of(s) << ' ' << isa;
    }
  }
}

TEST(LinearChunked, ARowHasItsBitsWhateverStandsBesideIt) {
  for (const LinearShape& s : shapes()) {
    Chunked all(s), x(s);
    const SmallLinear before(s);
    all.run();
    x.slots[0] = x.slots[1] = -1;
    x.run();
    for (int64_t t = 0; t < 104; ++t)
      EXPECT_TRUE(x.out_of(t) == (t > 70 ? all : before).out_of(t)) << name_of(s) << ' ' << t;
    for (int64_t i = 0; i < x.num_slots; ++i) {
      EXPECT_TRUE(x.slot(i) == (i == x.slots[2] ? all.slot(i) : before.slot(i)))
          << name_of(s) << " slot " << i;
    }
  }
}

/// A token that is not a number leaves the tokens before it in its chunk unchanged.
TEST(LinearChunked, ATokenDoesNotSeeLaterOnes) {
  for (const LinearShape& s : shapes()) {
    Chunked all(s), x(s);
    for (const auto& [t, bytes] : {std::pair(x.call.v, &x.v), std::pair(x.call.q, &x.q)})
      for (int64_t i = t.offset(13); i < t.offset(14); ++i)
        store_float(bytes->data(), t.dtype, i, std::numeric_limits<float>::quiet_NaN());
    all.run(), x.run();
    for (int64_t t = 0; t < 13; ++t)
      EXPECT_TRUE(x.out_of(t) == all.out_of(t)) << name_of(s) << ' ' << t;
  }
}

TEST(LinearChunked, KeptStatesAreThoseOfTheTokensBeforeThemAndChangeNothing) {
  for (LinearShape s : shapes()) {
    s.lens = {5, 70};
    for (const ChunkGrid grid : {ChunkGrid::kRow, ChunkGrid::kTokens}) {
      Chunked all(s), x(s);
      all.run();
      std::vector<std::byte> kept;
      x.call.chunk_size = 20, x.call.chunk_grid = grid;
      const std::vector<int32_t> begins = grid == ChunkGrid::kRow
                                              ? std::vector<int32_t>{0, 20, 40, 60}
                                              : std::vector<int32_t>{0, 15, 35, 55};
      const ConstTensorView& p = x.call.states;
      x.call.chunk_states = x.tensor(kept, s.state_dtype, {5, p.shape[1], p.shape[2], p.shape[3]});
      x.run();
      EXPECT_TRUE(x.out == all.out && x.states == all.states) << name_of(s);
      for (size_t i = 0; i < begins.size(); ++i) {
        Chunked cut(s);
        cut.cu_seqlens[2] = 5 + begins[i];
        const auto only = [&](auto& t) { t.shape[0] = cut.cu_seqlens[2]; };
        only(cut.call.q), only(cut.call.k), only(cut.call.v), only(cut.call.out);
        if (s.decay_rank > 1) only(cut.call.log_decay);
        if (s.beta) only(cut.call.beta);
        if (s.z) only(cut.call.z);
        cut.run();
        const std::vector<std::byte> state = cut.slot(cut.slots[1]);
        EXPECT_EQ(std::memcmp(kept.data() + (i + 1) * state.size(), state.data(), state.size()), 0)
            << name_of(s) << " before token " << begins[i];
      }
    }
  }
}

TEST(LinearChunked, WithoutAnInitialStateTheSlotIsNotLookedAt) {
  for (const LinearShape& s : shapes()) expect_fresh_rows_start_from_zero(s, Form::kChunked);
}

TEST(LinearChunked, ARowWithoutASlotGetsWhatItsRuleSays) {
  for (const LinearShape& s : shapes()) expect_padded_rows(s, Form::kChunked);
}

}  // namespace
}  // namespace shadowgraph::linear_chunked_test
