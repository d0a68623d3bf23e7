// Attention by FlashMLA's schedule: however keys are shared out, the whole call; and what a shadow
// sees of a schedule that is short, stale or corrupt.
#include "launch/mla_parts_launch.h"

#include <string>
#include <utility>
#include <vector>

#include "backends/paged/flash_mla.h"
#include "check/bounds/compare.h"
#include "launch/launch_world.h"

namespace shadowgraph::mla_parts_launch_test {
namespace {

constexpr int64_t kHeads = 3, kDimQk = 8, kDimVo = 4, kPlaces = 24;

struct Shape {
  std::vector<std::pair<int32_t, int32_t>> rows = {{2, 130}, {2, 2}, {2, 64}, {2, 400}};
  int32_t parts = 3, window = 2;  // the most queries of a row
  bool sinks = false;
};

/// Rows of own queries, and keys with the whole window at their end. Page 0 is nobody's; the pages
/// of a row go down.
class World : public LaunchWorld {
 public:
  explicit World(const Shape& s) : shape(s) {
    int32_t pages = 1, columns = 0;
    for (const auto& [queries, keys] : s.rows) {
      starts_.push_back(starts_.back() + queries);
      lens_.push_back(keys);
      pages += blocks(keys), columns = std::max(columns, blocks(keys));
    }
    for (int32_t last = pages; const int32_t keys : lens_) {
      for (int32_t c = 0; c < columns; ++c) table_.push_back(c < blocks(keys) ? --last : -1);
    }
    const auto rows = std::ssize(lens_);
    q = bind("q", DType::kF32, {starts_.back(), kHeads, kDimQk}, kHeads * kDimQk);
    out = bind("out", DType::kF32, {starts_.back(), kHeads, kDimVo}, kDimVo);
    lse = bind("lse", DType::kF32, {starts_.back(), kHeads});
    k = bind("k", DType::kF32, {pages, 64, kDimQk}, kDimQk);
    const int64_t places = kPlaces * s.window;
    partial_out = bind("partial_out", DType::kF32, {places, kHeads, kDimVo}, kDimVo);
    partial_lse = bind("partial_lse", DType::kF32, {places, kHeads});
    randomise(q), randomise(k);
    sinks = bind_values("sinks", DType::kF32, std::vector<float>{1, -1, 0.5f});
    lens = bind_values("lens", DType::kI32, lens_);
    starts = bind_values("starts", DType::kI32, starts_);
    table = bind("table", DType::kI32, {rows, columns});
    write(table, 0, table_);
    std::vector<int32_t> parts(static_cast<size_t>(s.parts) * kMlaPartInts);
    std::vector<int32_t> splits(lens_.size() + 1);
    share_out(lens_, parts, splits);
    tile_metadata = bind_values("tile_metadata", DType::kI32, parts);
    num_splits = bind_values("num_splits", DType::kI32, splits);
  }

  MlaParts parts() const {
    MlaParts c;
    c.q = q.view(), c.out = out.view(), c.lse = NaturalLse(lse.view());
    c.cache = cache();
    c.pages = PageTable::dense(elements<int32_t>(table), table.shape[1], elements<int32_t>(lens));
    c.cu_seqlens_q = elements<int32_t>(starts);
    c.max_seqlen_q = shape.window;
    c.params = params();
    c.tile_metadata = elements<int32_t>(tile_metadata);
    c.num_splits = elements<int32_t>(num_splits);
    c.partial_out = partial_out.view(), c.partial_lse = NaturalLse(partial_lse.view());
    return c;
  }
  /// The whole call: keys as far as the row's last own query sees.
  PagedAttention whole(const TensorView& to, const TensorView& to_lse) {
    own_.clear();
    for (const auto& [queries, keys] : shape.rows) own_.push_back(keys - shape.window + queries);
    PagedAttention c;
    c.q = q.view(), c.out = to, c.lse = NaturalLse(to_lse);
    c.cache = cache();
    c.pages = PageTable::dense(table_, table.shape[1], own_);
    c.cu_seqlens_q = starts_;
    c.params = params();
    return c;
  }
  Status judged() {
    JudgeOptions how{.bounded = true};
    const auto splits = elements<int32_t>(num_splits);
    for (size_t r = 0; r < shape.rows.size(); ++r)
      how.parts.insert(how.parts.end(), static_cast<size_t>(shape.rows[r].first),
                       splits[r + 1] - splits[r]);
    return judge(whole(out.view(), lse.view()),
                 Result{out.view(), lse.view(), LseBase::kNatural, LseSink::kExcluded},
                 *find_arithmetic("ours_merged"), how)
        .findings;
  }
  /// Both launches on cleared outputs, eagerly and as one replay; check() after each.
  template <class Check>
  void run(Check check) {
    const auto launches = [this](Stream& s) {
      s.launch(mla_parts_launch(parts()));
      s.launch(mla_merge_launch(parts()));
    };
    Graph graph;
    GraphExec exec;
    ASSERT_TRUE(Graph::record(stream(), launches, &graph).ok());
    ASSERT_TRUE(GraphExec::instantiate(graph, &exec).ok());
    for (const bool replayed : {false, true}) {
      SCOPED_TRACE(replayed);
      clear(out), clear(lse);
      if (replayed) exec.replay(stream());
      if (!replayed) launches(stream());
      stream().synchronize();
      check();
    }
  }
  void expect_found(const std::string& text) {
    run([&] {
      const std::string all = found();
      EXPECT_NE(all.find(text), std::string::npos) << all;
    });
  }
  void put(int64_t part, MlaPart member, int32_t value) {
    write(tile_metadata, part * kMlaPartInts + member, Ints{value});
  }
  bool is_lost(int64_t token) {
    const Bytes all = bytes(out);
    const auto row = std::ssize(all) / out.shape[0];
    return is_poison({all.begin() + token * row, all.begin() + (token + 1) * row});
  }

  const Shape shape;
  Buffer q, k, out, lse, sinks, lens, starts, table, tile_metadata, num_splits, partial_out,
      partial_lse;

 private:
  static int32_t blocks(int32_t keys) { return (keys + 63) / 64; }
  KvCache cache() const { return KvCache::mla_latent(k.view(), kDimVo); }
  AttentionParams params() const {
    AttentionParams p{.num_qo_heads = kHeads,
                      .num_kv_heads = 1,
                      .head_dim_qk = kDimQk,
                      .head_dim_vo = kDimVo,
                      .sm_scale = 0.5f,
                      .causal = true};
    if (shape.sinks) p.sinks = elements<float>(sinks);
    return p;
  }

  Ints starts_{0}, lens_, table_, own_;
};

TEST(MlaPartsLaunch, PartsOfAnyNumberAreTheWholeCall) {
  for (const int32_t parts : {1, 2, 3, 7, 16}) {
    for (const bool sinks : {false, true}) {
      World w({.parts = parts, .sinks = sinks});
      SCOPED_TRACE(parts);
      w.run([&] {
        EXPECT_EQ(w.found(), "ok");
        EXPECT_EQ(w.judged().to_string(), "ok");
      });
    }
  }
}

TEST(MlaPartsLaunch, ARowOfOnePartHasTheBitsOfTheCall) {
  World w({.parts = 1});
  const Bytes whole = w.expected(
      w.out, [&] { return attention_with_kvcache(w.whole(w.out.view(), w.lse.view())); });
  const Bytes whole_lse = w.bytes(w.lse);
  w.run([&] {
    EXPECT_EQ(w.found(), "ok");
    EXPECT_EQ(w.bytes(w.out), whole);
    EXPECT_EQ(w.bytes(w.lse), whole_lse);
  });
}

/// fa.I-87: a row with fewer queries than the widest has the first of its window, and no block that
/// only the others of it would see is looked up.
TEST(MlaPartsLaunch, OwnQueriesAreTheFirstOfTheWindow) {
  for (const int32_t parts : {1, 4, 16}) {
    World w({.rows = {{1, 130}, {4, 66}, {0, 70}, {3, 259}}, .parts = parts, .window = 4});
    w.write(w.table, 2, Ints{-1});
    w.run([&] {
      EXPECT_EQ(w.found(), "ok");
      EXPECT_EQ(w.judged().to_string(), "ok");
    });
  }
}

TEST(MlaPartsLaunch, ABlockLeftOutShows) {
  World w({.rows = {{1, 400}}, .parts = 2, .window = 1});
  const int32_t end = World::elements<int32_t>(w.tile_metadata)[kEndKey];
  ASSERT_GT(end, 64);
  w.put(0, kEndKey, end - 64);
  w.run([&] {
    EXPECT_EQ(w.found(), "ok");
    EXPECT_FALSE(w.judged().ok());
  });
}

TEST(MlaPartsLaunch, TheScheduleIsReadWhenItRuns) {
  World w({.parts = 3});
  Graph graph;
  GraphExec exec;
  const auto launches = [&](Stream& s) {
    s.launch(mla_parts_launch(w.parts()));
    s.launch(mla_merge_launch(w.parts()));
  };
  ASSERT_TRUE(Graph::record(w.stream(), launches, &graph).ok());
  ASSERT_TRUE(GraphExec::instantiate(graph, &exec).ok());
  Ints parts(static_cast<size_t>(3) * kMlaPartInts), splits(5);
  share_out(Ints{130, 2, 64, 400}, std::span(parts).first(2 * kMlaPartInts), splits);
  parts[2 * kMlaPartInts + kBeginRow] = 4, parts[2 * kMlaPartInts + kEndRow] = 3;
  w.write(w.tile_metadata, 0, parts), w.write(w.num_splits, 0, splits);
  exec.replay(w.stream());
  EXPECT_EQ(w.found(), "ok");
  EXPECT_EQ(w.judged().to_string(), "ok");
}

TEST(MlaPartsLaunch, ASplitThatNoPartHasIsFound) {
  World w({.parts = 1});
  w.write(w.num_splits, 4, Ints{5});
  w.expect_found("mem.uninit_read: partial_lse[");
}

TEST(MlaPartsLaunch, ARowThatNoPartHasKeepsWhatItHeld) {
  World w({.parts = 1});
  w.put(0, kEndRow, 2), w.put(0, kEndKey, 64);
  w.run([&] { EXPECT_FALSE(w.judged().ok()); });
}

TEST(MlaPartsLaunch, WhatLeadsOutsideIsFoundAndItsRowsAreLost) {
  struct Fault {
    const char* found;
    void (*plant)(World& w);
    bool lost;  // token 6, of the last row
  };
  const Fault faults[] = {
      {": lens[", [](World& w) { w.put(0, kEndRow, 9); }, false},
      {": lens[", [](World& w) { w.put(0, kBeginRow, -1); }, false},
      {": table[", [](World& w) { w.put(0, kEndKey, 640); }, false},
      {": table[", [](World& w) { w.write(w.lens, 3, Ints{500}), w.put(0, kEndKey, 500); }, true},
      {": k[", [](World& w) { w.write(w.table, 3 * w.table.shape[1], Ints{100}); }, true},
      {": k[", [](World& w) { w.write(w.table, 3 * w.table.shape[1] + 1, Ints{-1}); }, true},
      {": q[",
       [](World& w) {
         w.write(w.starts, 3, Ints{7, 9});
       },
       false},
      {": partial_out[", [](World& w) { w.write(w.num_splits, 4, Ints{kPlaces + 1}); }, true},
      {": partial_out[",
       [](World& w) { w.write(w.num_splits, 3, Ints{kPlaces}), w.put(0, kEndKey, 64); }, true},
  };
  for (const Fault& fault : faults) {
    World w({.parts = 1});
    SCOPED_TRACE(&fault - faults);
    fault.plant(w);
    w.run([&] {
      const std::string found = w.found();
      EXPECT_NE(found.find(fault.found), std::string::npos) << found;
      EXPECT_EQ(w.is_lost(6), fault.lost);
    });
  }
}

TEST(MlaPartsLaunch, BlocksBehindARowsKeysAreLost) {
  World w({.parts = 1});
  // Row 2 has one block, and its table has seven columns.
  w.put(0, kEndRow, 2), w.put(0, kEndKey, 128);
  w.run([&] {
    w.found();
    const Bytes all = w.bytes(w.partial_lse);
    const size_t first = 2 * 2 * kHeads * sizeof(float);
    EXPECT_TRUE(is_poison({all.begin() + first, all.begin() + first + kHeads * sizeof(float)}));
  });
}

TEST(MlaPartsLaunch, NoScheduleLeadsItOutOfItsMemory) {
  constexpr int32_t kValues[] = {-1, 0, 1, 2, 3, 4, 5, 64, 400, 1000, INT32_MAX, INT32_MIN};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    World w({.parts = static_cast<int32_t>(1 + seed % 4)});
    Rng rng(seed);
    for (const Buffer* b : {&w.tile_metadata, &w.num_splits, &w.lens, &w.starts, &w.table}) {
      for (int64_t i = 0; i < b->numel(); ++i) {
        const int32_t value = kValues[rng.below(std::size(kValues))];
        if (rng.below(8) == 0) w.write(*b, i, Ints{value});
      }
    }
    w.run([&] { w.found(); });
  }
}

}  // namespace
}  // namespace shadowgraph::mla_parts_launch_test
