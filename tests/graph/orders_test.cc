// Orders of a body's nodes: all that can differ, each once.
#include "graph/executor/orders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "core/choices.h"
#include "executor_fixture.h"

namespace shadowgraph::orders_test {
namespace {

using Order = std::vector<int32_t>;

std::vector<Order> orders_of(const ExecBody& body,
                             const std::function<bool(int32_t, int32_t)>& conflicts) {
  std::vector<Order> orders;
  for_each_order(body, conflicts, [&](std::span<const int32_t> order) {
    orders.emplace_back(order.begin(), order.end());
    return true;
  });
  return orders;
}

bool always(int32_t, int32_t) { return true; }
bool never(int32_t, int32_t) { return false; }

Body independent(int n) {
  const DeviceMemory memory({.capacity = size_t{1} << 20});
  Body body;
  for (int i = 0; i < n; ++i) body.add(memory, EmptyParams{});
  return body;
}

TEST(Orders, IndependentNodesHaveOneOrder) {
  EXPECT_EQ(orders_of(*independent(0).build(), always), std::vector<Order>{{}});
  EXPECT_EQ(orders_of(*independent(5).build(), never), (std::vector<Order>{{0, 1, 2, 3, 4}}));
}

TEST(Orders, ConflictingNodesHaveAll) {
  const std::vector<Order> orders = orders_of(*independent(5).build(), always);
  EXPECT_EQ(orders.size(), 120u);
  EXPECT_EQ(std::set(orders.begin(), orders.end()).size(), 120u);
}

TEST(Orders, ADiamondHasOneOrTwo) {
  const DeviceMemory memory({.capacity = size_t{1} << 20});
  Body body;
  body.add(memory, EmptyParams{});
  body.add(memory, EmptyParams{}, {0});
  body.add(memory, EmptyParams{}, {0});
  body.add(memory, EmptyParams{}, {1, 2});
  EXPECT_EQ(orders_of(*body.build(), never), (std::vector<Order>{{0, 1, 2, 3}}));
  EXPECT_EQ(orders_of(*body.build(), always), (std::vector<Order>{{0, 1, 2, 3}, {0, 2, 1, 3}}));
}

TEST(Orders, VisitingStopsWhenAsked) {
  int visited = 0;
  for_each_order(*independent(4).build(), always,
                 [&](std::span<const int32_t>) { return ++visited < 3; });
  EXPECT_EQ(visited, 3);
}

/// Which of each conflicting or ordered pair comes first: what an order's outcome depends on.
std::set<std::pair<int32_t, int32_t>> outcome(const Order& order, const ExecBody& body,
                                              const std::set<std::pair<int32_t, int32_t>>& pairs) {
  std::set<std::pair<int32_t, int32_t>> first;
  for (size_t i = 0; i < order.size(); ++i)
    for (size_t j = i + 1; j < order.size(); ++j)
      if (body.ordered(order[i], order[j]) || pairs.contains(std::minmax(order[i], order[j])))
        first.emplace(order[i], order[j]);
  return first;
}

TEST(Orders, EveryOutcomeIsVisitedOnce) {
  const DeviceMemory memory({.capacity = size_t{1} << 20});
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed);
    Body body;
    std::set<std::pair<int32_t, int32_t>> pairs;
    for (int32_t i = 0; i < 6; ++i) {
      body.add(memory, EmptyParams{});
      for (int32_t j = 0; j < i; ++j) {
        if (rng.below(5) == 0) body.at(j).after.push_back(i), body.at(i).before.push_back(j);
        if (rng.below(3) == 0) pairs.emplace(j, i);
      }
    }
    const auto built = body.build();
    std::set<std::set<std::pair<int32_t, int32_t>>> expected;
    Order order(6);
    std::iota(order.begin(), order.end(), 0);
    do {
      bool topological = true;
      for (size_t i = 0; i < 6; ++i)
        for (size_t j = 0; j < i; ++j) topological &= !built->ordered(order[i], order[j]);
      if (topological) expected.insert(outcome(order, *built, pairs));
    } while (std::next_permutation(order.begin(), order.end()));
    const std::vector<Order> visited =
        orders_of(*built, [&](int32_t a, int32_t b) { return pairs.contains(std::minmax(a, b)); });
    std::set<std::set<std::pair<int32_t, int32_t>>> outcomes;
    for (const Order& o : visited) outcomes.insert(outcome(o, *built, pairs));
    EXPECT_EQ(outcomes, expected) << "seed " << seed;
    EXPECT_EQ(visited.size(), expected.size()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace shadowgraph::orders_test
