// Counted rows: what is left of the rows of a workspace that is not 0.
#include "launch/counters_launch.h"

#include <string>

#include "launch/launch_world.h"

namespace shadowgraph::counters_launch_test {
namespace {

constexpr int32_t kRows = 3, kTokens = 6;

/// Rows of 1, 3 and 2 queries.
class World : public LaunchWorld {
 public:
  World() {
    counters = bind_values("counters", DType::kI32, Ints(kRows));
    starts = bind_values("starts", DType::kI32, Ints{0, 1, 4, 6});
    out = bind("out", DType::kF32, {kTokens, 2, 4}, 4);
    lse = bind("lse", DType::kF32, {kTokens, 2});
  }
  CountedRows call() const {
    return {{reinterpret_cast<int32_t*>(counters.data), kRows},
            elements<int32_t>(starts),
            out.view(),
            NaturalLse(lse.view())};
  }
  /// check() behind an eager run and behind a replay with a row's counter.
  template <class Check>
  void run(int64_t row, int32_t counter, Check check) {
    run_both(
        counted_rows_launch(call()),
        [&] { clear(out), clear(lse), write(counters, row, Ints{counter}); }, check);
  }
  /// Are a token's out and LSE lost?
  bool is_lost(int64_t token) {
    const auto part = [&](const Buffer& b) {
      const Bytes all = bytes(b);
      const auto size = std::ssize(all) / kTokens;
      return Bytes{all.begin() + token * size, all.begin() + (token + 1) * size};
    };
    EXPECT_EQ(is_poison(part(out)), is_poison(part(lse)));
    return is_poison(part(out));
  }

  Buffer counters, starts, out, lse;
};

TEST(CountersLaunch, ARowWhoseCounterIsNotZeroIsLost) {
  World w;
  for (const int32_t counter : {1, -1, INT32_MAX}) {
    w.run(1, counter, [&] {
      EXPECT_EQ(w.found(), "ok");
      for (int64_t t = 0; t < kTokens; ++t) EXPECT_EQ(w.is_lost(t), t >= 1 && t < 4) << t;
    });
  }
}

TEST(CountersLaunch, ZerosLeaveAllResults) {
  World w;
  w.run(0, 0, [&] {
    EXPECT_EQ(w.found(), "ok");
    for (int64_t t = 0; t < kTokens; ++t) EXPECT_FALSE(w.is_lost(t)) << t;
  });
}

TEST(CountersLaunch, CountersAreZeroWhenItEnds) {
  World w;
  w.run(2, 7, [&] { EXPECT_EQ(w.bytes(w.counters), Bytes(kRows * sizeof(int32_t))); });
}

TEST(CountersLaunch, NoOffsetLeadsItOutOfItsMemory) {
  for (const int32_t offset : {-1, 0, 7, INT32_MIN, INT32_MAX}) {
    World w;
    w.write(w.starts, 2, Ints{offset});
    w.run(1, 1, [&] { EXPECT_EQ(w.found(), "ok"); });
    w.run(2, 1, [&] { EXPECT_EQ(w.found(), "ok"); });
  }
}

}  // namespace
}  // namespace shadowgraph::counters_launch_test
