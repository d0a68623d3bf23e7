// Attention by a plan: whatever the tiles and chunks, the whole call; and what a shadow sees of a
// plan that is stale, short or corrupt.
#include "launch/tile_launch.h"

#include <algorithm>

#include "launch/tile_world.h"

namespace shadowgraph::tile_launch_test {
namespace {

/// How a plan cuts.
struct Cuts {
  int32_t cta = 4;      // packed rows of a tile; 0: a decode's plan, without tiles
  int32_t chunk = 32;   // 0: keys are not cut
  int64_t padding = 2;  // items of the grid that do nothing
};

class World : public TileWorld {
 public:
  World(TileShape s, Cuts c) : TileWorld(std::move(s)), cuts_(c) {
    for (int32_t r = 0; r < batch(); ++r) plan_request(r);
    const auto items = std::ssize(request_);
    request_indices = bind("request_indices", DType::kI32, {items + c.padding});
    write(request_indices, 0, request_);
    qo_tile_indices = bind("qo_tile_indices", DType::kI32, {items + c.padding});
    write(qo_tile_indices, 0, tile_);
    kv_tile_indices = bind("kv_tile_indices", DType::kI32, {items + c.padding});
    write(kv_tile_indices, 0, chunk_);
    std::vector<uint8_t> valid(static_cast<size_t>(items), 1);
    valid.resize(static_cast<size_t>(items + c.padding));
    block_valid_mask = bind_values("block_valid_mask", DType::kU8, valid);
    o_indptr = bind_values("o_indptr", DType::kI32, first_rows_);
    merge_indptr = bind_values("merge_indptr", DType::kI32, merges_);
    kv_chunk_size = bind_values("kv_chunk_size", DType::kI32, Ints{c.chunk});
    partial_v = bind("partial_v", DType::kF32, {merges_.back(), kHeads, kDimVo}, kDimVo);
    partial_s = bind("partial_s", DType::kF32, {merges_.back(), kHeads});
  }

  TiledAttention call() const {
    TiledAttention c;
    c.q = q.view();
    if (cuts_.cta > 0) c.qo_indptr = elements<int32_t>(qo_indptr);
    c.kv_indptr = elements<int32_t>(kv_indptr);
    if (shape.ragged) {
      c.k = ragged(k), c.v = ragged(v);
    } else {
      c.kv_indices = elements<int32_t>(kv_indices);
      c.cache = cache();
    }
    if (shape.masked) {
      c.packed_mask = elements<uint8_t>(mask);
      c.mask_indptr = elements<int32_t>(mask_indptr);
    }
    c.params = params();
    c.plan = plan();
    c.out = split() ? partial_v.view() : out.view();
    c.lse = lse_of(split() ? partial_s : lse);
    return c;
  }
  TilePlan plan() const {
    TilePlan p;
    p.request_indices = elements<int32_t>(request_indices);
    if (cuts_.cta > 0) p.qo_tile_indices = elements<int32_t>(qo_tile_indices);
    p.kv_tile_indices = elements<int32_t>(kv_tile_indices);
    p.o_indptr = elements<int32_t>(o_indptr);
    p.merge_indptr = elements<int32_t>(merge_indptr);
    p.kv_chunk_size = elements<int32_t>(kv_chunk_size);
    p.block_valid_mask = elements<uint8_t>(block_valid_mask);
    p.cta_tile_q = cuts_.cta;
    p.split_kv = split();
    return p;
  }
  MergeTiles merge() const {
    MergeTiles m;
    m.v = partial_v.view(), m.s = lse_of(partial_s);
    m.merge_indptr = elements<int32_t>(merge_indptr);
    m.out = out.view(), m.lse = lse_of(lse);
    m.qo_indptr = elements<int32_t>(qo_indptr);
    return m;
  }
  template <class Check>
  void run(Check check) {
    const auto both = [this](Stream& s) {
      s.launch(tile_launch(call()));
      if (split()) s.launch(merge_tiles_launch(merge()));
    };
    run_launches(both, check);
  }
  void expect_found(const std::string& text) {
    run([&] {
      const std::string all = found();
      EXPECT_NE(all.find(text), std::string::npos) << all;
    });
  }
  bool split() const { return cuts_.chunk > 0; }
  /// All that a launch reads its way by.
  std::vector<const Buffer*> plan_buffers() const {
    return {&request_indices, &qo_tile_indices, &kv_tile_indices, &o_indptr,   &kv_chunk_size,
            &qo_indptr,       &kv_indptr,       &kv_indices,      &mask_indptr};
  }
  /// Partial results of every token.
  std::vector<int32_t> parts() const {
    std::vector<int32_t> all;
    for (size_t t = 0; t + 1 < merges_.size(); ++t)
      all.push_back(split() ? merges_[t + 1] - merges_[t] : 1);
    return all;
  }

  Buffer request_indices, qo_tile_indices, kv_tile_indices, o_indptr, merge_indptr, kv_chunk_size,
      block_valid_mask, partial_v, partial_s;

 private:
  void plan_request(int32_t r) {
    const auto [queries, keys] = shape.requests[static_cast<size_t>(r)];
    const int32_t chunks = split() ? (std::max(keys, 1) + cuts_.chunk - 1) / cuts_.chunk : 1;
    const int32_t rows = queries * kGroup, cta = cuts_.cta > 0 ? cuts_.cta : rows;
    for (int32_t tile = 0; tile * cta < rows; ++tile) {
      for (int32_t c = 0; c < chunks; ++c)
        request_.push_back(r), tile_.push_back(tile), chunk_.push_back(c);
    }
    first_rows_.push_back(first_rows_.back() + queries * chunks);
    for (int32_t t = 0; t < queries; ++t) merges_.push_back(merges_.back() + chunks);
  }

  const Cuts cuts_;
  Ints request_, tile_, chunk_, first_rows_{0}, merges_{0};
};

/// fi.I-64.
TEST(TileLaunch, TilesAndChunksOfAnySizeAreTheWholeCall) {
  for (const int32_t cta : {1, 2, 3, 4, 16}) {
    for (const int32_t chunk : {0, 1, 32, 200}) {
      for (const LseBase base : {LseBase::kNatural, LseBase::kLog2}) {
        World w({.base = base}, {.cta = cta, .chunk = chunk});
        w.set_owners();
        SCOPED_TRACE(std::to_string(cta) + " " + std::to_string(chunk));
        w.run([&] {
          EXPECT_EQ(w.found(), "ok");
          w.expect_whole(w.parts(), LseSink::kExcluded);
          w.expect_padding(std::byte{0x11});
        });
      }
    }
  }
}

TEST(TileLaunch, EveryKindOfMaskAndKeysIsTheWholeCall) {
  for (int options = 0; options < 32; ++options) {
    const auto has = [options](int bit) { return (options >> bit & 1) != 0; };
    TileShape shape{.ragged = has(0), .window = has(1), .causal = has(2)};
    shape.masked = has(3);
    shape.base = has(1) ? LseBase::kLog2 : LseBase::kNatural;
    World w(shape, {.cta = 4, .chunk = has(4) ? 40 : 0});
    SCOPED_TRACE(options);
    w.run([&] {
      EXPECT_EQ(w.found(), "ok");
      w.expect_whole(w.parts(), LseSink::kExcluded);
    });
  }
}

/// fi.I-60.
TEST(TileLaunch, ASinkIsCountedOnceHoweverKeysAreCut) {
  for (const int32_t chunk : {0, 16, 200}) {
    World w({.sinks = true}, {.cta = 4, .chunk = chunk});
    SCOPED_TRACE(chunk);
    w.run([&] {
      EXPECT_EQ(w.found(), "ok");
      w.expect_whole(w.parts(), LseSink::kIncluded);
    });
  }
}

TEST(TileLaunch, ADecodeHasOneQueryARequestAndNoTiles) {
  for (const int32_t chunk : {0, 32}) {
    World w({.requests = {{1, 40}, {1, 1}, {1, 150}}}, {.cta = 0, .chunk = chunk});
    w.run([&] {
      EXPECT_EQ(w.found(), "ok");
      w.expect_whole(w.parts(), LseSink::kExcluded);
    });
  }
}

TEST(TileLaunch, ThePlanIsReadWhenItRuns) {
  World w({}, {.cta = 4, .chunk = 0});
  GraphExec exec = w.record(tile_launch(w.call()));
  // Tiles in the opposite order.
  Ints requests(World::elements<int32_t>(w.request_indices).begin(),
                World::elements<int32_t>(w.request_indices).end() - 2);
  Ints tiles(World::elements<int32_t>(w.qo_tile_indices).begin(),
             World::elements<int32_t>(w.qo_tile_indices).end() - 2);
  std::reverse(requests.begin(), requests.end()), std::reverse(tiles.begin(), tiles.end());
  w.write(w.request_indices, 0, requests), w.write(w.qo_tile_indices, 0, tiles);
  w.clear();
  exec.replay(w.stream());
  EXPECT_EQ(w.found(), "ok");
  w.expect_whole(w.parts(), LseSink::kExcluded);
}

TEST(TileLaunch, AShortPlanLeavesRowsUnwritten) {
  World w({}, {.cta = 4, .chunk = 32});
  w.write(w.block_valid_mask, 0, std::vector<uint8_t>{0});
  w.run([&] {
    const std::string found = w.found();
    EXPECT_NE(found.find("mem.uninit_read: partial_s[0"), std::string::npos) << found;
  });
}

TEST(TileLaunch, AStaleGridReadsWhatNobodyPlanned) {
  World w({}, {.cta = 4, .chunk = 32});
  w.write(w.block_valid_mask, w.block_valid_mask.numel() - 1, std::vector<uint8_t>{1});
  w.expect_found("mem.uninit_read: request_indices[");
}

TEST(TileLaunch, AnotherRequestsSlotIsFound) {
  World w({}, {.cta = 4, .chunk = 32});
  w.set_owners();
  w.write(w.kv_indices, 45, Ints{w.keys()});
  w.run([&] {
    const std::string found = w.found();
    EXPECT_NE(found.find("mem.wrong_region: k["), std::string::npos) << found;
    EXPECT_NE(found.find("row 2"), std::string::npos) << found;
  });
}

TEST(TileLaunch, BranchesOfARequestReadWhatIsTheirs) {
  // Five rows, of which each two are one request's.
  World w({}, {.cta = 4, .chunk = 32});
  w.set_owners();
  const KernelLaunch launch = tile_launch(w.call(), {.a_request = 2, .first = 0});
  w.run_both(
      launch, [] {},
      [&] {
        const std::string found = w.found();
        EXPECT_NE(found.find("mem.wrong_region: k["), std::string::npos) << found;
        EXPECT_EQ(found.find("row 4"), std::string::npos) << found;
      });
}

TEST(TileLaunch, WhatLeadsOutsideIsFoundAndItsRowsAreLost) {
  struct Fault {
    const char* found;
    void (*plant)(World& w);
    bool lost;  // row 4, of request 2
  };
  const Fault faults[] = {
      {": k[", [](World& w) { w.write(w.kv_indices, 45, Ints{1000}); }, true},
      {": k[", [](World& w) { w.write(w.kv_indices, 45, Ints{-1}); }, true},
      {": kv_indices[", [](World& w) { w.write(w.kv_indptr, 3, Ints{900}); }, true},
      {": kv_indptr[", [](World& w) { w.write(w.request_indices, 3, Ints{7}); }, false},
      {": kv_indptr[", [](World& w) { w.write(w.request_indices, 3, Ints{-7}); }, false},
      {": q[", [](World& w) { w.write(w.qo_indptr, 3, Ints{12}); }, true},
  };
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.found);
    World w({.padding = 0}, {.cta = 16, .chunk = 0});
    fault.plant(w);
    w.run([&] {
      const std::string found = w.found();
      EXPECT_NE(found.find(fault.found), std::string::npos) << found;
      EXPECT_EQ(is_poison(row_of(w, w.out, 4)), fault.lost);
      EXPECT_FALSE(is_poison(row_of(w, w.out, 0)));
    });
  }
}

TEST(TileLaunch, PartialRowsOutsideAreFound) {
  World w({}, {.cta = 4, .chunk = 32});
  w.write(w.o_indptr, 4, Ints{1000});
  w.expect_found("mem.out_of_bounds: partial_v[");
}

TEST(TileLaunch, AChunkThatARequestHasNotIsLost) {
  World w({}, {.cta = 16, .chunk = 200});
  w.write(w.kv_tile_indices, 0, Ints{1});
  w.run([&] {
    w.found();
    const Bytes all = w.bytes(w.partial_s);
    const size_t row = World::kHeads * sizeof(float);
    EXPECT_EQ(Bytes(&all[row], &all[row] + row), Bytes(row, std::byte{0xff}));
  });
}

TEST(TileLaunch, AMaskThatEndsTooEarlyIsFound) {
  World w({.masked = true}, {.cta = 4, .chunk = 32});
  w.write(w.mask_indptr, 4, Ints{1000});
  w.expect_found("mem.out_of_bounds: mask[");
}

TEST(TileLaunch, NoPlanLeadsItOutOfItsMemory) {
  constexpr int32_t kValues[] = {-1, 0, 1, 2, 3, 5, 40, 228, 1000, INT32_MAX, INT32_MIN};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    World w({.ragged = seed % 2 == 1, .masked = seed % 3 == 0}, {.cta = 4, .chunk = 32});
    Rng rng(seed);
    for (const Buffer* b : w.plan_buffers()) {
      for (int64_t i = 0; i < b->numel(); ++i) {
        const int32_t value = kValues[rng.below(std::size(kValues))];
        if (rng.below(8) == 0) w.write(*b, i, Ints{value});
      }
    }
    w.stream().synchronize();
    const KernelLaunch launch = tile_launch(w.call());
    LaunchFrame frame{.launch = launch};
    Footprint spans;
    kTiledAttention.footprint(frame, &spans);
    EXPECT_EQ(kTiledAttention.body(frame), Progress::kDone);
    EXPECT_FALSE(spans.empty());
  }
}

/// The items' arrays, and what they hide as the packed mask of the whole call.
class ItemWorld : public World {
 public:
  /// places: of delimiters among the queries, request by request.
  ItemWorld(TileShape s, Cuts c, const std::vector<Ints>& places) : World(masked(std::move(s)), c) {
    for (size_t r = 0; r < places.size(); ++r) add_request(shape.requests[r], places[r]);
    std::vector<uint8_t> packed((bits_.size() + 7) / 8);
    for (size_t i = 0; i < bits_.size(); ++i)
      packed[i / 8] |= static_cast<uint8_t>(bits_[i] << i % 8);
    write(mask, 0, packed);
    prefix_lens = bind_values("prefix_lens", DType::kI32, prefixes_);
    token_pos = bind_values("token_pos", DType::kI32, rows_);
    max_item_lens = bind_values("max_item_lens", DType::kI32, longest_);
  }

  TiledAttention call() const {
    TiledAttention c = World::call();
    c.packed_mask = {}, c.mask_indptr = {};
    c.params.causal = true;
    c.items = {elements<int32_t>(prefix_lens), elements<int32_t>(token_pos),
               elements<int32_t>(max_item_lens)};
    return c;
  }
  template <class Check>
  void run(Check check) {
    const auto both = [this](Stream& s) {
      s.launch(tile_launch(call()));
      if (split()) s.launch(merge_tiles_launch(merge()));
    };
    run_launches(both, check);
  }

  Buffer prefix_lens, token_pos, max_item_lens;

 private:
  void add_request(std::pair<int32_t, int32_t> lens, const Ints& places) {
    const auto [queries, keys] = lens;
    const int32_t old = keys - queries, prefix = places.empty() ? keys : old + places[0];
    Ints row(kRow, 0);
    bits_.resize((bits_.size() + 7) / 8 * 8);
    for (int32_t at = old; at < keys; ++at) {
      const auto next = std::ranges::upper_bound(places, at - old);
      const bool before = next == places.begin();
      const int32_t own = before ? 0 : old + *std::prev(next);
      if (!before) row[static_cast<size_t>(at - prefix)] = at - own;
      for (int32_t key = 0; key < keys; ++key)
        bits_.push_back(key <= at && (before || key < prefix || key > own));
    }
    prefixes_.push_back(prefix), longest_.push_back(std::ranges::max(row));
    rows_.insert(rows_.end(), row.begin(), row.end());
  }

  static constexpr size_t kRow = 16;
  static TileShape masked(TileShape s) {
    s.masked = true;
    return s;
  }

  Ints prefixes_, longest_, rows_;
  std::vector<uint8_t> bits_;  // of the mask, a segment a request
};

const TileShape kScored = {.requests = {{13, 13}, {12, 16}, {3, 40}, {2, 3}, {5, 5}}};
const std::vector<Ints> kPlaces = {{7, 10, 12}, {3, 6}, {1}, {}, {0, 3}};

TEST(TileLaunch, ItemsHideEachOtherHoweverKeysAreCut) {
  for (const int32_t cta : {1, 4, 16}) {
    for (const int32_t chunk : {0, 1, 5, 200}) {
      for (const bool ragged : {false, true}) {
        TileShape shape = kScored;
        shape.ragged = ragged;
        ItemWorld w(shape, {.cta = cta, .chunk = chunk}, kPlaces);
        SCOPED_TRACE(std::to_string(cta) + " " + std::to_string(chunk));
        w.run([&] {
          EXPECT_EQ(w.found(), "ok");
          w.expect_whole(w.parts(), LseSink::kExcluded);
        });
      }
    }
  }
}

TEST(TileLaunch, PlacesInItemsThatEndTooEarlyAreFound) {
  for (const int32_t value : {-1000, INT32_MIN}) {
    ItemWorld w(kScored, {.cta = 16, .chunk = 0}, kPlaces);
    w.write(w.prefix_lens, 4, Ints{value});
    w.run([&] {
      const std::string found = w.found();
      EXPECT_NE(found.find("mem.out_of_bounds: token_pos["), std::string::npos) << found;
      EXPECT_TRUE(is_poison(row_of(w, w.out, 30)));
      EXPECT_FALSE(is_poison(row_of(w, w.out, 0)));
    });
  }
}

TEST(TileLaunch, NoItemLeadsItOutOfItsMemory) {
  constexpr int32_t kValues[] = {-1, 0, 1, 2, 7, 40, 1000, INT32_MAX, INT32_MIN};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    ItemWorld w(kScored, {.cta = 4, .chunk = 32}, kPlaces);
    Rng rng(seed);
    for (const Buffer* b : {&w.prefix_lens, &w.token_pos, &w.max_item_lens, &w.kv_indptr}) {
      for (int64_t i = 0; i < b->numel(); ++i) {
        const int32_t value = kValues[rng.below(std::size(kValues))];
        if (rng.below(8) == 0) w.write(*b, i, Ints{value});
      }
    }
    w.stream().synchronize();
    const KernelLaunch launch = tile_launch(w.call());
    LaunchFrame frame{.launch = launch};
    Footprint spans;
    kTiledAttention.footprint(frame, &spans);
    EXPECT_EQ(kTiledAttention.body(frame), Progress::kDone);
    EXPECT_FALSE(spans.empty());
  }
}

TEST(TileLaunch, BuiltAgainItIsTheSameByteByByte) {
  const World w({}, {});
  TiledAttention call = w.call();
  const KernelLaunch kept = tile_launch(call);
  EXPECT_EQ(kept, tile_launch(call));
  const auto differs = [&](auto change) {
    TiledAttention other = call;
    change(other);
    EXPECT_NE(kept, tile_launch(other));
  };
  differs([](TiledAttention& c) { c.plan.cta_tile_q = 8; });
  differs([](TiledAttention& c) { c.lse.base = LseBase::kLog2; });
  differs([](TiledAttention& c) { c.plan.split_kv = false, c.plan.block_valid_mask = {}; });
}

}  // namespace
}  // namespace shadowgraph::tile_launch_test
