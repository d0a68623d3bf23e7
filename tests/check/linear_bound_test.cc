// The bound of linear attention where states are kept in few bits, and what exact comparison sees.
#include <gtest/gtest.h>

#include <algorithm>

#include "check/bounds/recurrent_compare.h"
#include "kernels/small_linear.h"

namespace shadowgraph::linear_bound_test {
namespace {

/// Drafts whose states are kept, of a tree or of a chain; how far outputs and states lie from the
/// oracle, in bounds.
double worst_of_drafts(DType kept, bool tree, const RecurrentArithmetic& arithmetic,
                       uint64_t seed) {
  LinearShape shape;
  shape.lens = {8, 5};
  SmallLinear x(shape, seed);
  std::vector<std::byte> steps;
  x.call.draft.states = x.tensor(steps, kept, {2, 8, 2, 16, 16});
  const std::vector<int32_t> parents = {0, 0, 1, 2, 0, 4, 5, 3, 0, 0, 1, 1, 3};
  if (tree) x.call.draft.parents = parents;
  x.call.store = false;
  x.run();
  const GateTruth none;
  LinearBounds bounds(x.call, arithmetic, none, {});
  RecurrentJudges j("num.bound", "");
  compare_recurrence(x.call, none, &bounds, {x.call.out, {}, x.call.draft.states, {}}, {}, &j);
  return std::max(j.out.worst(), j.draft.worst());
}

TEST(LinearBound, ATreeStartsFromItsParentsStatesAsTheyAreKept) {
  const RecurrentArithmetic ours = *find_recurrent_arithmetic("ours");
  RecurrentArithmetic in_full = ours;
  in_full.rounds_kept = false;
  for (const DType kept : {DType::kBF16, DType::kF16}) {
    double without = 0;
    for (uint64_t seed = 1; seed < 20; ++seed) {
      EXPECT_LE(worst_of_drafts(kept, true, ours, seed), 1) << name_of(kept);
      EXPECT_LE(worst_of_drafts(kept, false, in_full, seed), 1) << name_of(kept);
      without = std::max(without, worst_of_drafts(kept, true, in_full, seed));
    }
    EXPECT_GT(without, 1) << name_of(kept);
  }
}

TEST(LinearBound, StatesKeptInF32AddNothing) {
  const RecurrentArithmetic ours = *find_recurrent_arithmetic("ours");
  RecurrentArithmetic in_full = ours;
  in_full.rounds_kept = false;
  EXPECT_EQ(worst_of_drafts(DType::kF32, true, ours, 1),
            worst_of_drafts(DType::kF32, true, in_full, 1));
}

TEST(RecurrentCompare, ExactDataHasNoRoom) {
  SmallLinear x(LinearShape{});
  const auto ints = [](std::vector<std::byte>& bytes) {
    for (size_t i = 0; i < bytes.size() / 4; ++i)
      store_float(bytes.data(), DType::kF32, static_cast<int64_t>(i), static_cast<float>(i % 2));
  };
  ints(x.q), ints(x.v), ints(x.states);
  std::ranges::fill(x.k, std::byte{0});
  std::ranges::fill(x.decay, std::byte{0});
  const std::vector<std::byte> before = x.states;
  x.run();
  LinearAttention truth = x.call;
  std::vector<std::byte> was = before;
  truth.states.data = was.data();
  const auto worst = [&] {
    RecurrentJudges j("num.exact", "");
    compare_recurrence(truth, {}, nullptr, {x.call.out, x.call.states, {}, {}}, {}, &j);
    return std::max(j.out.worst(), j.states.worst());
  };
  EXPECT_EQ(worst(), 0);
  for (std::vector<std::byte>* bytes : {&x.out, &x.states}) {
    (*bytes)[4 * 16] ^= std::byte{1};
    const bool in_slot = bytes == &x.states;  // slot 0 is nobody's
    EXPECT_EQ(worst() > 0, !in_slot);
    (*bytes)[4 * 16] ^= std::byte{1};
  }
  const size_t own = static_cast<size_t>(x.slots[0]) * 2 * 16 * 16 * 4;
  x.states[own] ^= std::byte{1};
  EXPECT_GT(worst(), 0);
}

}  // namespace
}  // namespace shadowgraph::linear_bound_test
