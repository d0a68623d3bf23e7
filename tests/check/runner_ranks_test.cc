// Runner of a rank of decode context parallelism: what it holds, sees and stores, with small pages.
#include <gtest/gtest.h>

#include "backends/paged/cutedsl_mla.h"
#include "check/runs.h"

namespace shadowgraph::runner_ranks_test {
namespace {

/// Pages of any size: what an engine's kernel reads at once is not what a rank holds.
class SmallPages : public CuteDslMla {
 public:
  const BackendInfo& info() const override {
    static const BackendInfo kInfo = [this] {
      BackendInfo info = CuteDslMla::info();
      info.page_sizes = {};
      return info;
    }();
    return kInfo;
  }
};

ModelConfig model_of_rank(int32_t page_size, int32_t rank, int32_t size) {
  ModelConfig m = model_of(page_size, {latent_layer()}, {1, 3, 4});
  m.max_context_len = 2 * page_size * size + 8;
  m.dcp_rank = rank, m.dcp_size = size;
  return m;
}

/// fn(model, most): of every rank; prefixes up to one more than two of its pages.
template <class Fn>
void each_rank(Fn fn) {
  for (const int32_t page_size : {1, 2, 4}) {
    for (const int32_t size : {2, 4}) {
      for (int32_t rank = 0; rank < size; ++rank)
        fn(model_of_rank(page_size, rank, size), 2 * page_size * size + 1);
    }
  }
}

/// Every prefix, beside another one.
Status each_prefix(const Backend& backend, const ModelConfig& model, int32_t most,
                   StepShape shape) {
  Runs runs(model, backend);
  const int32_t q_len = shape.q_lens.empty() ? 0 : shape.q_lens[0];
  Status status;
  for (int32_t prefix = 0; prefix <= most && status.ok(); ++prefix) {
    runs.runner.begin_history(static_cast<uint64_t>(prefix));
    shape.prefix_lens = {prefix, (3 * prefix + 2) % (most + 1)};
    if (q_len > 0) shape.q_lens = {q_len, q_len};
    status = runs.runner.step(runs.made(shape));  // a history may begin in the middle
  }
  if (status.ok()) {
    EXPECT_EQ(runs.runner.counts().replays, most + 1);
    EXPECT_EQ(runs.runner.counts().refused, 0);
  }
  return status;
}

const StepShape kShapes[] = {
    {},
    {.mode = ForwardMode::kDraftDecode, .draft_step = 1},
    {.mode = ForwardMode::kTargetVerify},
    {.mode = ForwardMode::kDraftExtend, .q_lens = {4}},
    {.mode = ForwardMode::kDraftExtendV2, .q_lens = {4}},
};

TEST(RunnerRanks, FindNothingInAnyMode) {
  const SmallPages backend;
  for (const StepShape& shape : kShapes) {
    each_rank([&](const ModelConfig& model, int32_t most) {
      EXPECT_EQ(each_prefix(backend, model, most, shape).to_string(), "ok")
          << name_of(shape.mode) << " page_size " << model.page_size << " rank " << model.dcp_rank;
    });
  }
}

TEST(RunnerRanks, RequestsWithQueriesOfTheirOwnRunOnOneRankAlone) {
  const StepShape shape{.mode = ForwardMode::kDraftExtend, .prefix_lens = {5, 2}, .q_lens = {1, 3}};
  for (const int32_t size : {1, 2}) {
    Runs runs(model_of_rank(32, 0, size), *find_backend("cutedsl_mla"));
    EXPECT_EQ(runs.step(shape).to_string(), "ok");
    EXPECT_EQ(runs.runner.counts().replays, size == 1);
    EXPECT_EQ(runs.runner.counts().refused, size == 2);
  }
}

TEST(RunnerRanks, AGraphIsNotReplayedWithFewerQueries) {
  Runs runs(model_of_rank(32, 1, 2), *find_backend("cutedsl_mla"));
  EXPECT_EQ(
      runs.step({.mode = ForwardMode::kDraftExtend, .prefix_lens = {5}, .q_lens = {2}}).to_string(),
      "ok");
  EXPECT_EQ(runs.runner.counts().steps, 1);
  EXPECT_EQ(runs.runner.counts().replays, 0);
}

/// Whether some prefix of every rank tells.
void expect_found(const Backend& backend, const StepShape& shape) {
  each_rank([&](const ModelConfig& model, int32_t most) {
    EXPECT_FALSE(each_prefix(backend, model, most, shape).ok())
        << "page_size " << model.page_size << " rank " << model.dcp_rank;
  });
}

TEST(RunnerRanks, OneThatTakesTheTokensOfTheNextIsFound) {
  struct : SmallPages {
    Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override {
      Limits next = limits;
      next.model.dcp_rank = (limits.model.dcp_rank + 1) % limits.model.dcp_size;
      return SmallPages::bind(arena, next, meta);
    }
  } backend;
  for (const StepShape& shape : kShapes) expect_found(backend, shape);
}

TEST(RunnerRanks, AQueryThatSeesTheKeysOfThoseBehindItIsFound) {
  struct : SmallPages {
    Status fill(const ForwardBatch& batch, Meta& meta) const override {
      Status status = SmallPages::fill(batch, meta);
      const std::vector<int32_t> ones(static_cast<size_t>(meta.limits.rows), 1);
      status.add(meta.arena.write(meta[kSeqLensQ], 0, std::span<const int32_t>(ones)));
      return status;
    }
  } backend;
  expect_found(backend, {.mode = ForwardMode::kTargetVerify});
}

TEST(RunnerRanks, OneThatStoresNothingIsFound) {
  struct : SmallPages {
    Status fill(const ForwardBatch& batch, Meta& meta) const override {
      Status status = SmallPages::fill(batch, meta);
      const std::vector<int64_t> nowhere(static_cast<size_t>(meta.limits.tokens), -1);
      status.add(meta.arena.write(meta[kOutCacheLoc], 0, std::span<const int64_t>(nowhere)));
      return status;
    }
  } backend;
  expect_found(backend, {});
}

}  // namespace
}  // namespace shadowgraph::runner_ranks_test
