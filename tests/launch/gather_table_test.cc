// The gathered page table: its columns from what memory holds when it runs, the rest untouched, and
// what a shadow sees of indices that lead astray.
#include "launch/gather_table.h"

#include "launch/launch_world.h"

namespace shadowgraph::gather_table_test {
namespace {

constexpr int64_t kRequests = 3, kColumns = 6, kPoolRows = 4, kWidth = 24;
constexpr int32_t kUntouched = 77;

/// A pool of token slots: the pages of row r are 10 r + 1, 10 r + 2, ... in steps of unit tokens.
class World : public LaunchWorld {
 public:
  explicit World(int32_t unit, bool swa = false, bool offsets = false)
      : unit_(unit), swa_(swa), offsets_(offsets) {
    Ints slots;
    for (int32_t r = 0; r < kPoolRows; ++r)
      for (int32_t c = 0; c < kWidth; ++c)
        slots.push_back((10 * r + 1 + c / unit) * unit + c % unit);
    tokens = bind("req_to_token", DType::kI32, {kPoolRows, kWidth});
    write(tokens, 0, slots);
    std::vector<int64_t> translated(static_cast<size_t>(60 * unit));
    for (size_t i = 0; i < translated.size(); ++i)
      translated[i] = static_cast<int64_t>(translated.size() - i - 1) / unit * unit +
                      static_cast<int64_t>(i) % unit;
    map = bind_values("full_to_swa", DType::kI64, translated);
    pool_rows = bind_values("req_pool_indices", DType::kI32, Ints{2, 0, 3});
    lens = bind_values("lens", DType::kI32, Ints{5, 0, 4 * unit});
    starts = bind_values("offsets", DType::kI32, Ints{unit, 0, 2 * unit});
    table = bind("page_table", DType::kI32, {kRequests, kColumns});
  }
  GatherTable call() const {
    GatherTable c;
    c.req_to_token = tokens.view();
    if (swa_) c.full_to_swa = map.view();
    c.req_pool_indices = elements<int32_t>(pool_rows);
    c.lens = elements<int32_t>(lens);
    if (offsets_) c.offsets = elements<int32_t>(starts);
    c.page_table = table.view();
    c.unit = unit_;
    return c;
  }
  void clear() { write(table, 0, Ints(kRequests * kColumns, kUntouched)); }
  Ints gathered() {
    stream().synchronize();
    const auto all = elements<int32_t>(table);
    return {all.begin(), all.end()};
  }
  /// By the definition.
  Ints expected() {
    stream().synchronize();
    Ints all(kRequests * kColumns, kUntouched);
    for (size_t i = 0; i < kRequests; ++i) {
      const int32_t len = elements<int32_t>(lens)[i];
      const int32_t start = offsets_ ? elements<int32_t>(starts)[i] : 0;
      for (int32_t t = 0; t < len; t += unit_) {
        const auto at = static_cast<size_t>(elements<int32_t>(pool_rows)[i] * kWidth + start + t);
        int64_t slot = elements<int32_t>(tokens)[at];
        if (swa_) slot = elements<int64_t>(map)[static_cast<size_t>(slot)];
        all[i * kColumns + static_cast<size_t>(t / unit_)] = static_cast<int32_t>(slot / unit_);
      }
    }
    return all;
  }
  /// Runs it both ways; check(what was found) after each.
  template <class Check>
  void run(Check check) {
    run_both(
        gather_table_launch(call()), [&] { clear(); }, [&] { check(found()); });
  }

  Buffer tokens, map, pool_rows, lens, starts, table;

 private:
  const int32_t unit_;
  const bool swa_, offsets_;
};

TEST(GatherTable, EveryColumnOfALengthAndNoOther) {
  for (const int32_t unit : {1, 2, 4}) {
    for (const bool swa : {false, true}) {
      for (const bool offsets : {false, true}) {
        World w(unit, swa, offsets);
        w.run([&](const std::string& found) {
          EXPECT_EQ(w.gathered(), w.expected()) << unit << swa << offsets;
          EXPECT_EQ(found, "ok");
        });
      }
    }
  }
}

TEST(GatherTable, PagesOfTwoTokensByHand) {
  World w(2, false, true);
  w.run([&](const std::string&) {
    // Row 2 from its second page on, 5 tokens; nothing; row 3 from its third page on, 8 tokens.
    const int32_t x = kUntouched;
    EXPECT_EQ(w.gathered(), (Ints{22, 23, 24, x, x, x, x, x, x, x, x, x, 33, 34, 35, 36, x, x}));
  });
}

TEST(GatherTable, ReadsEverythingWhenItRuns) {
  World w(2, true, true);
  GraphExec exec = w.record(gather_table_launch(w.call()));
  w.write(w.pool_rows, 0, Ints{1, 3, 0});
  w.write(w.lens, 0, Ints{1, 12, 3});
  w.write(w.starts, 0, Ints{0, 2, 4});
  w.write(w.tokens, kWidth, Ints{14});
  w.clear();
  exec.replay(w.stream());
  EXPECT_EQ(w.gathered(), w.expected());
  EXPECT_EQ(w.found(), "ok");
}

TEST(GatherTable, ATokenOutsideItsPoolIsFoundAndBecomesNoPage) {
  World w(2);
  w.write(w.pool_rows, 1, Ints{kPoolRows});
  w.write(w.lens, 1, Ints{3});
  w.run([&](const std::string& found) {
    EXPECT_NE(found.find(": req_to_token["), std::string::npos) << found;
    EXPECT_NE(found.find("row 1"), std::string::npos) << found;
    const Ints table = w.gathered();
    EXPECT_EQ(Ints(table.begin() + kColumns, table.begin() + kColumns + 3),
              (Ints{-1, -1, kUntouched}));
  });
}

TEST(GatherTable, ASlotOutsideTheMapIsFoundAndBecomesNoPage) {
  World w(2, true);
  w.write(w.tokens, 2 * kWidth + 2, Ints{120});
  w.run([&](const std::string& found) {
    EXPECT_NE(found.find(": full_to_swa["), std::string::npos) << found;
    EXPECT_EQ(w.gathered()[1], -1);
  });
}

TEST(GatherTable, ALengthBeyondTheTableIsFoundAndStopsAtItsEnd) {
  World w(1);
  w.write(w.lens, 2, Ints{kColumns + 1});
  w.run([&](const std::string& found) {
    EXPECT_NE(found.find(": page_table["), std::string::npos) << found;
    EXPECT_EQ(w.gathered()[kRequests * kColumns - 1], 36);
  });
  // The row is too long: the next row's columns are written too, which only their owner tells.
  World spill(1);
  spill.set_owner(spill.table, 0, 1);
  spill.set_owner(spill.table, 1, 2);
  const OwnerId rows[] = {1, 2, 3};
  spill.device.set_row_owners(rows);
  spill.write(spill.lens, 0, Ints{kColumns + 1});
  spill.run([&](const std::string& found) {
    EXPECT_NE(found.find("mem.wrong_region: page_table["), std::string::npos) << found;
    EXPECT_EQ(spill.gathered()[kColumns], 27);
  });
}

TEST(GatherTable, ACorruptLengthIsNotWalked) {
  World w(1);
  w.write(w.lens, 0, Ints{INT32_MAX});
  w.write(w.lens, 1, Ints{-5});
  w.clear();
  Footprint spans;
  const KernelLaunch launch = gather_table_launch(w.call());
  w.stream().synchronize();
  launch.kernel->footprint(LaunchFrame{.launch = launch}, &spans);
  EXPECT_LT(spans.size(), 40u);
  EXPECT_EQ(w.gathered(), Ints(kRequests * kColumns, kUntouched)) << "a footprint writes nothing";
}

TEST(GatherTable, OnlyWhatItNeedsIsRead) {
  World w(2);
  // Unwritten memory: the pool's table where no column looks.
  Buffer other = w.bind("other", DType::kI32, {kPoolRows, kWidth});
  for (const int64_t at : {0, 2, 4}) w.write(other, 2 * kWidth + at, Ints{8});
  for (const int64_t at : {0, 2, 4, 6}) w.write(other, 3 * kWidth + at, Ints{8});
  GatherTable call = w.call();
  call.req_to_token = other.view();
  w.run_both(
      gather_table_launch(call), [] {}, [&] { EXPECT_EQ(w.found(), "ok"); });
  w.write(w.lens, 0, Ints{7});
  w.run_both(
      gather_table_launch(call), [] {},
      [&] {
        const std::string found = w.found();
        EXPECT_NE(found.find("mem.uninit_read: other[54]"), std::string::npos) << found;
      });
}

TEST(GatherTable, BuiltAgainItIsTheSameByteByByte) {
  const World w(2, true, true);
  GatherTable call = w.call();
  const KernelLaunch kept = gather_table_launch(call);
  EXPECT_EQ(kept, gather_table_launch(call));
  call.unit = 4;
  EXPECT_NE(kept, gather_table_launch(call));
}

}  // namespace
}  // namespace shadowgraph::gather_table_test
