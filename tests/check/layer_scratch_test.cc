// Scratch that one layer leaves is no input of the next, although the same replay wrote it.
#include <gtest/gtest.h>

#include "check/runs.h"
#include "launch/triton_launch.h"
#include "shadowgraph/layers/indexer.h"

namespace shadowgraph::layer_scratch_test {
namespace {

/// Leaves out the second launch of a kernel: the second layer's.
struct LeavesOut : Tap {
  std::string_view kernel;

  void launches(std::vector<TappedLaunch>& all, const Meta& /*meta*/, bool /*capturing*/) override {
    int seen = 0;
    std::erase_if(all, [&](const TappedLaunch& one) {
      return one.launch.kernel->name == kernel && ++seen == 2;
    });
  }
};

Status without_second(std::string_view kernel, const char* backend, const LayerKind& layer,
                      const StepShape& shape, int32_t page_size) {
  ModelConfig model = model_of(page_size, {layer, layer});
  model.split.fixed_size = 2;
  LeavesOut tap;
  tap.kernel = kernel;
  RunnerOptions options = options_of(model, {});
  options.tap = &tap;
  return Runs(*find_backend(backend), model, options).step(shape);
}

const StepShape kDecode{.prefix_lens = {9, 4}};

TEST(LayerScratch, IsWrittenByEachLayer) {
  EXPECT_EQ(without_second("", "triton", small_layer(), kDecode, 1).to_string(), "ok");
  const LayerKind sparse = small_sparse_layer(4);
  EXPECT_EQ(without_second("", "dsa", sparse, kDecode, kIndexPageTokens).to_string(), "ok");
}

TEST(LayerScratch, PartialResultsOfTheLayerBeforeAreFound) {
  const Status status =
      without_second(kTritonDecodeStage1.name, "triton", small_layer(), kDecode, 1);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.findings()[0].id, "mem.stale_input") << status.to_string();
  EXPECT_EQ(status.findings()[0].expected, "written for layer 1");
  EXPECT_EQ(status.findings()[0].got.find("left by layer 0"), 0u);
}

TEST(LayerScratch, AChoiceOfTheLayerBeforeIsFound) {
  const Status status =
      without_second("choose_indices", "dsa", small_sparse_layer(4), kDecode, kIndexPageTokens);
  EXPECT_EQ(laws(status), (Laws{"launch.scratch", "mem.stale_input"})) << status.to_string();
}

}  // namespace
}  // namespace shadowgraph::layer_scratch_test
