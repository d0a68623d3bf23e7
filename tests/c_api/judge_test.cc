// Other kernels' results, judged in C; and property tests whose builder is the caller's.
#include <cmath>
#include <cstring>
#include <limits>

#include "c_api/decode.h"

namespace shadowgraph::c_api::judge_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// The first finding's words. Frees the report.
struct Words {
  std::string id, index, got, diagnosis;

  explicit Words(sg_report* report) {
    sg_finding f = SG_FINDING_INIT;
    EXPECT_EQ(sg_report_get(report, 0, &f), SG_OK);
    id = f.id, index = f.index, got = f.got, diagnosis = f.diagnosis;
    sg_report_free(report);
  }
};

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

struct Judged : Decode {
  const DLTensor* cu_seqlens_q = nullptr;

  sg_status judge(sg_report** report = nullptr, const char* arithmetic = "ours_portable") const {
    return sg_judge_paged(&q_t, &cache, &pages, cu_seqlens_q, &params, &out_t, &lse_t, arithmetic,
                          report);
  }
  Words found() const {
    sg_report* report = nullptr;
    EXPECT_EQ(judge(&report), SG_FINDINGS) << sg_last_error();
    return Words(report);
  }
};

TEST(CJudge, TheEnginesOwnResultsAreWithinTheirBound) {
  Judged d;
  ASSERT_EQ(d.run(), SG_OK);
  EXPECT_EQ(d.judge(), SG_OK) << sg_last_error();
  d.params.lse_base2 = 1;
  ASSERT_EQ(d.run(), SG_OK);
  EXPECT_EQ(d.judge(), SG_OK) << sg_last_error();
  EXPECT_EQ(sg_judge_paged(&d.q_t, &d.cache, &d.pages, nullptr, &d.params, &d.out_t, nullptr,
                           "plain_f32", nullptr),
            SG_OK);
}

TEST(CJudge, AWrongResultIsNamedWithItsRequestAndTheMistake) {
  Judged shorter;
  shorter.params.window_left = 0;
  ASSERT_EQ(shorter.run(), SG_OK);
  shorter.params.window_left = 1;
  const Words window = shorter.found();
  EXPECT_EQ(window.id, "num.bound");
  EXPECT_TRUE(has(window.got, ", of request ")) << window.got;
  EXPECT_TRUE(has(window.diagnosis, "window.shorter")) << window.diagnosis;

  Judged base;
  base.params.lse_base2 = 1;
  ASSERT_EQ(base.run(), SG_OK);
  base.params.lse_base2 = 0;
  const Words lse = base.found();
  EXPECT_EQ(lse.id, "num.lse_bound");
  EXPECT_TRUE(lse.diagnosis.starts_with("lse.base")) << lse.diagnosis;
}

TEST(CJudge, AQueryIsNamedInItsRequest) {
  Judged d;
  Tensor<int32_t> offsets({2}, {0, 2}), table({1, 2}, {3, 1}), lens({1}, 3);
  const DLTensor offsets_t = offsets.dl(), table_t = table.dl(), lens_t = lens.dl();
  d.cu_seqlens_q = &offsets_t, d.pages.page_table = &table_t, d.pages.cache_seqlens = &lens_t;
  ASSERT_EQ(sg_paged_attention(&d.q_t, &d.cache, &d.pages, &offsets_t, &d.params, &d.out_t,
                               &d.lse_t, nullptr),
            SG_OK);
  d.out.values[8 * 5 + 3] += 1;  // row 1, head 1
  const Words words = d.found();
  EXPECT_EQ(words.index, "[1, 1, 3]");
  EXPECT_TRUE(has(words.got, ", of query 1 of request 0")) << words.got;

  Judged two;
  Tensor<int32_t> each({3}, {0, 1, 2});
  const DLTensor each_t = each.dl();
  ASSERT_EQ(two.run(), SG_OK);
  two.cu_seqlens_q = &each_t;
  two.out.values[8 * 4] += 1;
  const Words second = two.found();
  EXPECT_TRUE(has(second.got, ", of query 0 of request 1")) << second.got;
}

TEST(CJudge, ARowWithoutKeysMayHaveAnyMarkWithoutMass) {
  Judged d;
  d.lens.values[1] = 0;
  ASSERT_EQ(d.run(), SG_OK);
  for (const float mark : {-kInf, kInf, std::nanf("")}) {
    for (size_t head = 4; head < 8; ++head) d.lse.values[head] = mark;
    EXPECT_EQ(d.judge(), SG_OK) << mark << sg_last_error();
  }
  d.lse.values[4] = 0;
  EXPECT_EQ(d.found().id, "num.bound");
}

TEST(CJudge, WhatTheCallRefusesIsBadInput) {
  Judged d;
  d.table.values[0] = 99;
  sg_report* report = nullptr;
  EXPECT_EQ(d.judge(&report), SG_BAD_INPUT);
  EXPECT_EQ(taken(report), Found{"table.page_id page_table"});
  d.table.values[0] = 3;
  EXPECT_EQ(d.judge(&report, "fa33"), SG_USAGE);
  EXPECT_TRUE(
      std::string_view(sg_last_error()).starts_with("arithmetic is fa33; did you mean fa3?"));
  EXPECT_EQ(d.judge(nullptr, nullptr), SG_USAGE);
  EXPECT_EQ(sg_judge_paged(&d.q_t, nullptr, &d.pages, nullptr, &d.params, &d.out_t, nullptr,
                           "plain_f32", nullptr),
            SG_USAGE);
}

TEST(CJudge, PackedKeysAreJudgedToo) {
  Tensor<float> q({2, 2, 8}), k({3, 2, 8}), v({3, 2, 8}), out({2, 2, 8});
  count_up(&q.values, 0.25f), count_up(&k.values, 0.125f), count_up(&v.values, 1);
  Tensor<int32_t> of_q({2}, {0, 2}), of_k({2}, {0, 3});
  const DLTensor q_t = q.dl(), k_t = k.dl(), v_t = v.dl(), of_q_t = of_q.dl(), of_k_t = of_k.dl();
  DLTensor out_t = out.dl();
  sg_params params = SG_PARAMS_INIT;
  params.sm_scale = 0.5f;
  ASSERT_EQ(
      sg_ragged_attention(&q_t, &k_t, &v_t, &of_q_t, &of_k_t, &params, &out_t, nullptr, nullptr),
      SG_OK);
  const auto judge = [&](sg_report** report) {
    return sg_judge_ragged(&q_t, &k_t, &v_t, &of_q_t, &of_k_t, &params, &out_t, nullptr,
                           "plain_f32", report);
  };
  EXPECT_EQ(judge(nullptr), SG_OK) << sg_last_error();
  params.causal = 1;
  sg_report* report = nullptr;
  ASSERT_EQ(judge(&report), SG_FINDINGS);
  const Words words(report);
  EXPECT_TRUE(has(words.diagnosis, "causal")) << words.diagnosis;
  EXPECT_EQ(sg_judge_ragged(&q_t, &k_t, &v_t, &of_q_t, &of_k_t, &params, &out_t, nullptr, nullptr,
                            nullptr),
            SG_USAGE);
}

/// A builder of lengths whose buffer lives from step to step.
struct Lengths {
  bool stale = false;
  int steps = 0, steps_of_last = 0;

  /// A slip: only a batch of another size is copied.
  static void play(void* context, sg_history* history) {
    auto& self = *static_cast<Lengths*>(context);
    std::vector<int32_t> buffer;
    self.steps_of_last = 0;
    for (sg_batch* batch = nullptr;; sg_batch_free(batch)) {
      EXPECT_EQ(sg_history_next(history, &batch), SG_OK);
      if (batch == nullptr) return;
      ++self.steps, ++self.steps_of_last;
      DLTensor lens;
      EXPECT_EQ(sg_batch_array(batch, "kv_lens", &lens), SG_OK);
      const auto count = static_cast<size_t>(lens.shape[0]);
      const auto* truth = static_cast<const int32_t*>(lens.data);
      if (!self.stale || buffer.size() != count) buffer.assign(truth, truth + count);
      Tensor<int32_t> built({lens.shape[0]}, buffer);
      const DLTensor built_t = built.dl();
      sg_role_value value = SG_ROLE_VALUE_INIT;
      value.role = "kv_lens", value.values = &built_t;
      sg_report* report = nullptr;
      sg_check(batch, &value, 1, nullptr, &report);
      EXPECT_EQ(sg_history_expect(history, report), SG_OK);
      sg_report_free(report);
    }
  }
};

TEST(CProperty, ARightBuilderSeesEverySmallBatchAndEveryHistory) {
  Lengths right;
  const char* options =
      R"({"modes": ["decode"], "page_sizes": [2], "small_requests": 2, "histories": 20})";
  EXPECT_EQ(sg_property_check(options, Lengths::play, &right, nullptr), SG_OK) << sg_last_error();
  EXPECT_GT(right.steps, 3 * (6 + 36));  // prefixes of 0 to 5 tokens, pages in three orders
}

TEST(CProperty, AStaleBufferIsFoundAndShrunkToTwoSteps) {
  Lengths stale{.stale = true};
  sg_report* report = nullptr;
  const char* options = R"({"modes": ["decode"], "page_sizes": [1], "command": "make test"})";
  ASSERT_EQ(sg_property_check(options, Lengths::play, &stale, &report), SG_FINDINGS);
  EXPECT_EQ(stale.steps_of_last, 2);
  const std::string text = sg_report_text(report, "text");
  EXPECT_TRUE(has(text, "len.kv_extent")) << text;
  const size_t at = text.find("SHADOWGRAPH_CHOICES=");
  ASSERT_NE(at, text.npos) << text;
  const std::string choices = text.substr(at + 20, text.find(' ', at) - at - 20);
  EXPECT_TRUE(has(text, ("SHADOWGRAPH_CHOICES=" + choices + " make test").c_str())) << text;
  sg_report_free(report);

  Lengths again{.stale = true};
  const std::string only =
      R"({"modes": ["decode"], "page_sizes": [1], "choices": ")" + choices + "\"}";
  EXPECT_EQ(sg_property_check(only.c_str(), Lengths::play, &again, nullptr), SG_FINDINGS);
  EXPECT_EQ(again.steps, 2);
}

TEST(CProperty, OptionsThatAreNoneAreFound) {
  const auto refused = [](const char* options) {
    Lengths right;
    sg_report* report = nullptr;
    EXPECT_EQ(sg_property_check(options, Lengths::play, &right, &report), SG_BAD_INPUT);
    return taken(report);
  };
  EXPECT_EQ(refused(R"({"histories": "many", "choices": 3, "sed": 1})"),
            (Found{"test.options choices", "test.options histories", "test.options sed"}));
  EXPECT_EQ(refused(R"({"page_sizes": [3]})"), Found{"pool.shape page_size"});
  EXPECT_EQ(refused(R"({"modes": ["target_verify"], "histories": 1})"),
            Found{"test.nothing modes"});
  EXPECT_EQ(sg_property_check(nullptr, nullptr, nullptr, nullptr), SG_USAGE);
  EXPECT_EQ(sg_history_expect(nullptr, nullptr), SG_USAGE);
  const auto simplest = [](void*, uint32_t) { return uint32_t{0}; };
  sg_history* history = nullptr;
  EXPECT_EQ(sg_history_new(R"({"seed": 1})", simplest, nullptr, &history, nullptr), SG_BAD_INPUT);
}

}  // namespace
}  // namespace shadowgraph::c_api::judge_test
