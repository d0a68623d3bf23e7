// What frameworks do with the metadata of attention, G151 and G158 (docs/references.md): a draft
// extend whose lengths are the prefix's, and two runners that share one array of lengths. The graph
// is that of FlashAttention's twin. Every query is 0, so that the result of a query is the mean of
// the values that it sees; token n of a request has the value n + 1.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "patterns_fixture.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph::patterns_metadata_test {
namespace {

using Longs = std::vector<int64_t>;

constexpr int32_t kPage = 4, kDrafts = 4, kDim = 4, kPages = 8;
constexpr int64_t kRows = 2;
// Tokens that the two requests have stored before: the first one's pages are 1, 3, 5, the second
// one's 2, 4, 6.
const Ints kPrefix = {6, 4};

int32_t slot_of(int64_t request, int32_t token) {
  return (1 + 2 * (token / kPage) + static_cast<int32_t>(request)) * kPage + token % kPage;
}

ModelConfig draft_model() {
  ModelConfig m;
  m.max_context_len = 12;
  m.page_size = kPage;
  m.num_steps = kDrafts - 1, m.num_draft_tokens = kDrafts;
  LayerKind layer;
  layer.params = {.num_qo_heads = 1,
                  .num_kv_heads = 1,
                  .head_dim_qk = kDim,
                  .head_dim_vo = kDim,
                  .sm_scale = 0.5f,
                  .causal = true};
  m.layers = {layer};
  return m;
}

/// A runner of draft extends: a graph that was captured on padding.
class DraftRunner {
 public:
  explicit DraftRunner(Rig& r) : rig(r) {
    const Limits limits =
        Limits::bucket(ForwardMode::kDraftExtendV2, kRows, kDrafts, draft_model());
    const Status bound = backend.bind(rig.arena.scope("meta"), limits, &meta);
    EXPECT_TRUE(bound.ok()) << bound.to_string();
    q = tensor("q", {kRows * kDrafts, 1, kDim}, [](int64_t) { return 0.0f; });
    k = tensor("k", {kRows * kDrafts, 1, kDim}, [](int64_t) { return 0.0f; });
    v = tensor("v", {kRows * kDrafts, 1, kDim}, [](int64_t i) { return value(i / kDrafts, i); });
    k_cache = tensor("k_cache", {kPages, kPage, 1, kDim}, [](int64_t) { return 0.0f; });
    v_cache = tensor("v_cache", {kPages, kPage, 1, kDim}, stored);
    out = tensor("out", {kRows * kDrafts, 1, kDim}, [](int64_t) { return -1.0f; });
    for (int64_t i = 0; i < kRows; ++i) {
      for (int32_t c = 0; c < kColumns; ++c)
        table[static_cast<size_t>((i + 1) * kColumns + c)] = slot_of(i, c);
      for (int32_t t = 0; t < kDrafts; ++t)
        loc.push_back(slot_of(i, kPrefix[static_cast<size_t>(i)] + t));
    }
  }
  DraftRunner(const DraftRunner&) = delete;
  DraftRunner& operator=(const DraftRunner&) = delete;

  ForwardBatch batch(const Ints& lens) const {
    ForwardBatch b;
    b.mode = ForwardMode::kDraftExtendV2;
    b.seq_lens_kind = SeqLensKind::kFull;
    b.req_pool_indices = pool_rows;
    b.seq_lens = lens, b.extend_lens = news;
    b.out_cache_loc = loc;
    b.req_to_token = {table, kColumns};
    b.spec.num_steps = kDrafts - 1, b.spec.num_draft_tokens = kDrafts;
    return b;
  }
  Status fill(const ForwardBatch& b) {
    Status status = backend.fill(b, meta);
    if (status.ok()) status = rig.arena.upload(rig.stream.handle());
    return status;
  }
  void capture() {
    const Status filled = fill(batch({10, 8}).slice(0, 0));
    EXPECT_TRUE(filled.ok()) << filled.to_string();
    LayerIo layer;
    layer.q = q.view(), layer.k = k.view(), layer.v = v.view(), layer.out = out.view();
    layer.cache = KvCache::nhd(k_cache.view(), v_cache.view());
    const std::vector<LayerIo> layers = {layer};
    StepIo step;
    step.layers = layers;
    graph = rig.record([&](Stream& s) { backend.forward(s, meta, step); });
  }
  /// The first element of each query's result.
  std::vector<float> replay(const ForwardBatch& b) {
    rig.device.begin_step();
    const Status filled = fill(b);
    EXPECT_TRUE(filled.ok()) << filled.to_string();
    graph.exec.replay(rig.stream);
    rig.stream.synchronize();
    std::vector<float> all(static_cast<size_t>(out.numel())), first;
    rig.stream.copy(all.data(), out.data, out.bytes());
    rig.stream.synchronize();
    for (size_t i = 0; i < all.size(); i += kDim) first.push_back(all[i]);
    return first;
  }
  /// The same without a backend: query t sees the prefix, t tokens before it, and itself, and the
  /// mean of 1 to n is (n + 1) / 2.
  static std::vector<float> reference() {
    std::vector<float> means;
    for (const int32_t prefix : kPrefix)
      for (int32_t t = 0; t < kDrafts; ++t) means.push_back(static_cast<float>(prefix + t + 2) / 2);
    return means;
  }

  static constexpr int64_t kColumns = 12;
  const Backend& backend = *find_backend("flashattention");
  Rig& rig;
  Meta meta;
  PooledGraph graph;

 private:
  /// The value of new token i of the step.
  static float value(int64_t request, int64_t i) {
    return static_cast<float>(kPrefix[static_cast<size_t>(request)] + i % kDrafts + 1);
  }
  /// The value in a slot: a token of a prefix has its own, others what must not be read.
  static float stored(int64_t slot) {
    for (int64_t i = 0; i < kRows; ++i)
      for (int32_t t = 0; t < kPrefix[static_cast<size_t>(i)]; ++t)
        if (slot == slot_of(i, t)) return static_cast<float>(t + 1);
    return 1000;
  }
  /// of(row) in each element of a row.
  template <class Of>
  Buffer tensor(const char* name, std::vector<int64_t> shape, Of of) {
    const BufferSpec spec{.name = name, .dtype = DType::kF32, .shape = std::move(shape)};
    std::vector<Buffer> b;
    EXPECT_TRUE(rig.arena.bind({&spec, 1}, &b).ok());
    std::vector<float> values(static_cast<size_t>(b.at(0).numel()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = of(static_cast<int64_t>(i) / kDim);
    EXPECT_TRUE(rig.arena.write(b[0], 0, std::span<const float>(values)).ok());
    return b[0];
  }

  Buffer q, k, v, k_cache, v_cache, out;
  Ints table = Ints((kRows + 1) * kColumns, 0), pool_rows = {1, 2}, news = {kDrafts, kDrafts};
  Longs loc;
};

TEST(Patterns, G151_LengthsOfThePrefixAloneAreSeenByAReferenceOnly) {
  on_every_schedule([](Rig& rig) {
    DraftRunner runner(rig);
    runner.capture();
    const Ints all = {10, 8};
    EXPECT_EQ(runner.replay(runner.batch(all)), DraftRunner::reference());
    EXPECT_EQ(rig.found(), "");

    const std::vector<float> wrong = runner.replay(runner.batch(kPrefix));  // the fault
    EXPECT_EQ(rig.found(), "");
    const std::vector<float> right = DraftRunner::reference();
    ASSERT_EQ(wrong.size(), right.size());
    for (size_t i = 0; i < wrong.size(); ++i) EXPECT_NE(wrong[i], right[i]) << i;

    EXPECT_EQ(runner.replay(runner.batch(all)), right);
    EXPECT_EQ(rig.found(), "");
  });
}

TEST(Patterns, G158_ARefillOfSharedLengthsIsRefusedByTheOtherRunner) {
  on_every_schedule([](Rig& rig) {
    DraftRunner runner(rig);
    runner.capture();
    Ints shared = {10, 8};  // of this runner, and of another one
    const ForwardBatch batch = runner.batch(shared);
    EXPECT_EQ(runner.replay(batch), DraftRunner::reference());

    std::ranges::fill(shared, 0);  // the fault: the other one's padding
    const Status refused = runner.fill(batch);
    ASSERT_FALSE(refused.ok());
    for (const Finding& f : refused.findings()) EXPECT_EQ(f.id, "len.extent") << f.where.field;
    EXPECT_EQ(std::as_const(refused).findings()[0].where.field, "seq_lens");
    EXPECT_EQ(std::as_const(refused).findings()[0].expected, ">= 4 new tokens");

    const Ints own = {10, 8};
    EXPECT_EQ(runner.replay(runner.batch(own)), DraftRunner::reference());
    EXPECT_EQ(rig.found(), "");
  });
}

}  // namespace
}  // namespace shadowgraph::patterns_metadata_test
