// What the judges of the indexer and of the compressor must notice: each slip is planted in what
// was recorded, or in what it was recorded of.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "check/bounds/linear_bound.h"
#include "check/recorded/judge.h"
#include "core/float_formats.h"
#include "io/recorded/recorded_cases.h"

namespace shadowgraph::indexer_vectors_test {
namespace {

std::vector<RecordedCase> curated(const char* name, const std::string& kind) {
  std::vector<RecordedCase> cases, of_kind;
  std::vector<SkippedCase> skipped;
  const std::string path = std::string(SHADOWGRAPH_TEST_DATA "/linear/") + name + ".safetensors";
  EXPECT_EQ(read_recorded_cases(path, &cases, &skipped).to_string(), "ok");
  for (RecordedCase& v : cases)
    if (v.kind.starts_with(kind)) of_kind.push_back(std::move(v));
  EXPECT_FALSE(of_kind.empty());
  return of_kind;
}

/// "law field" of each finding.
std::vector<std::string> found(const RecordedCase& v) {
  std::vector<std::string> all;
  const RecordedVerdict verdict = judge_recorded(v);
  for (const Finding& f : verdict.findings.findings()) all.push_back(f.id + ' ' + f.where.field);
  return all;
}
using Found = std::vector<std::string>;

/// A view of bytes that are the view's own, so that they can be changed.
class Copy {
 public:
  explicit Copy(ConstTensorView* view)
      : bytes_(view->data,
               view->data + view->numel() * static_cast<int64_t>(size_of(view->dtype))) {
    view->data = bytes_.data();
  }
  std::byte& operator[](int64_t i) { return bytes_[static_cast<size_t>(i)]; }
  void set(DType type, int64_t i, float x) { store_float(bytes_.data(), type, i, x); }
  void set_i32(int64_t i, int32_t x) { std::memcpy(&(*this)[i * 4], &x, 4); }

 private:
  std::vector<std::byte> bytes_;
};

template <class Case>
Case& case_of(RecordedCase& v) {
  return std::get<Case>(v.call);
}

TEST(IndexerVectors, AQuantisedValueOrScaleThatIsOffIsNoticed) {
  for (RecordedCase v : curated("indexer", "act_quant")) {
    ASSERT_EQ(found(v), Found{});
    const RecordedCase right = v;
    auto& c = case_of<ActQuantCase>(v);
    {
      Copy y(&c.y);
      y[700] ^= std::byte{1};  // the neighbour
      EXPECT_EQ(found(v), Found{"num.recorded gpu.y"});
    }
    c = std::get<ActQuantCase>(right.call);
    {
      Copy scale(&c.scale);
      scale.set(DType::kF32, 4, 1.7857F);
      EXPECT_EQ(found(v)[0], "num.recorded gpu.scale");
    }
    c = std::get<ActQuantCase>(right.call);
    Copy reference(&c.scale_ref);
    double wrong = element(c.scale_ref, 4) * (1 + 1e-9);
    std::memcpy(&reference[4 * 8], &wrong, 8);
    EXPECT_EQ(found(v), Found{"num.reference ref.scale"});
  }
  // A power of two where there is none, and the other way round.
  for (RecordedCase v : curated("indexer", "act_quant")) {
    case_of<ActQuantCase>(v).call.ue8m0 ^= true;
    EXPECT_EQ(found(v)[0], "num.recorded gpu.scale");
  }
}

TEST(IndexerVectors, AKeyInAnotherPlaceIsNoticed) {
  for (const RecordedCase& right : curated("indexer", "index_buf")) {
    ASSERT_EQ(found(right), Found{});
    const std::vector<std::pair<ConstTensorView IndexKeysCase::*, Found>> slips = {
        {&IndexKeysCase::after, {"num.recorded gpu.pages"}},
        {&IndexKeysCase::reference, {"num.reference ref.pages"}},
        {&IndexKeysCase::k, {"num.recorded gpu.k"}},
        {&IndexKeysCase::k_scale, {"num.recorded gpu.k_scale"}},
    };
    for (const auto& [array, laws] : slips) {
      RecordedCase v = right;
      auto& c = case_of<IndexKeysCase>(v);
      Copy bytes(&(c.*array));
      bytes[9] ^= std::byte{1};
      EXPECT_EQ(found(v), laws);
    }
    RecordedCase v = right;
    auto& c = case_of<IndexKeysCase>(v);
    std::vector<int64_t> slots(c.store.out_cache_loc.begin(), c.store.out_cache_loc.end());
    std::swap(slots[0], slots[1]);
    c.store.out_cache_loc = slots;
    EXPECT_EQ(found(v), (Found{"num.recorded gpu.pages", "num.reference ref.pages"}));
    slots[0] = slots[1];
    EXPECT_EQ(found(v), Found{"slot.duplicate out_cache_loc"});
  }
}

TEST(IndexerVectors, AScoreThatIsOffIsNoticed) {
  for (const RecordedCase& right : curated("indexer", "indexer_logits")) {
    ASSERT_EQ(found(right), Found{});
    {
      RecordedCase v = right;
      auto& c = case_of<IndexerLogitsCase>(v);
      Copy logits(&c.logits);
      logits.set(DType::kF32, 70, static_cast<float>(element(c.logits, 70)) + 0.1F);
      EXPECT_EQ(found(v), Found{"num.recorded gpu.logits"});
    }
    {
      RecordedCase v = right;
      auto& c = case_of<IndexerLogitsCase>(v);
      Copy reference(&c.reference);
      double wrong = element(c.reference, 70) * (1 + 1e-7);
      std::memcpy(&reference[70 * 8], &wrong, 8);
      EXPECT_EQ(found(v), Found{"num.reference ref.logits"});
    }
    {
      RecordedCase v = right;
      v.gpu().kernel = "tomorrow's";
      EXPECT_EQ(found(v), Found{"num.recorded kernel"});
      v.gpu().kernel = "deep_gemm";  // whose dots are not rounded to bf16
      EXPECT_EQ(found(v), Found{"num.recorded gpu.logits"});
    }
  }
}

TEST(IndexerVectors, AChoiceThatLeavesOutALargerScoreIsNoticed) {
  for (const RecordedCase& right : curated("indexer", "indexer_logits")) {
    const auto plant = [&](const std::function<void(Copy&, int64_t)>& slip) {
      RecordedCase v = right;
      auto& c = case_of<IndexerLogitsCase>(v);
      Copy topk(&c.topk_ref);
      slip(topk, c.topk_ref.shape[1]);
      return found(v);
    };
    const auto* ids =
        reinterpret_cast<const int32_t*>(std::get<IndexerLogitsCase>(right.call).topk_ref.data);
    const Found reference = {"num.reference ref.topk"};
    EXPECT_EQ(plant([&](Copy& t, int64_t n) {
                // Replaces one position of the second row by the first that was left out.
                int64_t i = n;
                while (ids[i + 1] == ids[i] + 1) ++i;
                t.set_i32(i, ids[i] + 1);
              }),
              reference);
    EXPECT_EQ(plant([](Copy& t, int64_t) { t.set_i32(0, -1); }), reference);
    EXPECT_EQ(plant([](Copy& t, int64_t) { t.set_i32(1, 0); }), reference);
    EXPECT_EQ(plant([&](Copy& t, int64_t n) { t.set_i32(n + 1, ids[n]); }), reference);
    EXPECT_EQ(plant([&](Copy& t, int64_t n) { t.set_i32(2 * n - 1, 64); }), reference);
  }
}

TEST(IndexerVectors, ASlotOfAnotherPositionIsNoticed) {
  for (const RecordedCase& right : curated("indexer", "topk_transform")) {
    ASSERT_EQ(found(right), Found{});
    for (const bool reference : {false, true}) {
      RecordedCase v = right;
      auto& c = case_of<TopkTransformCase>(v);
      ConstTensorView& array = reference ? c.out_ref : c.out;
      Copy out(&array);
      int64_t i = 0;
      while (element(array, i) == -1) ++i;
      out[i * 4] ^= std::byte{1};
      EXPECT_EQ(found(v)[0], reference ? "num.reference ref.out" : "num.recorded gpu.out");
    }
    for (const size_t back : {1U, 5U}) {  // a guard cell, the last entry
      for (const bool reference : {false, true}) {
        RecordedCase v = right;
        auto& c = case_of<TopkTransformCase>(v);
        auto& list = reference ? c.kv_indices_ref : c.kv_indices;
        std::vector<int32_t> changed(list.begin(), list.end());
        changed[changed.size() - back] ^= 1;
        list = changed;
        EXPECT_EQ(found(v), Found{reference ? "num.reference ref.kv_indices"
                                            : "num.recorded gpu.kv_indices"});
      }
    }
    RecordedCase v = right;
    auto& c = case_of<TopkTransformCase>(v);
    std::vector<int32_t> indptr(c.compact.kv_indptr.begin(), c.compact.kv_indptr.end());
    --indptr.back();
    c.compact.kv_indptr = indptr;
    EXPECT_EQ(found(v), Found{"len.q_extent kv_indptr"});
  }
}

TEST(CompressVectors, ABlockOrAStateThatIsOffIsNoticed) {
  for (const char* kind : {"c4_decode", "c128_decode", "pool_norm_rope"}) {
    for (const RecordedCase& right : curated("compress", kind)) {
      ASSERT_EQ(found(right), Found{}) << kind;
      {
        RecordedCase v = right;
        Copy out(&v.gpu().out);
        // Ten times the last bit that is left of a result is noticed: bf16's, or f32's.
        const DType type = v.gpu().out.dtype;
        const auto x = static_cast<float>(element(v.gpu().out, 3));
        out.set(type, 3, x + (type == DType::kF32 ? 1e-4F : 0.1F) * std::max(1.F, std::abs(x)));
        EXPECT_EQ(found(v), Found{"num.recorded gpu.out"}) << kind;
      }
      {
        RecordedCase v = right;
        Copy out(&v.reference.out);
        double wrong = element(v.reference.out, 3) + 1e-9;
        std::memcpy(&out[3 * 8], &wrong, 8);
        EXPECT_EQ(found(v), Found{"num.reference ref.out"}) << kind;
      }
      if (!right.states_before.defined()) continue;
      for (const bool reference : {false, true}) {
        RecordedCase v = right;
        ConstTensorView& states = reference ? v.reference.states : v.gpu().states;
        Copy bytes(&states);
        bytes[states.numel() * 4 - 1] ^= std::byte{1};
        EXPECT_EQ(found(v), Found{reference ? "num.reference ref.state" : "num.recorded gpu.state"})
            << kind;
      }
    }
  }
}

/// What the formula says, but for one thing that a kernel may get wrong.
TEST(CompressVectors, AnotherPageOrSlotIsNoticed) {
  for (const RecordedCase& right : curated("compress", "c4_decode")) {
    const auto plant = [&](const std::function<void(Compress&)>& slip) {
      RecordedCase v = right;
      slip(std::get<Compress>(v.call));
      return found(v);
    };
    const auto& given = std::get<Compress>(right.call);
    std::vector<int32_t> extra(given.extra.begin(), given.extra.end());
    for (size_t t = 0; t < extra.size(); ++t)
      if (given.reads_extra(static_cast<int64_t>(t))) extra[t] = extra[t] == 5 ? 3 : 5;
    EXPECT_EQ(plant([&](Compress& c) { c.extra = extra; }),
              (Found{"num.recorded gpu.out", "num.reference ref.out"}));
    std::vector<int32_t> lens(given.seq_lens.begin(), given.seq_lens.end());
    for (int32_t& len : lens) len += 1;
    const Found shifted = plant([&](Compress& c) { c.seq_lens = lens; });
    EXPECT_NE(std::ranges::find(shifted, "num.recorded gpu.state"), shifted.end());
    std::vector<int32_t> same(given.indices.size(), given.indices[0]);
    EXPECT_EQ(plant([&](Compress& c) { c.indices = same; })[0], "slot.duplicate indices");
  }
  for (const RecordedCase& right : curated("compress", "pool_norm_rope")) {
    RecordedCase v = right;
    auto& call = std::get<PoolNormRope>(v.call);
    Copy freqs(&call.freqs);
    freqs[7] ^= std::byte{0x80};  // the other way round
    EXPECT_EQ(found(v), (Found{"num.recorded gpu.out", "num.reference ref.out"}));
  }
}

}  // namespace
}  // namespace shadowgraph::indexer_vectors_test
