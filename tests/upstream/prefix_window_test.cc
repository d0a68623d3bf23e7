// sglang#26513: FlashInfer's prefill with a sliding window and a cached prefix is two calls that
// are merged. Neither had the window, and the prefix's list had the step's own tokens, too.
// Upstream saw outputs off by 0.2.
#include "backends/lists/flashinfer.h"
#include "backends/step_fixture.h"
#include "faults/buffers.h"
#include "faults/launches.h"
#include "shadowgraph/attention/attention.h"
#include "upstream/stories.h"

namespace shadowgraph::prefix_window_test {
namespace {

using enum ForwardMode;
using Fi = FlashInfer;

/// A prefill in two calls; layers with a window, and without.
ModelConfig model(std::vector<LayerKind> layers, int32_t page_size = 1) {
  ModelConfig m = with_context(model_of(page_size, std::move(layers)), 32);
  m.ragged_prefill = true;
  return m;
}
ModelConfig windowed(int32_t window, int32_t page_size = 1) {
  return model({small_layer(window), small_layer()}, page_size);
}

StepShape extend(Ints prefix, Ints news) {
  return {.mode = kExtend, .prefix_lens = std::move(prefix), .q_lens = std::move(news)};
}

/// The window layers' list and mask, as the builder leaves them.
struct Bound : BoundStep {
  explicit Bound(const ModelConfig& m, const ForwardBatch& b)
      : BoundStep(*find_backend("flashinfer"), Limits::exact(b, m)) {
    EXPECT_EQ(fill(b).to_string(), "ok");
  }
  std::vector<Ints> lists() const {
    const Ints indptr = ints(Fi::list(0, Fi::kKvIndptr)), all = ints(Fi::list(0, Fi::kKvIndices));
    std::vector<Ints> rows;
    for (size_t i = 0; i + 1 < indptr.size(); ++i)
      rows.emplace_back(all.begin() + indptr[i], all.begin() + indptr[i + 1]);
    return rows;
  }
  std::vector<uint8_t> mask() const {
    const auto* data = reinterpret_cast<const uint8_t*>(meta[Fi::list(0, Fi::kMask)].data);
    return {data, data + ints(Fi::list(0, Fi::kMaskIndptr)).back()};
  }
};

/// Token t of every request lies in slot 100 + t.
struct OneRequest : OwnedBatch {
  OneRequest(int32_t prefix, int32_t q_len)
      : OwnedBatch(kExtend, SeqLensKind::kFull, {prefix + q_len}, {q_len}) {
    Ints row(24);
    std::iota(row.begin(), row.end(), 100);
    set_rows({row}, 24);
  }
};

TEST(UpstreamPrefixWindow, AfterThePrefixsListIsItsLastWindowAndAMaskSaysWhoSeesWhat) {
  // Window 2, prefix 5, four new tokens. Queries 5 to 8 see {3 4} {4} {} {} of the prefix.
  const Bound s(windowed(2), OneRequest(5, 4));
  EXPECT_EQ(s.lists(), (std::vector<Ints>{{103, 104}}));
  EXPECT_EQ(s.mask(), (std::vector<uint8_t>{0x0b}));  // 11 01 00 00
  EXPECT_EQ(s.ints(Fi::list(0, Fi::kMaskIndptr)), (Ints{0, 1}));
  // Window 3, prefix 6, two new tokens: {3 4 5} and {4 5}.
  const Bound t(windowed(3), OneRequest(6, 2));
  EXPECT_EQ(t.lists(), (std::vector<Ints>{{103, 104, 105}}));
  EXPECT_EQ(t.mask(), (std::vector<uint8_t>{0x37}));  // 111 011
}

/// V of token k is k and all keys are equal: a result is the mean of what is seen.
float mean_of(const std::vector<float>& values) {
  const auto n = static_cast<int32_t>(values.size());
  std::vector<float> q(4), k(values.size() * 4), v, out(4);
  for (const float x : values) v.insert(v.end(), 4, x);
  const Ints cu_q = {0, 1}, cu_k = {0, n};
  RaggedAttention call;
  call.q = ConstTensorView(q.data(), DType::kF32, {1, 1, 4});
  call.k = ConstTensorView(k.data(), DType::kF32, {n, 1, 4});
  call.v = ConstTensorView(v.data(), DType::kF32, {n, 1, 4});
  call.cu_seqlens_q = cu_q, call.cu_seqlens_k = cu_k;
  call.params = small_layer().params;
  call.params.num_qo_heads = 1, call.params.causal = false;
  call.out = TensorView(out.data(), DType::kF32, {1, 1, 4});
  EXPECT_EQ(attention_varlen(call).to_string(), "ok");
  return out[0];
}

TEST(UpstreamPrefixWindow, BeforeTheFirstQueryGot12SeventhsWhereItIs4) {
  // Its own call sees token 5. The prefix's list was [3, 9), and slots of 5 to 8 were still 0.
  EXPECT_FLOAT_EQ(mean_of({5, 3, 4, 0, 0, 0, 0}), 12.0f / 7);
  EXPECT_FLOAT_EQ(mean_of({5, 3, 4}), 4);
}

TEST(UpstreamPrefixWindow, AfterNothingIsFound) {
  for (const int32_t page_size : {1, 4, 16}) {
    for (const int32_t window : {1, 2, 3, 8}) {
      Story story("flashinfer", windowed(window, page_size), 3, {});
      for (const StepShape& shape :
           {extend({5}, {4}), extend({6}, {2}), extend({1}, {1}), extend({16, 0, 3}, {4, 5, 1})})
        EXPECT_EQ(story.step(shape).to_string(), "ok") << page_size << " " << window;
    }
  }
}

TEST(UpstreamPrefixWindow, BeforeAPlanThatForgetsTheWindowIsFound) {
  for (const auto& shape : {extend({5}, {4}), extend({16}, {4})}) {
    Story story("flashinfer", windowed(2), 3, {}, fault("K36"));
    EXPECT_FALSE(story.step(shape).ok());
    EXPECT_GT(story.tap->acted(), 0);
  }
}

/// The window layers' own call, or their prefix's, is run without the window.
template <bool own>
struct CallWithoutWindow final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta&, bool) override {
    for (TappedLaunch& one : all) {
      change_attention(&one.launch, [&](auto& c) {
        if constexpr (requires { c.packed_mask; }) {
          const bool is_own = c.k.defined();
          if (is_own != own || c.params.window_left < 0) return false;
          c.params.window_left = -1;
          if (!own) c.packed_mask = {}, c.mask_indptr = {};
          act();
          return true;
        }
        return false;
      });
    }
  }
};

TEST(UpstreamPrefixWindow, BeforeEitherCallWithoutTheWindowIsFoundByItsOutputs) {
  Story own("flashinfer", windowed(2), 3, {}, std::make_unique<CallWithoutWindow<true>>());
  EXPECT_TRUE(laws(own.step(extend({5}, {4}))).contains("num.bound"));
  EXPECT_EQ(own.tap->acted(), 1);
  Story prefix("flashinfer", windowed(2), 3, {}, std::make_unique<CallWithoutWindow<false>>());
  EXPECT_TRUE(laws(prefix.step(extend({5}, {4}))).contains("num.bound"));
  EXPECT_EQ(prefix.tap->acted(), 1);
}

/// The last entry of the window layers' list is the slot of the step's first token.
struct ListsANewToken final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override {
    const auto indptr = staged_ints(meta, own_name(meta[Fi::list(0, Fi::kKvIndptr)]));
    const auto list = staged_ints(meta, own_name(meta[Fi::list(0, Fi::kKvIndices)]));
    list[static_cast<size_t>(indptr.back()) - 1] = static_cast<int32_t>(batch.out_cache_loc[0]);
    act();
    return {};
  }
};

TEST(UpstreamPrefixWindow, BeforeANewTokenInThePrefixsListIsReadUnwritten) {
  Story story("flashinfer", windowed(2), 3, {}, std::make_unique<ListsANewToken>());
  const Status status = story.step(extend({5}, {4}));
  EXPECT_TRUE(laws(status).contains("mem.uninit_read")) << status.to_string();
  EXPECT_TRUE(laws(status).contains("table.slot")) << status.to_string();
}

TEST(UpstreamPrefixWindow, TheSmallestCaseIsOneOfEach) {
  // Window 1, prefix 1, one new token: a list of min(2, 1 + 1) = 2 has the unwritten one.
  const Bound s(windowed(1), OneRequest(1, 1));
  EXPECT_EQ(s.lists(), (std::vector<Ints>{{100}}));
  Story story("flashinfer", windowed(1), 3, {}, std::make_unique<ListsANewToken>());
  EXPECT_TRUE(laws(story.step(extend({1}, {1}))).contains("mem.uninit_read"));
}

/// The mask is None: no launch has one.
struct MaskIsNone final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta&, bool) override {
    for (TappedLaunch& one : all) {
      change_attention(&one.launch, [&](auto& c) {
        if constexpr (requires { c.packed_mask; }) {
          if (c.packed_mask.empty()) return false;
          c.packed_mask = {}, c.mask_indptr = {};
          act();
          return true;
        }
        return false;
      });
    }
  }
};

TEST(UpstreamPrefixWindow, WhereAllKeysAreSeenTheMaskIsAllOnesAndNoneIsTheSame) {
  // Window 8: the last of two queries behind five tokens sees all of them.
  const Bound s(windowed(8), OneRequest(5, 2));
  EXPECT_EQ(s.lists()[0].size(), 5u);
  EXPECT_EQ(s.mask(), (std::vector<uint8_t>{0xff, 0x03}));  // 11111 11111
  Story none("flashinfer", windowed(8), 3, {}, std::make_unique<MaskIsNone>());
  EXPECT_EQ(none.step(extend({5}, {2})).to_string(), "ok");
  EXPECT_EQ(none.step(extend({3, 0, 5}, {2, 4, 1})).to_string(), "ok");
  EXPECT_EQ(none.tap->acted(), 2);
  // Where a key is hidden, None is found.
  EXPECT_TRUE(laws(none.step(extend({8}, {2}))).contains("num.bound"));
}

/// Seven tokens, then items of two tokens and of one; behind a prefix of five.
Step scored(const Story& story) {
  Step step = story.made(extend({5}, {13}));
  step.item_delimiters = {7, 10, 12}, step.item_indptr = {0, 3};
  return step;
}

TEST(UpstreamPrefixWindow, ItemsAreScoredWithWindowLeftMinus1AndWithoutARaggedCall) {
  const ModelConfig m = model({small_layer(), small_layer()});
  Story story("flashinfer", m, 3, {});
  const Step step = scored(story);
  EXPECT_EQ(story.runner.step(step).to_string(), "ok");
  EXPECT_EQ(story.runner.counts().steps, 1);
  const Bound s(m, step.batch());
  EXPECT_EQ(s.meta.scalars[Fi::kWindowLeft], -1);
  EXPECT_EQ(s.meta.scalars[Fi::kUseRagged], 0);
}

TEST(UpstreamPrefixWindow, ItemsUnderAWindowAreRefusedWhereTheEngineDropsTheWindow) {
  // The report's window_left of -1 would let every token see what its window hides.
  Story story("flashinfer", windowed(2), 3, {});
  const Step step = scored(story);
  Meta meta;
  SimDevice device;
  const Arena arena(device, size_t{1} << 20);
  const Status refused =
      find_backend("flashinfer")->bind(arena, Limits::exact(step.batch(), windowed(2)), &meta);
  EXPECT_EQ(first_of(refused, "backend.limits").where.field, "layers");
  EXPECT_EQ(story.runner.step(step).to_string(), "ok");
  EXPECT_EQ(story.runner.counts().refused, 1);
}

}  // namespace
}  // namespace shadowgraph::prefix_window_test
