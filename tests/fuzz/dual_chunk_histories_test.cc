// Histories of dual-chunk backends: several chunks occur, and a wrong query is seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "fuzz/fuzz.h"
#include "fuzz/history/history.h"
#include "launch/attention_launch.h"

namespace shadowgraph::dual_chunk_histories_test {
namespace {

constexpr uint64_t kSeed = 5;

/// Laws that histories break, until so many have.
std::map<std::string, int> broken_by(const MakeTap& tap, uint64_t histories, int most) {
  const Backend* backends[] = {find_backend("dual_chunk")};
  std::map<std::string, int> laws;
  int failed = 0;
  for (uint64_t number = 0; number < histories && failed < most; ++number) {
    Choices choices = history_choices(kSeed, number, backends);
    const History h = generate_history(choices, backends);
    const HistoryResult result = run_history(h, choices, tap);
    failed += !result.findings.ok();
    for (const Finding& f : result.findings.findings()) ++laws[f.id];
  }
  return laws;
}

/// The calls over keys of one other chunk are made with the query of another part.
template <int kFrom, int kBy>
struct OtherQuery : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool) override {
    int call = 0;
    for (TappedLaunch& one : all) {
      if (one.launch.kernel != &kPagedAttention) {
        call = one.launch.kernel->name == std::string_view("store_kv") ? 0 : call;
        continue;
      }
      auto [paged, rows] = call_of<PagedAttention>(one.launch);
      if (call++ != kFrom || meta.children.size() > 0) continue;
      paged.q.data += int64_t{kBy} * paged.params.num_qo_heads * paged.q.stride[1] *
                      static_cast<int64_t>(size_of(paged.q.dtype));
      one.launch = attention_launch(paged, rows);
      act();
    }
  }
};

TEST(DualChunkHistories, QueriesHaveUpToThreeParts) {
  const Backend* backends[] = {find_backend("dual_chunk")};
  std::map<int32_t, int64_t> queries;  // by how many parts they have
  for (uint64_t number = 0; number < 20; ++number) {
    Choices choices = history_choices(kSeed, number, backends);
    const History h = generate_history(choices, backends);
    std::vector<Step> steps;
    EXPECT_EQ(run_history(h, choices, {}, &steps).findings.to_string(), "ok");
    for (const Step& step : steps) {
      if (step.mode != ForwardMode::kDecode && step.mode != ForwardMode::kExtend) continue;
      const ForwardBatch batch = step.batch();
      const Limits limits = Limits::exact(batch, h.model);
      for (const int32_t n : backends[0]->merged_parts(batch, limits, h.model.layers[0]))
        ++queries[n];
    }
  }
  ASSERT_EQ(queries.size(), 3U);
  for (const auto& [parts, count] : queries) EXPECT_GT(count, 20) << parts;
}

TEST(DualChunkHistories, AnotherPartsQueryIsSeen) {
  EXPECT_TRUE((broken_by(tap_of<OtherQuery<0, 1>>(), 60, 3).contains("num.bound")));
  EXPECT_TRUE((broken_by(tap_of<OtherQuery<1, 1>>(), 60, 3).contains("num.bound")));
  EXPECT_TRUE((broken_by(tap_of<OtherQuery<2, 1>>(), 60, 3).contains("num.bound")));
}

}  // namespace
}  // namespace shadowgraph::dual_chunk_histories_test
