#include "bench/state_problem.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/float_formats.h"

namespace shadowgraph::bench::state_problem_test {
namespace {

constexpr Recurrent kKinds[] = {Recurrent::kMamba2, Recurrent::kGdn, Recurrent::kKda,
                                Recurrent::kLightning};
constexpr double kSmallPool = 1 << 24;

std::vector<Shape> small_shapes() {
  std::vector<Shape> shapes;
  for (const Recurrent kind : kKinds)
    shapes.push_back(state_update(kind, 2)), shapes.push_back(state_prefill(kind, 40));
  return shapes;
}

TEST(StateProblem, HasTheOraclesResultsOnEverySetOfSlots) {
  for (const Shape& shape : small_shapes()) {
    StateProblem problem(shape, 1, 2, kSmallPool);
    for (int64_t i = 0; i <= problem.num_sets(); ++i) {
      const Status status = problem.run();
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    const Status checked = problem.check();
    EXPECT_TRUE(checked.ok()) << checked.to_string();
  }
}

TEST(StateProblem, AWrongElementIsSeen) {
  for (const Shape& shape : small_shapes()) {
    StateProblem problem(shape, 1, 1, kSmallPool);
    ASSERT_TRUE(problem.run().ok());
    EXPECT_FALSE(problem
                     .check([](const LinearAttention& call) {
                       const int64_t last = call.out.numel() - 1;
                       store_float(call.out.data, call.out.dtype, last,
                                   load_float(call.out.data, call.out.dtype, last) + 1);
                     })
                     .ok());
    EXPECT_FALSE(problem
                     .check([](const LinearAttention& call) {
                       store_float(call.out.data, call.out.dtype, 0, NAN);
                     })
                     .ok());
    EXPECT_FALSE(problem
                     .check([](const LinearAttention& call) {
                       auto* state = reinterpret_cast<float*>(
                           call.states.at(call.rows.state_indices.front(), 0));
                       state[0] += 0.01F;
                     })
                     .ok());
  }
}

TEST(StateProblem, AnUpdateCountsItsStatesOnceAndAPrefillTheRecurrence) {
  EXPECT_EQ(kv_bytes_of(state_update(Recurrent::kGdn, 3)), 3.0 * 32 * 128 * 128 * 4);
  EXPECT_EQ(flop_of(state_prefill(Recurrent::kGdn, 10)), 10.0 * 32 * 6 * 128 * 128);
  EXPECT_EQ(flop_of(state_prefill(Recurrent::kMamba2, 10)), 10.0 * 128 * 4 * 128 * 64);
}

TEST(StateProblem, ColdCallsRotateOverAllSlots) {
  const Shape shape = state_update(Recurrent::kGdn, 2);
  const StateProblem problem(shape, 1, 1, 5 * kv_bytes_of(shape));
  EXPECT_EQ(problem.num_sets(), 5);
}

}  // namespace
}  // namespace shadowgraph::bench::state_problem_test
