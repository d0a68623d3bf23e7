// What forward launches: stores, then for every query the attention over the slots it sees; run at
// once and as a replay, without a finding.
#include <algorithm>
#include <cstring>
#include <tuple>

#include "backends/forward_world.h"

namespace shadowgraph::flash_attention_forward_test {
namespace {

using enum ForwardMode;
using enum SeqLensKind;

/// mode, page size, tables gathered in the graph
class WholeForward : public ::testing::TestWithParam<std::tuple<ForwardMode, int32_t, bool>> {};

TEST_P(WholeForward, AttendsToTheSlotsOfEachQuery) {
  const auto& [mode, page_size, in_graph] = GetParam();
  ModelConfig m = model(page_size);
  m.in_graph_tables = in_graph;
  World w(Limits::bucket(mode, 3, mode == kDecode ? 1 : 4, m));
  OwnedBatch b(mode, kPrefix, {9, 3}, mode == kDecode ? Ints{} : Ints{2, 4});
  b.spec.num_draft_tokens = 4;
  if (mode == kTargetVerify) b.news = {4, 4}, b.extend_lens = b.news;
  b.set_pages(page_size, 16);
  b.set_swa(kPages - 1, page_size);
  w.run(b);
  int64_t query = 0;
  for (int64_t i = 0; i < b.size(); ++i) {
    const RequestExtent e = b.extent(i);
    for (int32_t p = e.prefix_len; p < e.kv_len; ++p, ++query) {
      const Ints all = tokens(b, i, 0, p + 1), swa = translated(b, all);
      ASSERT_EQ(w.got(0, query), w.expected(0, query, all)) << query;
      ASSERT_EQ(w.got(1, query), w.expected(1, query, swa)) << query;
      ASSERT_EQ(w.got(2, query),
                w.expected(2, query, translated(b, tokens(b, i, p / kChunk * kChunk, p + 1))));
      // The step's keys are where they were read.
      const auto& full = w.layer(0);
      ASSERT_EQ(std::memcmp(World::row(full.k, 0) + all.back() * kDim,
                            World::row(full.new_k, query), kDim * sizeof(float)),
                0);
      const auto& window = w.layer(1);
      ASSERT_EQ(std::memcmp(World::row(window.v, 0) + swa.back() * kDim,
                            World::row(window.new_v, query), kDim * sizeof(float)),
                0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(FlashAttention, WholeForward,
                         ::testing::Combine(::testing::Values(kDecode, kExtend, kTargetVerify,
                                                              kDraftExtendV2),
                                            ::testing::Values(1, 2, 4), ::testing::Bool()));

TEST(CrossForward, TextAndEncoderAreApart) {
  for (const bool in_graph : {false, true}) {
    ModelConfig m = model(4);
    m.swa_pool = false, m.max_encoder_len = 6, m.in_graph_tables = in_graph;
    m.layers = {kind(), kind()};
    m.layers[1].cross = true;
    World w(Limits::bucket(kDecode, 3, 1, m));
    OwnedBatch b(kDecode, kFull, {2, 3});
    b.set_pages(4, 16);
    b.set_encoders({3, 5});
    b.set_swa(kPages - 1, 4);  // unused
    w.run(b);
    for (int64_t i = 0; i < 2; ++i) {
      const int32_t e = b.encoder_lens[static_cast<size_t>(i)];
      const int32_t end = e + b.seq_lens[static_cast<size_t>(i)];
      ASSERT_EQ(w.got(0, i), w.expected(0, i, tokens(b, i, e, end)));
      ASSERT_EQ(w.got(1, i), w.expected(1, i, tokens(b, i, 0, e)));
    }
  }
}

TEST(LatentForward, ATokensRowIsItsKeyAndItsValue) {
  constexpr int32_t kLatent = kDim + 8;
  for (const ForwardMode mode : {kDecode, kTargetVerify}) {
    ModelConfig m = model(4);
    m.swa_pool = false, m.layers = {kind()};
    m.layers[0].params.head_dim_qk = kLatent;
    const int32_t width = mode == kDecode ? 1 : 3;
    World w(Limits::bucket(mode, 3, width, m), true);
    OwnedBatch b(mode, kPrefix, {9, 2});
    b.spec.num_draft_tokens = width;
    b.set_pages(4, 16);
    w.run(b);
    for (int32_t query = 0; query < 2 * width; ++query) {
      const int64_t i = query / width;
      const int32_t p = b.lens[static_cast<size_t>(i)] + query % width;
      const Ints slots = tokens(b, i, 0, p + 1);
      ASSERT_EQ(w.got(0, query), w.expected(0, query, slots));
      ASSERT_EQ(std::memcmp(World::row(w.layer(0).k, 0) + slots.back() * kLatent,
                            World::row(w.layer(0).new_k, query), kLatent * sizeof(float)),
                0);
    }
  }
}

/// fa.I-79. Page size, and whether there are sinks. In the layer of all keys a picked key outweighs
/// the others so much that the result is its value, bit for bit, whichever half it is in; with a
/// sink as heavy, half of it. The window's layer is one call, and has its bits.
class TreeForward : public ::testing::TestWithParam<std::tuple<int32_t, bool>> {
 protected:
  static ModelConfig tree_model() {
    ModelConfig m = model(std::get<0>(GetParam()));
    m.topk = 2, m.num_steps = 3, m.num_draft_tokens = 4, m.attention_chunk = 0;
    m.layers.pop_back();
    return m;
  }
  /// seen: of each query, the slots it sees, its own last.
  static void check(const Limits& limits, const OwnedBatch& b, const std::vector<Ints>& seen) {
    for (size_t pick = 0; pick < 8; ++pick) {
      World w(limits);
      const std::vector<float> sinks(kHeads, kHeavy);
      const Buffer on_device = w.bind_values("sinks", sinks);
      if (std::get<1>(GetParam()))
        w.meta.limits.model.layers[0].params.sinks = {
            reinterpret_cast<const float*>(on_device.data), kHeads};
      write_keys(&w, seen, pick);
      w.run(b);
      for (size_t query = 0; query < seen.size(); ++query) {
        const float value = static_cast<float>(picked(seen[query], pick));
        const std::vector<float> want(kHeads * kDim, std::get<1>(GetParam()) ? value / 2 : value);
        const auto at = static_cast<int64_t>(query);
        ASSERT_EQ(w.got(0, at), want) << query << " " << pick;
        ASSERT_EQ(w.got(1, at), w.expected(1, at, translated(b, seen[query]))) << query;
      }
    }
  }

 private:
  static constexpr float kHeavy = 512;

  static int32_t picked(const Ints& seen, size_t pick) { return seen[pick % seen.size()]; }
  /// A key of its own for every slot that a request sees; its value is the slot. The queries' own
  /// are not there yet, but in what the step stores.
  static void write_keys(World* w, const std::vector<Ints>& seen, size_t pick) {
    const World::Tensors& t = w->layer(0);
    Ints slots;
    std::vector<float> q(static_cast<size_t>(t.q.numel())), k(static_cast<size_t>(t.k.numel())),
        v(k.size(), -1), new_k(static_cast<size_t>(t.new_k.numel())), new_v(new_k.size());
    const auto dim_of = [&](int32_t slot) {
      const auto it = std::ranges::find(slots, slot);
      if (it == slots.end()) slots.push_back(slot);
      return static_cast<size_t>(std::ranges::find(slots, slot) - slots.begin()) % kDim;
    };
    const auto put = [&](std::vector<float>* keys, std::vector<float>* values, size_t row,
                         int32_t slot) {
      (*keys)[row * kDim + dim_of(slot)] = 1;
      std::fill_n(values->begin() + static_cast<std::ptrdiff_t>(row * kDim), kDim,
                  static_cast<float>(slot));
    };
    for (size_t query = 0; query < seen.size(); ++query) {
      if (query == seen.size() / 2) slots.clear();  // the next request
      for (const int32_t slot : seen[query])
        if (slot != seen[query].back()) put(&k, &v, static_cast<size_t>(slot), slot);
      put(&new_k, &new_v, query, seen[query].back());
      for (size_t h = 0; h < kHeads; ++h)
        q[(query * kHeads + h) * kDim + dim_of(picked(seen[query], pick))] = kHeavy;
    }
    // What the step stores is not there before it.
    for (const Ints& of_query : seen) {
      const auto own = static_cast<std::ptrdiff_t>(of_query.back()) * kDim;
      std::fill_n(k.begin() + own, kDim, -1.0f);
      std::fill_n(v.begin() + own, kDim, -1.0f);
    }
    w->write(t.q, 0, q), w->write(t.k, 0, k), w->write(t.v, 0, v);
    w->write(t.new_k, 0, new_k), w->write(t.new_v, 0, new_v);
  }
};

TEST_P(TreeForward, OfDraftBranches) {
  const int32_t page_size = std::get<0>(GetParam());
  for (int32_t step = 0; step < 2; ++step) {
    OwnedBatch b(kDraftDecode, kPrefix, {5, 2});
    b.spec.topk = 2, b.spec.num_steps = 2, b.spec.step = step;
    b.set_pages(page_size, 6);
    b.set_swa(kPages - 1, page_size);
    // Branches from page 24 on, each with two pages of its own and the prefix's tail before it.
    std::vector<Ints> seen;
    Longs loc;
    for (int32_t r = 0; r < 4; ++r) {
      const int32_t prefix = b.lens[static_cast<size_t>(r / 2)], tail = prefix % page_size;
      const int32_t first = (24 + 4 * r) * page_size;
      Ints slots = tokens(b, r / 2, 0, prefix - tail);
      for (int32_t t = 0; t < tail + step + 1; ++t) slots.push_back(first + t);
      seen.push_back(slots);
      for (int32_t t = 0; t < 2; ++t) loc.push_back(first + tail + t);
    }
    b.set_loc(loc);
    Limits limits = Limits::bucket(kDraftDecode, 3, 1, tree_model());
    limits.step = step;
    check(limits, b, seen);
  }
}

TEST_P(TreeForward, OfAVerifiedTree) {
  OwnedBatch b(kTargetVerify, kPrefix, {5, 2});
  b.spec.num_draft_tokens = 4;
  b.set_pages(std::get<0>(GetParam()), 10);
  b.set_swa(kPages - 1, std::get<0>(GetParam()));
  const std::vector<Ints> tree = {{1, 0, 0, 0}, {1, 1, 0, 0}, {1, 0, 1, 0}, {1, 0, 1, 1}};
  b.set_trees({tree, tree});
  std::vector<Ints> seen;
  for (int64_t i = 0; i < 2; ++i) {
    const int32_t prefix = b.lens[static_cast<size_t>(i)];
    for (const Ints& row : tree) {
      Ints& slots = seen.emplace_back(tokens(b, i, 0, prefix));
      for (int32_t u = 0; u < 4; ++u)
        if (row[static_cast<size_t>(u)] != 0)
          slots.push_back(tokens(b, i, prefix + u, prefix + u + 1)[0]);
    }
  }
  check(Limits::bucket(kTargetVerify, 3, 4, tree_model()), b, seen);
}

INSTANTIATE_TEST_SUITE_P(FlashAttention, TreeForward,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Bool()));

}  // namespace
}  // namespace shadowgraph::flash_attention_forward_test
