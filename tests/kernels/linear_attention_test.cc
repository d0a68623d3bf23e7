// The recurrence over one step, one prefill, one draft: against the oracle, and bit for bit.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/linear_worst.h"
#include "kernels/small_linear.h"

namespace shadowgraph {
namespace {

using Rule = LinearAttention::Rule;
using Order = LinearAttention::StateOrder;

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

/// The bound must be worth something: a step more of decay, a read before the update, a weight that
/// is left out, another row's slot.
TEST(LinearAttention, TheBoundSeesKnownSlips) {
  for (const LinearShape& s : shapes()) {
    if (s.dim_k < 16 || s.state_dtype != DType::kF32 || s.dtype != DType::kF32) continue;
    const SmallLinear before(s);
    const auto of_slip = [&](const char* what, const auto& slip) {
      SmallLinear x(s);
      slip(x);
      x.run();
      double states = 0;
      const double out = worst(before.call, x.call, &states);
      EXPECT_GT(std::max(out, states), 1) << name_of(s) << ": " << what;
    };
    of_slip("another slot", [](SmallLinear& x) { x.slots[0] = 0; });
    of_slip("a fresh state", [](SmallLinear& x) {
      static constexpr uint8_t kFlags[] = {1, 0, 1};
      x.call.rows.has_initial_state = kFlags;
    });
    of_slip("scale", [](SmallLinear& x) { x.call.scale *= 1.0001F; });
    of_slip("one decay", [](SmallLinear& x) {
      auto* g = reinterpret_cast<float*>(x.decay.data());
      g[0] += 1e-3F;
    });
    if (s.beta) of_slip("no weight", [](SmallLinear& x) { x.call.beta = {}; });
    if (s.l2norm) of_slip("no norm", [](SmallLinear& x) { x.call.l2norm = false; });
    of_slip("the other rule", [](SmallLinear& x) {
      x.call.rule = x.call.rule == Rule::kAdd ? Rule::kDelta : Rule::kAdd;
    });
  }
}

/// Keys that name a channel, integers, decays of 1 or 0: every number is exact.
TEST(LinearAttention, IsExactWhereEveryNumberIs) {
  for (const Order order : {Order::kValueKey, Order::kKeyValue}) {
    for (const Rule rule : {Rule::kAdd, Rule::kDelta}) {
      LinearShape s;
      s.rule = rule, s.order = order, s.scale = 1, s.lens = {9, 30};
      SmallLinear x(s);
      Rng rng(7);
      auto* q = reinterpret_cast<float*>(x.q.data());
      auto* k = reinterpret_cast<float*>(x.k.data());
      for (int64_t i = 0; i < x.call.q.numel(); ++i) {
        q[i] = static_cast<float>(rng.below(3)) - 1;
        k[i] = 0;
      }
      for (int64_t t = 0; t < x.call.k.shape[0]; ++t)
        k[t * s.dim_k + static_cast<int64_t>(rng.below(16))] = 1;
      const auto integers = [&](std::vector<std::byte>& bytes, uint32_t most) {
        auto* p = reinterpret_cast<float*>(bytes.data());
        for (size_t i = 0; i < bytes.size() / 4; ++i) p[i] = static_cast<float>(rng.below(most));
      };
      integers(x.v, 50), integers(x.states, 50), integers(x.beta, 2);
      auto* g = reinterpret_cast<float*>(x.decay.data());
      for (size_t i = 0; i < x.decay.size() / 4; ++i)
        g[i] = rng.below(8) == 0 ? -std::numeric_limits<float>::infinity() : 0.F;
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
      const std::vector<int32_t> first = {0, cut};
      const auto part = [&](LinearAttention call, int32_t from, int32_t tokens) {
        const auto slice = [&](auto t) {
          t.data += t.offset(from) * static_cast<int64_t>(size_of(t.dtype));
          t.shape[0] = tokens;
          return t;
        };
        const std::vector<int32_t> offsets = {0, tokens};
        call.q = slice(call.q), call.k = slice(call.k), call.v = slice(call.v);
        call.out = slice(call.out);
        if (call.log_decay.rank > 1) call.log_decay = slice(call.log_decay);
        if (call.beta.defined()) call.beta = slice(call.beta);
        if (call.z.defined()) call.z = slice(call.z);
        call.rows.cu_seqlens_q = offsets;
        ASSERT_EQ(linear_attention(call).to_string(), "ok");
      };
      part(x.call, 0, cut);
      part(x.call, cut, 70 - cut);
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
  for (const LinearShape& s : shapes()) {
    const std::vector<uint8_t> none(3, 0);
    SmallLinear zero(s), poison(s);
    std::memset(zero.states.data(), 0, zero.states.size());
    std::memset(poison.states.data(), 0xff, poison.states.size());
    poison.call.rows.has_initial_state = none;
    zero.run(), poison.run();
    EXPECT_TRUE(zero.out == poison.out) << name_of(s);
    for (const int32_t slot : zero.slots)
      EXPECT_TRUE(zero.slot(slot) == poison.slot(slot)) << name_of(s);
  }
}

TEST(LinearAttention, ARowWithoutASlotGetsWhatItsRuleSays) {
  for (const LinearShape& s : shapes()) {
    const SmallLinear before(s);
    for (const PadRow pad : {PadRow::kSkip, PadRow::kZeroOut, PadRow::kFromZero}) {
      SmallLinear x(s), zero(s);
      x.slots[0] = -1;
      x.call.rows.pad = pad;
      std::memset(zero.states.data(), 0, zero.states.size());
      x.run(), zero.run();
      for (int64_t t = 0; t < s.lens[0]; ++t) {
        const std::vector<std::byte> none(x.out_of(t).size());
        EXPECT_TRUE(x.out_of(t) == (pad == PadRow::kSkip      ? before.out_of(t)
                                    : pad == PadRow::kZeroOut ? none
                                                              : zero.out_of(t)))
            << name_of(s) << " pad " << static_cast<int>(pad);
      }
      EXPECT_TRUE(x.slot(zero.slots[0]) == before.slot(zero.slots[0])) << name_of(s);
    }
  }
}

}  // namespace
}  // namespace shadowgraph
