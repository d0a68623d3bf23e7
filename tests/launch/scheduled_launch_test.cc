// Attention by a schedule: the whole call whatever the splits, the rows that a counter leaves out,
// and what a shadow sees of a schedule that is short or corrupt.
#include "launch/scheduled_launch.h"

#include <algorithm>
#include <string>

#include "launch/attention_launch.h"
#include "launch/cache_world.h"

namespace shadowgraph::scheduled_launch_test {
namespace {

constexpr int32_t kHeads = 4, kRows = 3, kColumns = 3, kMostSplits = 4;

/// Decodes over a pool; the pages of a row go up from its own first.
class World : public CacheWorld {
 public:
  World() : CacheWorld({.layout = Layout::kNhd, .dtype = DType::kF32, .pages = 10}) {
    q = bind("q", DType::kF32, {kRows, kHeads, kDimQk}, kHeads * kDimQk);
    out = bind("out", DType::kF32, {kRows, kHeads, kDimVo}, kDimVo);
    lse = bind("lse", DType::kF32, {kRows, kHeads});
    for (const Buffer* b : {&q, &k, &v}) randomise(*b);
    lens = bind_values("lens", DType::kI32, Ints{5, 1, 12});
    table = bind("table", DType::kI32, {kRows, kColumns});
    write(table, 0, Ints{1, 2, -1, 4, -1, -1, 7, 8, 9});
    schedule = bind_values("schedule", DType::kI32, Ints{0, 1, kMostSplits, 2});
  }

  ScheduledAttention call() const {
    ScheduledAttention c;
    c.q = q.view();
    c.cache = cache();
    c.pages = PageTable::dense(elements<int32_t>(table), kColumns, elements<int32_t>(lens));
    c.params = {.num_qo_heads = kHeads,
                .num_kv_heads = kKvHeads,
                .head_dim_qk = kDimQk,
                .head_dim_vo = kDimVo,
                .sm_scale = 0.25f};
    c.out = out.view();
    c.lse = NaturalLse(lse.view());
    c.max_seqlen_q = 1;
    c.schedule = {reinterpret_cast<int32_t*>(schedule.data), static_cast<size_t>(schedule.numel())};
    c.max_splits = kMostSplits;
    return c;
  }
  void set(int64_t i, int32_t value) { write(schedule, i, Ints{value}); }
  /// check() behind an eager run and behind a replay, each with schedule[i] = value.
  template <class Check>
  void run(int64_t i, int32_t value, Check check) {
    run_both(
        scheduled_launch(call()), [&] { clear(out), clear(lse), set(i, value); }, check);
  }
  /// A row's out, then its LSE.
  Bytes results(int64_t row) {
    const auto part = [&](const Buffer& b) {
      const Bytes all = bytes(b);
      const auto size = std::ssize(all) / kRows;
      return Bytes{all.begin() + row * size, all.begin() + (row + 1) * size};
    };
    Bytes both = part(out);
    const Bytes lses = part(lse);
    both.insert(both.end(), lses.begin(), lses.end());
    return both;
  }
  /// The rows of the call without a schedule.
  std::vector<Bytes> all() {
    stream().launch(attention_launch(call()));
    return {results(0), results(1), results(2)};
  }

  Buffer q, out, lse, lens, table, schedule;
};

bool is_untouched(const Bytes& bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0x55}; });
}

TEST(ScheduledLaunch, ARowHasTheSameBitsWhateverItsSplits) {
  World w;
  const std::vector<Bytes> want = w.all();
  for (int32_t splits = 1; splits <= kMostSplits; ++splits) {
    w.run(3, splits, [&] {
      EXPECT_EQ(w.found(), "ok");
      for (int64_t row = 0; row < kRows; ++row)
        EXPECT_EQ(w.results(row), want[static_cast<size_t>(row)]) << row;
    });
  }
}

TEST(ScheduledLaunch, RowsBeforeTheCounterAreLeftAsTheyAre) {
  World w;
  const std::vector<Bytes> want = w.all();
  for (const int32_t counter : {-1, 0, 1, 2, 3, 1000}) {
    SCOPED_TRACE(counter);
    w.run(0, counter, [&] {
      EXPECT_EQ(w.found(), "ok");
      for (int64_t row = 0; row < kRows; ++row) {
        if (row < counter)
          EXPECT_TRUE(is_untouched(w.results(row))) << row;
        else
          EXPECT_EQ(w.results(row), want[static_cast<size_t>(row)]) << row;
      }
    });
  }
}

TEST(ScheduledLaunch, TheCounterIsZeroWhenItEnds) {
  World w;
  w.run(0, 2, [&] {
    w.found();
    Bytes counter = w.bytes(w.schedule);
    counter.resize(sizeof(int32_t));
    EXPECT_EQ(counter, Bytes(sizeof(int32_t)));
  });
}

TEST(ScheduledLaunch, ARowOfTooFewOrTooManySplitsIsLost) {
  World w;
  const std::vector<Bytes> want = w.all();
  for (const int32_t splits : {0, -1, kMostSplits + 1, INT32_MAX, INT32_MIN}) {
    SCOPED_TRACE(splits);
    w.run(2, splits, [&] {
      EXPECT_EQ(w.found(), "ok");
      EXPECT_TRUE(is_poison(w.results(1)));
      for (const size_t row : {0, 2}) EXPECT_EQ(w.results(static_cast<int64_t>(row)), want[row]);
    });
  }
}

TEST(ScheduledLaunch, AScheduleThatIsShortIsFoundAndItsRowIsLost) {
  World w;
  ScheduledAttention c = w.call();
  c.schedule = c.schedule.first(kRows);
  w.clear(w.out);
  w.stream().launch(scheduled_launch(c));
  w.stream().synchronize();
  EXPECT_TRUE(is_poison({w.results(2)}));
}

/// Each row's keys are its own request's, in the whole call and row by row.
TEST(ScheduledLaunch, ARowReadsForItsRequest) {
  for (const int32_t counter : {0, 1}) {
    World w;
    w.set(0, counter);
    constexpr OwnerId kOwners[] = {5, 6, 7};
    for (int64_t page = 1; page < 10; ++page)
      for (const Buffer* b : w.planes()) w.set_owner(*b, page, kOwners[page / 4 + (page == 7)]);
    w.device.set_row_owners(kOwners);
    w.stream().launch(scheduled_launch(w.call()));
    EXPECT_EQ(w.found(), "ok");
    w.write(w.table, 2 * kColumns, Ints{4});
    w.set(0, counter);
    w.stream().launch(scheduled_launch(w.call()));
    const std::string found = w.found();
    EXPECT_NE(found.find("mem.wrong_region"), std::string::npos) << found;
  }
}

}  // namespace
}  // namespace shadowgraph::scheduled_launch_test
