// The chunked form of linear attention: within its derived bound of the oracle, and its bits.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/linear_worst.h"
#include "kernels/small_linear.h"

namespace shadowgraph {
namespace {

using Rule = LinearAttention::Rule;
using Order = LinearAttention::StateOrder;

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

class Chunked : public SmallLinear {
 public:
  explicit Chunked(const LinearShape& s, uint64_t seed = 1) : SmallLinear(s, seed) {
    call.form = LinearAttention::Form::kChunked;
  }
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

/// What the bound must see: a slot, a decay, a weight, a norm, a scale that are not the row's.
TEST(LinearChunked, TheBoundSeesKnownSlips) {
  for (const LinearShape& s : shapes()) {
    if (s.state_dtype != DType::kF32 || s.dtype != DType::kF32) continue;
    const SmallLinear before(s);
    const auto of_slip = [&](const char* what, const auto& slip) {
      Chunked x(s);
      slip(x);
      x.run();
      double states = 0;
      const double out = worst(before.call, x.call, &states);
      EXPECT_GT(std::max(out, states), 1) << name_of(s) << ": " << what;
    };
    of_slip("another slot", [](Chunked& x) { x.slots[0] = 0; });
    of_slip("a fresh state", [](Chunked& x) {
      static constexpr uint8_t kFlags[] = {1, 0, 1};
      x.call.rows.has_initial_state = kFlags;
    });
    of_slip("scale", [](Chunked& x) { x.call.scale *= 1.001F; });
    of_slip("one decay", [](Chunked& x) {
      auto* g = reinterpret_cast<float*>(x.decay.data());
      g[0] += 1e-2F;
    });
    if (s.beta) of_slip("no weight", [](Chunked& x) { x.call.beta = {}; });
    if (s.l2norm) of_slip("no norm", [](Chunked& x) { x.call.l2norm = false; });
    of_slip("the other rule", [](Chunked& x) {
      x.call.rule = x.call.rule == Rule::kAdd ? Rule::kDelta : Rule::kAdd;
    });
  }
}

/// Keys that name a channel, integers, decays of 1 or 0: every number is exact, so both forms give
/// the same.
TEST(LinearChunked, IsExactWhereEveryNumberIs) {
  for (const Order order : {Order::kValueKey, Order::kKeyValue}) {
    for (const Rule rule : {Rule::kAdd, Rule::kDelta}) {
      for (const int rank : {2, 3}) {
        LinearShape s;
        s.rule = rule, s.order = order, s.scale = 1, s.lens = {9, 75}, s.decay_rank = rank;
        SmallLinear whole(s);
        Rng rng(7);
        auto* q = reinterpret_cast<float*>(whole.q.data());
        auto* k = reinterpret_cast<float*>(whole.k.data());
        for (int64_t i = 0; i < whole.call.q.numel(); ++i)
          q[i] = static_cast<float>(rng.below(3)) - 1, k[i] = 0;
        for (int64_t t = 0; t < whole.call.k.shape[0]; ++t)
          k[t * s.dim_k + static_cast<int64_t>(rng.below(16))] = 1;
        const auto integers = [&](std::vector<std::byte>& bytes, uint32_t most) {
          auto* p = reinterpret_cast<float*>(bytes.data());
          for (size_t i = 0; i < bytes.size() / 4; ++i) p[i] = static_cast<float>(rng.below(most));
        };
        integers(whole.v, 50), integers(whole.states, 50), integers(whole.beta, 2);
        auto* g = reinterpret_cast<float*>(whole.decay.data());
        for (size_t i = 0; i < whole.decay.size() / 4; ++i)
          g[i] = rng.below(8) == 0 ? -std::numeric_limits<float>::infinity() : 0.F;
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

/// The first tokens of the one row of a call, or those behind them.
void run_part(LinearAttention call, int32_t from, int32_t tokens) {
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

/// Of a token that is not a number: those before it in its chunk stay what they were.
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
  for (const LinearShape& s : shapes()) {
    const std::vector<uint8_t> none(3, 0);
    Chunked zero(s), poison(s);
    std::memset(zero.states.data(), 0, zero.states.size());
    std::memset(poison.states.data(), 0xff, poison.states.size());
    poison.call.rows.has_initial_state = none;
    zero.run(), poison.run();
    EXPECT_TRUE(zero.out == poison.out) << name_of(s);
    for (const int32_t slot : zero.slots)
      EXPECT_TRUE(zero.slot(slot) == poison.slot(slot)) << name_of(s);
  }
}

TEST(LinearChunked, ARowWithoutASlotGetsWhatItsRuleSays) {
  for (const LinearShape& s : shapes()) {
    const SmallLinear before(s);
    for (const PadRow pad : {PadRow::kSkip, PadRow::kZeroOut, PadRow::kFromZero}) {
      Chunked x(s), zero(s);
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
