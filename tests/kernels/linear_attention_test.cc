// The recurrence over one step, one prefill, one draft: against the oracle, and bit for bit.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/linear_laws.h"

namespace shadowgraph::linear_attention_test {
namespace {

using Rule = LinearAttention::Rule;
using Order = LinearAttention::StateOrder;
using Form = LinearAttention::Form;

std::vector<LinearShape> shapes() {
  std::vector<LinearShape> all;
  for (const Rule rule : {Rule::kAdd, Rule::kDelta}) {
    for (const Order order : {Order::kValueKey, Order::kKeyValue}) {
      for (const int rank : {1, 2, 3}) {
        for (const auto& [k, v] :
             {std::pair(16, 16), std::pair(33, 20), std::pair(64, 80), std::pair(5, 1)}) {
          LinearShape s;
          s.rule = rule, s.order = order, s.decay_rank = rank, s.dim_k = k, s.dim_v = v;
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

TEST(LinearAttention, IsWithinItsBoundOfTheOracle) {
  for (const LinearShape& s : shapes()) {
    for (const uint64_t seed : {1, 2}) {
      const SmallLinear before(s, seed);
      SmallLinear x(s, seed);
      x.run();
      double states = 0;
      EXPECT_LE(worst(before.call, x.call, &states), 1) << name_of(s);
      EXPECT_LE(states, 1) << name_of(s);
    }
  }
}

/// Value heads of several key heads: each takes its own.
TEST(LinearAttention, EveryHeadIsWithinItsBound) {
  for (LinearShape s : shapes()) {
    s.k_heads = 2, s.v_heads = 6;
    if (s.dim_k != 16) continue;
    const SmallLinear before(s);
    SmallLinear x(s);
    x.run();
    double states = 0;
    EXPECT_LE(worst(before.call, x.call, &states), 1) << name_of(s);
    EXPECT_LE(states, 1) << name_of(s);
  }
}

TEST(LinearAttention, TheBoundSeesKnownSlips) {
  for (const LinearShape& s : shapes()) {
    if (s.dim_k < 16 || s.state_dtype != DType::kF32 || s.dtype != DType::kF32) continue;
    expect_bound_sees_slips(s, Form::kRecurrent, 1e-3F);
  }
}

TEST(LinearAttention, IsExactWhereEveryNumberIs) {
  for (const Order order : {Order::kValueKey, Order::kKeyValue}) {
    for (const Rule rule : {Rule::kAdd, Rule::kDelta}) {
      LinearShape s;
      s.rule = rule, s.order = order, s.scale = 1, s.lens = {9, 30};
      SmallLinear x(s);
      make_exact(x);
      SmallLinear truth(s);
      truth.copy_inputs(x);
      x.run();
      for_each_step(truth.call, {}, [&](const LinearStep& step) {
        for (int64_t i = 0; i < step.v.size(); ++i)
          ASSERT_EQ(load_float(x.call.out.at(step.token, step.head, i), DType::kF32, 0),
                    step.out[i])
              << "token " << step.token << ", value " << i;
      });
    }
  }
}

TEST(LinearAttention, APrefillInPiecesHasTheBitsOfTheWhole) {
  for (LinearShape s : shapes()) {
    if (s.state_dtype != DType::kF32) continue;
    s.lens = {70};
    SmallLinear whole(s);
    whole.run();
    for (const int32_t cut : {1, 33, 64, 69}) {
      SmallLinear x(s);
      run_part(x.call, 0, cut);
      run_part(x.call, cut, 70 - cut);
      EXPECT_TRUE(x.out == whole.out) << name_of(s) << " cut at " << cut;
      EXPECT_TRUE(x.states == whole.states) << name_of(s) << " cut at " << cut;
    }
  }
}

TEST(LinearAttention, BitsDoNotDependOnThreadsOrInstructionSets) {
  for (const LinearShape& s : shapes()) {
    SmallLinear one(s);
    one.call.options.num_threads = 1;
    one.call.options.isa = "generic";
    one.run();
    for (const std::string_view isa : available_isas()) {
      SmallLinear x(s);
      x.call.options.num_threads = 3;
      x.call.options.isa = isa;
      x.run();
      EXPECT_TRUE(x.out == one.out && x.states == one.states) << name_of(s) << ' ' << isa;
    }
  }
}

TEST(LinearAttention, ARowHasItsBitsWhateverStandsBesideIt) {
  for (LinearShape s : shapes()) {
    SmallLinear all(s);
    const SmallLinear before(s);
    all.run();
    // Only the middle row: others have no slot and are passed over.
    SmallLinear x(s);
    x.slots[0] = x.slots[2] = -1;
    x.run();
    EXPECT_TRUE(x.out_of(3) == all.out_of(3)) << name_of(s);
    EXPECT_TRUE(x.slot(x.slots[1]) == all.slot(x.slots[1])) << name_of(s);
    for (const int64_t i : {0, 1, 2, 4, 5, 6}) {
      if (i == x.slots[1]) continue;
      EXPECT_TRUE(x.slot(i) == before.slot(i)) << name_of(s) << " slot " << i;
    }
    for (const int64_t t : {0, 1, 2, 4, 8})
      EXPECT_TRUE(x.out_of(t) == before.out_of(t)) << name_of(s);
  }
}

TEST(LinearAttention, WithoutAnInitialStateTheSlotIsNotLookedAt) {
  for (const LinearShape& s : shapes()) expect_fresh_rows_start_from_zero(s, Form::kRecurrent);
}

TEST(LinearAttention, ARowWithoutASlotGetsWhatItsRuleSays) {
  for (const LinearShape& s : shapes()) expect_padded_rows(s, Form::kRecurrent);
}

}  // namespace
}  // namespace shadowgraph::linear_attention_test
