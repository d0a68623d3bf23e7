// Happens-before by itself: node runs by their graphs, operations by clocks; and what the log of
// accesses forgets.
#include "graph/executor/happens_before.h"

#include "graph/executor/races.h"
#include "graph/executor_fixture.h"

namespace shadowgraph::happens_before_test {
namespace {

/// Bodies of n nodes, of which the first two are in a row.
std::shared_ptr<const ExecBody> body_of(int n) {
  const DeviceMemory memory({.capacity = size_t{1} << 20});
  Body body;
  body.add(memory, EmptyParams{});
  for (int i = 1; i < n; ++i)
    i == 1 ? body.add(memory, EmptyParams{}, {0}) : body.add(memory, EmptyParams{});
  return body.build();
}

TEST(HappensBefore, NodesOfOneRunAreComparedByEdges) {
  const auto run = make_body_run(body_of(3), nullptr, -1, 0);
  EXPECT_TRUE(is_not_after({run, 0}, {run, 1}));
  EXPECT_TRUE(is_not_after({run, 1}, {run, 1})) << "the same";
  EXPECT_FALSE(is_not_after({run, 1}, {run, 0}));
  EXPECT_FALSE(is_not_after({run, 0}, {run, 2}));
  EXPECT_FALSE(run->chain);
}

TEST(HappensBefore, NodesInsideAreComparedByWhatHoldsThem) {
  const auto outer = make_body_run(body_of(3), nullptr, -1, 0);
  const auto in = [&](int32_t node, int32_t iteration) {
    return make_body_run(body_of(2), outer, node, iteration);
  };
  const auto first = in(0, 0), second = in(1, 0), beside = in(2, 0);
  EXPECT_TRUE(is_not_after({first, 1}, {second, 0}));
  EXPECT_FALSE(is_not_after({second, 0}, {first, 1}));
  EXPECT_FALSE(is_not_after({first, 0}, {beside, 0}));
  EXPECT_TRUE(is_not_after({first, 0}, {outer, 1}));
  EXPECT_TRUE(is_not_after({outer, 0}, {second, 0}));
  EXPECT_TRUE(is_not_after({outer, 0}, {first, 0})) << "one inside the other";
  const auto next = in(0, 1);
  EXPECT_TRUE(is_not_after({first, 1}, {next, 0})) << "iterations come one after the other";
  EXPECT_FALSE(is_not_after({next, 0}, {first, 1}));
  const auto deep = make_body_run(body_of(2), first, 0, 0);
  EXPECT_TRUE(is_not_after({deep, 0}, {next, 0}));
  EXPECT_TRUE(is_not_after({deep, 1}, {second, 1}));
  const auto deep_beside = make_body_run(body_of(2), beside, 0, 0);
  EXPECT_FALSE(is_not_after({deep, 0}, {deep_beside, 1}));
  EXPECT_TRUE(is_not_after({deep, 0}, {make_body_run(body_of(2), second, 0, 0), 0}));
}

TEST(HappensBefore, NodesOfTwoOperationsAreNotCompared) {
  const auto one = make_body_run(body_of(2), nullptr, -1, 0);
  const auto other = make_body_run(body_of(2), nullptr, -1, 0);
  EXPECT_FALSE(is_not_after({one, 0}, {other, 1}));
  EXPECT_FALSE(is_not_after({make_body_run(body_of(2), one, 0, 0), 0}, {other, 1}));
}

TEST(HappensBefore, AClockHoldsANodeOfItsOwnOperationAlone) {
  const auto run = make_body_run(body_of(3), nullptr, -1, 0);
  Clock clock;
  clock.add({2, 5}, {run, 1});
  EXPECT_TRUE(clock.covers({2, 5}, {run, 0}));
  EXPECT_FALSE(clock.covers({2, 5}, {run, 2}));
  EXPECT_FALSE(clock.covers({2, 4}, {run, 0}));
  EXPECT_FALSE(clock.covers({1, 5}, {run, 0}));
  EXPECT_FALSE(clock.covers(Position{2, 5}));
  Clock whole;
  whole.add(Position{2, 5});
  clock.add(whole);
  EXPECT_TRUE(clock.covers({2, 5}, {run, 2})) << "all of it";
}

TEST(HappensBefore, TheEndOfANodeHoldsTheJoinsBeforeIt) {
  const auto run = make_body_run(body_of(3), nullptr, -1, 0);
  Ordering ordering;
  ordering.position = {0, 1};
  Clock joined;
  joined.add(Position{1, 3});
  Ordering::Join& join = ordering.joins.emplace_back();
  join.node = {run, 0}, join.clock = joined;
  EXPECT_TRUE(ordering.end_of({run, 1}).covers(Position{1, 3}));
  EXPECT_FALSE(ordering.end_of({run, 2}).covers(Position{1, 3}));
  EXPECT_TRUE(ordering.end().covers(Position{1, 3}));
  EXPECT_TRUE(ordering.is_before({1, 3}, {run, 0}, {run, 1}));
  EXPECT_FALSE(ordering.is_before({1, 3}, {run, 0}, {run, 2}));
}

// The log.

class RaceLog : public ExecutorTest {
 protected:
  /// One int by the serial-th operation, which is alone on its lane up to then.
  void access(Races& races, size_t lane, uint64_t tick, uint64_t serial, const int32_t* p,
              int64_t count = 1) {
    Ordering op;
    op.position = {lane, tick};
    Origin by;
    by.serial = serial;
    Footprint spans;
    for (int64_t i = 0; i < count; ++i) spans.push_back({p, 2 * i, 1, 4, Access::kWrite});
    races.access({op, {}, by, {}, false}, spans);
  }
};

TEST_F(RaceLog, WhatIsForgottenUpToASerialRacesWithNothing) {
  int32_t *a = ints(1), *b = ints(1);
  Races races(*memory, &findings);
  access(races, 0, 1, 1, a);
  access(races, 1, 1, 2, b);
  access(races, 1, 2, 3, a + 2);
  found();
  races.forget_up_to(2);
  EXPECT_EQ(races.intervals(), 1u);
  access(races, 2, 1, 4, a);
  access(races, 2, 2, 5, b);
  EXPECT_EQ(found(), "");
  access(races, 2, 3, 6, a + 2);
  EXPECT_EQ(found(), "mem.race");
}

TEST_F(RaceLog, TheOldestOfAllLanesIsForgottenFirst) {
  constexpr int64_t kCount = 1 << 12;
  constexpr uint64_t kFull = 64;  // operations of kCount intervals
  int32_t* a = ints(2 * kCount * static_cast<int64_t>(kFull));
  const auto place = [&](uint64_t i) { return a + 2 * kCount * static_cast<int64_t>(i); };
  Races races(*memory, &findings);
  for (uint64_t i = 0; i < kFull; ++i)
    access(races, i == 0 ? 2 : 1 + 2 * (i % 2), i / 2 + 1, i + 1, place(i), kCount);
  EXPECT_EQ(races.intervals(), size_t{kCount} * kFull);
  access(races, 0, 1, kFull + 1, ints(1));
  EXPECT_EQ(races.intervals(), size_t{kCount} * (kFull - 1) + 1);
  access(races, 4, 1, kFull + 2, place(0));
  EXPECT_EQ(found(), "") << "the first, which was forgotten";
  access(races, 4, 2, kFull + 3, place(1));
  EXPECT_EQ(found(), "mem.race");
}

TEST_F(RaceLog, AccessesInAnyOrderMeetWhereTheyOverlap) {
  int32_t* a = ints(64);
  memory->name(a, "A");
  Races races(*memory, &findings);
  Ordering op;
  op.position = {0, 1};
  const auto spans = [&](Access access, std::initializer_list<std::pair<int, int>> ranges) {
    Footprint list;
    for (const auto& [first, count] : ranges) list.push_back({a, first, count, 4, access});
    return list;
  };
  Origin by;
  by.serial = 1;
  races.access({op, {}, by, {}, false},
               spans(Access::kWrite, {{40, 2}, {8, 4}, {10, 4}, {0, 2}, {9, 1}}));
  op.position = {1, 1}, by.serial = 2;
  races.access({op, {}, by, {}, false}, spans(Access::kRead, {{50, 4}, {14, 2}, {2, 6}}));
  EXPECT_EQ(found(), "") << "beside them all";
  op.position = {2, 1}, by.serial = 3;
  races.access({op, {}, by, {}, false}, spans(Access::kRead, {{50, 4}, {13, 2}, {2, 6}}));
  EXPECT_EQ(found(), "mem.race");
  EXPECT_NE(last.find("A[13]"), std::string::npos) << last;
}

TEST_F(RaceLog, NothingIsLoggedOfNoAccess) {
  int32_t* a = ints(1);
  Races races(*memory, &findings);
  Ordering op;
  op.position = {0, 1};
  races.access({op, {}, {}, {}, false}, {{a, 0, 0, 4, Access::kWrite}});
  EXPECT_EQ(races.intervals(), 0u);
}

TEST_F(RaceLog, OfVeryManyOperationsTheOldestIsForgottenIfItIsDone) {
  constexpr int kMany = 1 << 16;
  for (const bool waits : {false, true}) {
    make();
    int32_t *flag = ints(1), *a = ints(1);
    if (waits) run(0, spinflag(flag, ints(1), 7));
    run(1, fill(a, 1));
    for (int i = 0; i < kMany; ++i) run(1, EmptyParams{});
    run(2, fill(a, 2));
    EXPECT_EQ(found(), waits ? "mem.race" : "") << "what waits is the oldest, and stays";
  }
}

}  // namespace
}  // namespace shadowgraph::happens_before_test
