// Launches of the indexer: the bits of the calls, eager and replayed, on what memory holds then;
// and what a shadow sees of slots, pages and keys that are not there.
#include "launch/index_launch.h"

#include <algorithm>

#include "launch/launch_world.h"

namespace shadowgraph::index_launch_test {
namespace {

using Slots = std::vector<int64_t>;

/// Three tokens of two requests over five pages, of which page 0 is padding: requests of 65 and 3
/// keys.
class World : public LaunchWorld {
 public:
  static constexpr int64_t kPages = 5, kHeads = 2, kWidth = 80, kTopk = 4;

  World() {
    k = bind("index_k", DType::kE4M3, {3, kIndexDim}, kIndexDim);
    k_scale = bind("index_k_scale", DType::kF32, {3});
    slots = bind_values("out_cache_loc", DType::kI64, Slots{128, 0, 65});
    pages = bind("index_k_with_scale", DType::kU8, {kPages, kIndexPageBytes});
    q = bind("q", DType::kE4M3, {3, kHeads, kIndexDim}, kIndexDim);
    weights = bind("weights", DType::kF32, {3, kHeads});
    table = bind_values("page_table", DType::kI32, Ints{2, 3, 1, -1});
    table_1 = bind("page_table_1", DType::kI32, {2, kWidth});
    rows = bind_values("rows", DType::kI32, Ints{0, 0, 1});
    ke = bind_values("ke", DType::kI32, Ints{64, 65, 3});
    logits = bind("logits", DType::kF32, {3, kWidth}, kWidth);
    indices = bind("topk_indices", DType::kI32, {3, kTopk}, kTopk);
    out = bind("page_indices", DType::kI32, {3, kTopk}, kTopk);
    randomise_bytes(k), randomise_bytes(q), randomise(k_scale), randomise(weights);
    Ints ids;
    for (int32_t i = 0; i < 2 * kWidth; ++i) ids.push_back(1000 + i);
    write(table_1, 0, ids);
  }
  void fill_pages() { randomise_bytes(pages); }
  /// 0x12 .. 0x51: e4m3 that are numbers, floats of a usual size.
  void randomise_bytes(const Buffer& b) {
    Bytes values(b.bytes());
    for (std::byte& v : values) v = static_cast<std::byte>(0x12 + rng_.below(0x40));
    write_bytes(b, values);
  }
  static ConstTensorView matrix(const Buffer& b, int64_t n) {
    return {b.data, DType::kI32, {n, b.numel() / n}};
  }

  StoreIndexKeys store() const {
    StoreIndexKeys c;
    c.k = k.view(), c.k_scale = k_scale.view();
    c.out_cache_loc = elements<int64_t>(slots);
    c.pages = pages.view();
    return c;
  }
  IndexerLogits score() const {
    IndexerLogits c;
    c.q = q.view(), c.weights = weights.view();
    c.pages = pages.view(), c.page_table = matrix(table, 2);
    c.rows = elements<int32_t>(rows), c.ke = elements<int32_t>(ke);
    c.logits = logits.view();
    return c;
  }
  ChooseIndices choose() const {
    ChooseIndices c;
    c.select.logits = logits.view(), c.select.ke = elements<int32_t>(ke);
    c.select.indices = indices.view();
    c.transform.indices = c.select.indices;
    c.transform.page_table_1 = table_1.view(), c.transform.rows = elements<int32_t>(rows);
    c.transform.out = out.view();
    return c;
  }

  Buffer k, k_scale, slots, pages, q, weights, table, table_1, rows, ke, logits, indices, out;
};

TEST(IndexLaunch, KeysAreStoredAndThoseOfPageZeroDropped) {
  World w;
  const Bytes right = w.expected(w.pages, [&] {
    StoreIndexKeys call = w.store();
    call.first_slot = kIndexPageTokens;
    return store_index_keys(call);
  });
  w.run_both(
      store_index_keys_launch(w.store()), [&] { w.clear(w.pages); },
      [&] {
        EXPECT_EQ(w.bytes(w.pages), right);
        EXPECT_EQ(w.found(), "ok");
      });
}

TEST(IndexLaunch, SlotsAreReadWhenItRunsAndOneBeyondThePoolIsFound) {
  World w;
  GraphExec exec = w.record(store_index_keys_launch(w.store()));
  w.write(w.slots, 0, Slots{200, 64, 63});
  const Bytes right = w.expected(w.pages, [&] {
    StoreIndexKeys call = w.store();
    call.first_slot = kIndexPageTokens;
    return store_index_keys(call);
  });
  w.clear(w.pages);
  exec.replay(w.stream());
  EXPECT_EQ(w.bytes(w.pages), right);
  EXPECT_EQ(w.found(), "ok");
  for (const int64_t slot : {World::kPages * 64, int64_t{1} << 40}) {
    w.write(w.slots, 1, Slots{slot});
    w.clear(w.pages);
    exec.replay(w.stream());
    EXPECT_EQ(w.bytes(w.pages), Bytes(w.pages.bytes(), std::byte{0x55}));
    const std::string found = w.found();
    EXPECT_NE(found.find("mem."), std::string::npos) << found;
    EXPECT_NE(found.find("index_k_with_scale"), std::string::npos) << found;
  }
}

TEST(IndexLaunch, ScoresAreTheBitsOfTheCall) {
  World w;
  w.fill_pages();
  const Bytes right = w.expected(w.logits, [&] { return indexer_logits(w.score()); });
  EXPECT_FALSE(is_poison(right));
  w.run_both(
      indexer_logits_launch(w.score()), [&] { w.clear(w.logits); },
      [&] {
        EXPECT_EQ(w.bytes(w.logits), right);
        EXPECT_EQ(w.found(), "ok");
      });
}

TEST(IndexLaunch, APageThatIsNotThereIsFoundAndScoresArePoison) {
  World w;
  w.fill_pages();
  GraphExec exec = w.record(indexer_logits_launch(w.score()));
  w.write(w.table, 1, Ints{World::kPages});  // of the 65th key
  exec.replay(w.stream());
  EXPECT_TRUE(is_poison(w.bytes(w.logits)));
  const std::string found = w.found();
  EXPECT_NE(found.find("index_k_with_scale"), std::string::npos) << found;
  w.write(w.ke, 1, Ints{64});  // which nobody has now
  const Bytes right = w.expected(w.logits, [&] { return indexer_logits(w.score()); });
  w.clear(w.logits);
  exec.replay(w.stream());
  EXPECT_EQ(w.bytes(w.logits), right);
  EXPECT_EQ(w.found(), "ok");
}

/// A length that goes beyond what was stored.
TEST(IndexLaunch, AKeyThatWasNeverStoredIsFound) {
  World w;
  w.write(w.table, 0, Ints{2, 2, 1, 1});
  w.write(w.ke, 0, Ints{1, 1, 2});
  w.stream().launch(store_index_keys_launch(w.store()));  // the first key of page 2, a second of 1
  w.stream().launch(indexer_logits_launch(w.score()));
  const std::string found = w.found();
  EXPECT_NE(found.find("mem.uninit_read"), std::string::npos) << found;
  EXPECT_NE(found.find("index_k_with_scale"), std::string::npos) << found;
  w.write(w.ke, 2, Ints{0});
  w.stream().launch(indexer_logits_launch(w.score()));
  EXPECT_EQ(w.found(), "ok");
}

TEST(IndexLaunch, PackedKeysAreTheBitsOfTheCall) {
  World w;
  w.fill_pages();
  const Buffer offsets = w.bind_values("cu_seqlens_k", DType::kI32, Ints{0, 65, 68});
  const Buffer k = w.bind("packed_k", DType::kE4M3, {70, kIndexDim}, kIndexDim);
  const Buffer scale = w.bind("packed_k_scale", DType::kF32, {70});
  GatherIndexKeys call;
  call.pages = w.pages.view(), call.page_table = World::matrix(w.table, 2);
  call.cu_seqlens_k = World::elements<int32_t>(offsets);
  call.k = k.view(), call.k_scale = scale.view();
  w.clear(scale);
  const Bytes right = w.expected(k, [&] { return gather_index_keys(call); });
  const Bytes right_scale = w.bytes(scale);
  w.run_both(
      gather_index_keys_launch(call), [&] { w.clear(k), w.clear(scale); },
      [&] {
        EXPECT_EQ(w.bytes(k), right);
        EXPECT_EQ(w.bytes(scale), right_scale);
        EXPECT_EQ(w.found(), "ok");
      });
  GraphExec exec = w.record(gather_index_keys_launch(call));
  w.write(w.table, 1, Ints{World::kPages});
  exec.replay(w.stream());
  EXPECT_TRUE(is_poison(w.bytes(k)));
  EXPECT_NE(w.found().find("index_k_with_scale"), std::string::npos);
}

TEST(IndexLaunch, AChoiceIsTheBitsOfBothCalls) {
  World w;
  w.randomise(w.logits);
  const ChooseIndices call = w.choose();
  const auto run = [&] {
    Status status = select_indices(call.select);
    status.add(transform_indices(call.transform));
    return status;
  };
  const Bytes right = w.expected(w.out, run), chosen = w.bytes(w.indices);
  w.run_both(
      choose_indices_launch(call), [&] { w.clear(w.indices), w.clear(w.out); },
      [&] {
        EXPECT_EQ(w.bytes(w.indices), chosen);
        EXPECT_EQ(w.bytes(w.out), right);
        EXPECT_EQ(w.found(), "ok");
      });
  // By an offset: among packed keys.
  ChooseIndices packed = call;
  packed.transform.page_table_1 = {}, packed.transform.rows = {};
  packed.transform.offsets = World::elements<int32_t>(w.ke);
  const Bytes other = w.expected(w.out, [&] {
    Status status = select_indices(packed.select);
    status.add(transform_indices(packed.transform));
    return status;
  });
  EXPECT_NE(other, right);
  w.run_both(
      choose_indices_launch(packed), [&] { w.clear(w.out); },
      [&] {
        EXPECT_EQ(w.bytes(w.out), other);
        EXPECT_EQ(w.found(), "ok");
      });
}

TEST(IndexLaunch, ALengthBeyondTheScoresChoosesNothing) {
  World w;
  w.randomise(w.logits);
  w.write(w.ke, 0, Ints{static_cast<int32_t>(World::kWidth) + 1});
  w.stream().launch(choose_indices_launch(w.choose()));
  EXPECT_TRUE(is_poison(w.bytes(w.indices)));
  EXPECT_TRUE(is_poison(w.bytes(w.out)));
}

/// The choice itself is made, from all of its scores.
TEST(IndexLaunch, AChoiceThatCannotBeTransformedHasReadItsScores) {
  World w;
  w.randomise(w.logits);
  ChooseIndices call = w.choose();
  call.transform.offsets = World::elements<int32_t>(w.ke);  // beside the table
  Footprint spans;
  const KernelLaunch launch = choose_indices_launch(call);
  w.stream().synchronize();
  kChooseIndices.footprint(LaunchFrame{launch}, &spans);
  const auto reads = [&](const void* data) {
    return std::ranges::any_of(spans, [&](const AccessSpan& s) { return s.buffer == data; });
  };
  EXPECT_TRUE(reads(w.logits.data));
  EXPECT_FALSE(reads(w.table_1.data));
  w.stream().launch(launch);
  w.stream().synchronize();
  EXPECT_FALSE(is_poison(w.bytes(w.indices)));
  EXPECT_TRUE(is_poison(w.bytes(w.out)));
}

/// Entries of the table that a choice reads have to be there: those of what is chosen alone.
TEST(IndexLaunch, TheTableIsReadAtWhatIsChosen) {
  World w;
  std::vector<float> scores(3 * World::kWidth, 0);
  for (const size_t s : {5U, 6U, 7U, 8U}) scores[s] = scores[World::kWidth + s] = 1;
  w.write(w.logits, 0, scores);
  ChooseIndices call = w.choose();
  Footprint spans;
  const KernelLaunch launch = choose_indices_launch(call, {.a_request = 1, .first = 7});
  w.stream().synchronize();
  kChooseIndices.footprint(LaunchFrame{launch}, &spans);
  std::vector<int64_t> read;
  for (const AccessSpan& span : spans)
    for (int64_t i = 0; span.buffer == w.table_1.data && i < span.count; ++i)
      read.push_back(span.row * 1000 + span.first + i);
  EXPECT_EQ(read, (std::vector<int64_t>{7005, 7006, 7007, 7008, 8005, 8006, 8007, 8008, 9080, 9081,
                                        9082}));
}

}  // namespace
}  // namespace shadowgraph::index_launch_test
