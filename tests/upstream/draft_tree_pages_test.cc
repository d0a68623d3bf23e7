// sglang#27360: the table of a draft's branches has a column for each token so far and one more,
// and FlashAttention's graphs scattered the pages of all steps into it. EAGLE3 speculates with topk
// 8 on pages of 2 tokens; with 8 steps the first three overflow.
#include "backends/paged/flash_attention.h"
#include "shadowgraph/device/graph.h"
#include "upstream/stories.h"

namespace shadowgraph::draft_tree_pages_test {
namespace {

using enum ForwardMode;
using Fa = FlashAttention;

const DraftShape kEagle3{8, 8, 9};
constexpr int32_t kPageSize = 2;

ModelConfig model(DraftShape draft = kEagle3, int32_t page_size = kPageSize) {
  return with_context(model_of(page_size, {small_layer(), small_layer(2)}, draft), 32);
}
StepShape draft_of(Ints prefix, int32_t step) {
  return {.mode = kDraftDecode, .prefix_lens = std::move(prefix), .draft_step = step};
}
Step made(DraftShape draft, Ints prefix, int32_t step, int32_t page_size = kPageSize) {
  StepShape shape = draft_of(std::move(prefix), step);
  shape.page_size = page_size, shape.draft = draft;
  return make_step(shape, width_of(model(draft, page_size)));
}

/// The engine's width, and the pages that all steps of a branch lie on.
int32_t columns_at(int32_t step) { return step + 2; }
int32_t pages_of_a_branch(int32_t prefix, int32_t steps, int32_t page_size) {
  return (prefix % page_size + steps + page_size - 1) / page_size;
}
Ints overflowing(int32_t prefix, int32_t steps, int32_t page_size) {
  Ints found;
  for (int32_t step = 0; step < steps - 1; ++step)
    if (pages_of_a_branch(prefix, steps, page_size) > columns_at(step)) found.push_back(step);
  return found;
}

TEST(UpstreamDraftTree, OnlyTheFirstStepsOfSmallPagesOverflow) {
  EXPECT_EQ(overflowing(7, 8, 2), (Ints{0, 1, 2}));  // five pages
  EXPECT_EQ(overflowing(7, 5, 2), (Ints{0}));
  EXPECT_EQ(overflowing(7, 4, 2), (Ints{0}));
  for (const int32_t page_size : {8, 16}) EXPECT_EQ(overflowing(7, 8, page_size), Ints{});
}

/// draft_decode_set_expand_metadata: row by row the pages of `tokens` slots, each once.
struct Scatter {
  const int64_t* cache_loc;
  int32_t* page_table;
  int32_t rows, columns, steps, tokens;

  static Scatter of(const LaunchFrame& f) {
    return {f.pointer<const int64_t>(0), f.pointer<int32_t>(1), f.scalar<int32_t>(2),
            f.scalar<int32_t>(3),        f.scalar<int32_t>(4),  f.scalar<int32_t>(5)};
  }
  /// fn(element of the table, page).
  template <class Fn>
  void each(Fn fn) const {
    for (int32_t r = 0; r < rows; ++r) {
      int64_t column = 0, last = -1;
      for (int32_t j = 0; j < tokens; ++j) {
        const int64_t page = cache_loc[r * steps + j] / kPageSize;
        column += j > 0 && page != last;
        last = page;
        fn(r * columns + column, static_cast<int32_t>(page));
      }
    }
  }
};
Progress scatter(LaunchFrame& f) {
  const Scatter s = Scatter::of(f);
  s.each([&](int64_t element, int32_t page) {
    if (element < int64_t{s.rows} * s.columns) s.page_table[element] = page;
  });
  return Progress::kDone;
}
void scatter_footprint(const LaunchFrame& f, Footprint* spans) {
  const Scatter s = Scatter::of(f);
  const int64_t slots = int64_t{s.rows} * s.steps;
  spans->push_back({s.cache_loc, 0, slots, sizeof(int64_t), Access::kRead});
  s.each([&](int64_t element, int32_t) {
    spans->push_back({f.pointer<void>(1), element, 1, sizeof(int32_t), Access::kWrite});
  });
}
const Kernel kScatter{
    .name = "set_expand_metadata", .body = scatter, .footprint = scatter_footprint};

/// A graph's table of one step, as the scatter leaves it, and what the device finds.
struct Scattered {
  Status found;
  Ints table;

  Scattered(const Step& step, int32_t topk, int32_t steps, int32_t tokens) {
    SimDevice device;
    Stream stream(device);
    Arena arena(device, size_t{1} << 20);
    const auto rows = static_cast<int32_t>(step.seq_lens.size()) * topk;
    const int32_t columns = columns_at(step.draft_step);
    const BufferSpec specs[] = {
        {"cache_loc", DType::kI64, {rows, steps}, Lifetime::kPerStep},
        {"expand_page_table", DType::kI32, {rows, columns}, Lifetime::kPersistent}};
    std::vector<Buffer> b;
    found.add(arena.bind(specs, &b));
    found.add(arena.write<int64_t>(b[0], 0, step.out_cache_loc));
    found.add(arena.write<int32_t>(b[1], 0, Ints(static_cast<size_t>(rows * columns), -1)));
    found.add(arena.upload(stream.handle()));
    KernelLaunch launch;
    launch.kernel = &kScatter;
    launch.args.pointer(b[0].data).pointer(b[1].data);
    launch.args.scalar(rows).scalar(columns).scalar(steps).scalar(tokens);
    stream.launch(launch);
    stream.synchronize();
    found.add(device.take_findings());
    const auto* p = reinterpret_cast<const int32_t*>(b[1].data);
    table.assign(p, p + rows * columns);
  }
};

TEST(UpstreamDraftTree, TheWorkedExampleOverflowsIntoTheNextRowAndBehindTheLast) {
  // Prefix 7, two branches of five steps: pages 13 14 14 15 15 and 16 17 17 18 18.
  Step step = made({2, 5, 6}, {7}, 0);
  step.out_cache_loc = {27, 28, 29, 30, 31, 33, 34, 35, 36, 37};
  const Scattered before(step, 2, 5, 5);
  // The third page of row 0 lay where row 1 begins; that of row 1 lies behind the table.
  EXPECT_EQ(before.table, (Ints{13, 14, 16, 17}));
  const Finding out = first_of(before.found, "mem.red_zone");
  EXPECT_NE(out.to_string().find("expand_page_table"), std::string::npos) << out.to_string();
  const Scattered after(step, 2, 5, 1);
  EXPECT_EQ(after.table, (Ints{13, -1, 16, -1}));
  EXPECT_EQ(after.found.to_string(), "ok");
}

TEST(UpstreamDraftTree, TheWidthAssertionIsAWriteOutOfBounds) {
  // topk 8, pages of 2, 8 steps. What the report asserts of widths, a device sees of memory.
  for (int32_t step = 0; step < kEagle3.num_steps - 1; ++step) {
    const Step s = made(kEagle3, {7, 9}, step);
    const Laws found = laws(Scattered(s, 8, 8, 8).found);
    EXPECT_EQ(found, step < 3 ? Laws{"mem.red_zone"} : Laws{}) << step;
    EXPECT_EQ(Scattered(s, 8, 8, step + 1).found.to_string(), "ok") << step;
  }
}

TEST(UpstreamDraftTree, AfterEveryStepOfTopk8OnPagesOf2IsClean) {
  Story story("flashattention", model(), 2, {1, 2});
  for (int32_t step = 0; step < kEagle3.num_steps - 1; ++step)
    EXPECT_EQ(story.step(draft_of({7, 9}, step)).to_string(), "ok") << step;
  EXPECT_EQ(story.runner.counts().replays, 7);
}

TEST(UpstreamDraftTree, AfterAWholeDraftOfTopk8OnPagesOf2IsClean) {
  Story story("flashattention_multi_step", model(), 2, {1, 2});
  for (const Ints& prefix : {Ints{7, 9}, {8}, {1, 0}})
    EXPECT_EQ(story.step(draft_of(prefix, 0)).to_string(), "ok");
  EXPECT_EQ(story.runner.counts().replays, 3);
}

TEST(UpstreamDraftTree, BeforeTheUnslicedScatterIsFoundInTheTwinsTables) {
  for (int32_t step = 0; step < kEagle3.num_steps - 1; ++step) {
    Story story("flashattention", model(), 2, {2}, fault("K04"));
    const Status status = story.step(draft_of({7, 9}, step));
    EXPECT_EQ(status.ok(), story.tap->acted() == 0) << step;
    if (step < 3) {
      EXPECT_FALSE(status.ok()) << step;
    }
    // The graph's table alone is too narrow: no law of inputs, and nothing eagerly.
    for (const Finding& f : status.findings()) {
      EXPECT_EQ(f.where.phase, "replay") << f.to_string();
      EXPECT_NE(f.id, "input.shape");
    }
  }
}

TEST(UpstreamDraftTree, BeforeARowSpillsIntoTheNextAndTheLastBehindTheTable) {
  for (const char* backend : {"flashattention", "flashattention_multi_step"}) {
    Story story(backend, model(), 2, {2}, fault("K04"));
    const Status status = story.step(draft_of({7, 9}, 0));
    const auto found = std::as_const(status).findings();
    const auto of_group = [&](std::string_view group) {
      return std::ranges::any_of(found, [&](const Finding& f) { return f.id.starts_with(group); });
    };
    EXPECT_TRUE(of_group("table.")) << status.to_string();
    EXPECT_TRUE(of_group("mem.red_zone")) << status.to_string();
  }
}

TEST(UpstreamDraftTree, ChainsAndPagesOfOneTokenNeverOverflow) {
  for (const auto& [draft, page_size] :
       {std::pair{DraftShape{1, 8, 9}, 2}, {DraftShape{8, 8, 9}, 1}}) {
    Story story("flashattention", model(draft, page_size), 2, {2}, fault("K04"));
    EXPECT_EQ(story.step(draft_of({7, 9}, 0)).to_string(), "ok");
    EXPECT_EQ(story.tap->acted(), 0);
  }
}

TEST(UpstreamDraftTree, ATableHasAColumnForEachPageUpToTheStep) {
  for (int32_t step = 0; step < kEagle3.num_steps - 1; ++step) {
    SimDevice device;
    const Arena arena(device, size_t{1} << 22);
    Meta meta;
    const Limits limits = Limits::bucket(kDraftDecode, 2, 1, model(), step);
    ASSERT_TRUE(find_backend("flashattention")->bind(arena, limits, &meta).ok());
    const int64_t columns = meta[Fa::kDraftTable].shape[1];
    EXPECT_EQ(columns, pages_of_a_branch(7, step + 1, kPageSize));
    EXPECT_LE(columns, columns_at(step));
  }
}

}  // namespace
}  // namespace shadowgraph::draft_tree_pages_test
