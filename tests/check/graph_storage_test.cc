// Graphs of a backend share what its engine allocates once, and nothing else.
#include "check/graph_storage.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/fill/rows.h"
#include "check/runs.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph::graph_storage_test {
namespace {

constexpr int32_t kDrafts = 4;

/// Metadata of graphs of one backend, bound one mode after the other.
class Bound {
 public:
  explicit Bound(const char* backend, ModelConfig m = model_of(2, {small_layer()}, {1, 3, kDrafts}))
      : backend_(*find_backend(backend)), model_(std::move(m)), arena_(device_, size_t{1} << 22) {}

  /// The graphs of a mode, the largest first; later: the modes that are captured later.
  void capture(ForwardMode mode, const std::vector<ForwardMode>& later = {},
               const std::vector<int32_t>& buckets = {4, 2, 1}, int32_t step = 0) {
    std::vector<PlannedGraph> own, others;
    for (const int32_t rows : buckets) own.push_back(graph(mode, rows, step));
    for (const ForwardMode other : later)
      for (const int32_t rows : buckets) others.push_back(graph(other, rows, 0));
    const Status status = share_storage(arena_, own, others,
                                        [&](const Arena& scope, const Limits& limits, Meta* meta) {
                                          return backend_.bind(scope, limits, meta);
                                        });
    EXPECT_EQ(status.to_string(), "ok");
    for (const PlannedGraph& planned : own) {
      Meta& meta = metas_[planned.scope];
      EXPECT_EQ(backend_.bind(arena_.scope(planned.scope), planned.limits, &meta).to_string(),
                "ok");
    }
  }

  /// The address of a graph's buffer, by its name in the scope.
  const std::byte* address(ForwardMode mode, int32_t rows, const std::string& name,
                           int32_t step = 0) const {
    const Buffer* b = arena_.find(graph(mode, rows, step).scope + "/" + name);
    EXPECT_NE(b, nullptr) << name;
    return b == nullptr ? nullptr : b->data;
  }
  const Meta& meta(ForwardMode mode, int32_t rows) const {
    return metas_.at(graph(mode, rows, 0).scope);
  }

 private:
  PlannedGraph graph(ForwardMode mode, int32_t rows, int32_t step) const {
    const int32_t q_len = is_decode_or_idle(mode) ? 1 : kDrafts;
    return {std::string(name_of(mode)) + std::to_string(rows) + "_" + std::to_string(step),
            Limits::bucket(mode, rows, q_len, model_, step)};
  }

  const Backend& backend_;
  const ModelConfig model_;
  SimDevice device_;
  Arena arena_;
  std::map<std::string, Meta> metas_;
};

constexpr auto kDecode = ForwardMode::kDecode;
constexpr auto kIdle = ForwardMode::kIdle;
constexpr auto kVerify = ForwardMode::kTargetVerify;
constexpr auto kDraft = ForwardMode::kDraftDecode;

TEST(GraphStorage, BucketsOfAModeAreSlicesOfOneAllocation) {
  Bound b("flashattention");
  b.capture(kDecode);
  for (const char* name : {"cache_seqlens", "cu_seqlens_q", "page_table", "out_cache_loc"}) {
    EXPECT_EQ(b.address(kDecode, 4, name), b.address(kDecode, 2, name)) << name;
    EXPECT_EQ(b.address(kDecode, 4, name), b.address(kDecode, 1, name)) << name;
  }
  EXPECT_EQ(b.meta(kDecode, 2)[0].numel(), 2);
}

TEST(GraphStorage, ModesShareWhatTheirBackendSays) {
  Bound fa("flashattention");
  fa.capture(kDecode, {kIdle, kDraft, kVerify}), fa.capture(kIdle), fa.capture(kDraft);
  fa.capture(kVerify);
  EXPECT_EQ(fa.address(kDecode, 4, "cache_seqlens"), fa.address(kIdle, 2, "cache_seqlens"));
  EXPECT_EQ(fa.address(kDecode, 4, "cache_seqlens"), fa.address(kDraft, 2, "cache_seqlens"));
  EXPECT_EQ(fa.address(kDecode, 4, "scheduler_metadata"),
            fa.address(kIdle, 2, "scheduler_metadata"));
  EXPECT_NE(fa.address(kDecode, 4, "page_table"), fa.address(kDraft, 4, "page_table"));
  EXPECT_NE(fa.address(kDecode, 4, "cache_seqlens"), fa.address(kVerify, 4, "cache_seqlens"));
  Bound triton("triton");
  triton.capture(kDecode, {kVerify}), triton.capture(kVerify, {kDecode});
  EXPECT_EQ(triton.address(kDecode, 2, "kv_indptr"), triton.address(kVerify, 4, "kv_indptr"));
  EXPECT_EQ(triton.address(kDecode, 2, "kv_indices"), triton.address(kVerify, 4, "kv_indices"));
  // A verify has more tokens, and is captured later.
  EXPECT_EQ(triton.address(kDecode, 2, "out_cache_loc"),
            triton.address(kVerify, 4, "out_cache_loc"));
}

/// fa.I-88.
TEST(GraphStorage, AllGraphsCountInOneWorkspace) {
  for (const char* name : {"trtllm_mha", "trtllm_mla"}) {
    const bool latent = std::string(name) == "trtllm_mla";
    Bound b(name, model_of(64, {latent ? latent_layer() : small_layer()}, {1, 3, kDrafts}));
    b.capture(kDecode, {kVerify}), b.capture(kVerify, {kDecode});
    EXPECT_EQ(b.address(kDecode, 4, "row_counters"), b.address(kVerify, 1, "row_counters"));
  }
}

TEST(GraphStorage, APlanOfAWrapperIsOfItsBucket) {
  Bound b("flashinfer");
  b.capture(kDecode, {kVerify}), b.capture(kVerify);
  EXPECT_EQ(b.address(kDecode, 4, "wrapper0_kv_indptr"),
            b.address(kVerify, 1, "wrapper0_kv_indptr"));
  EXPECT_NE(b.address(kDecode, 4, "wrapper0_paged_request_indices"),
            b.address(kDecode, 2, "wrapper0_paged_request_indices"));
}

TEST(GraphStorage, StatesHaveAListForEachNumberOfRows) {
  Bound b("gdn", model_of(2, {recurrent_layer(RecurrentFamily::kGdn)}, {1, 3, kDrafts}));
  b.capture(kDecode, {kVerify}), b.capture(kVerify);
  EXPECT_EQ(b.address(kDecode, 4, "mamba_cache_indices"),
            b.address(kVerify, 4, "mamba_cache_indices"));
  EXPECT_NE(b.address(kDecode, 4, "mamba_cache_indices"),
            b.address(kDecode, 2, "mamba_cache_indices"));
}

TEST(GraphStorage, ConstantsAreOfOneMode) {
  Bound b("flashinfer_mla", model_of(2, {latent_layer()}, {1, 3, kDrafts}));
  b.capture(kDecode, {kIdle}), b.capture(kIdle);
  EXPECT_EQ(b.address(kDecode, 4, "kv_indptr"), b.address(kIdle, 4, "kv_indptr"));
  EXPECT_NE(b.address(kDecode, 4, "qo_indptr"), b.address(kIdle, 4, "qo_indptr"));
}

/// fa.I-69: what one launch of a graph reads lies apart.
TEST(GraphStorage, StepsOfADraftAndHalvesOfABatchHaveTheirOwn) {
  for (const char* backend : {"flashattention_multi_step", "triton_multi_step",
                              "flashattention_two_batch", "flashattention_gdn"}) {
    const bool states = std::string_view(backend).ends_with("gdn");
    std::vector<LayerKind> layers = {small_layer()};
    if (states) layers.push_back(recurrent_layer(RecurrentFamily::kGdn));
    Bound b(backend, model_of(2, layers, {1, 3, kDrafts}));
    const ForwardMode mode = std::string_view(backend).ends_with("step") ? kDraft : kDecode;
    b.capture(mode, {}, {4, 2});
    const Meta& meta = b.meta(mode, 4);
    ASSERT_EQ(meta.children.size(), 2) << backend;
    std::set<const std::byte*> places;
    size_t buffers = 0;
    for (const Meta& child : meta.children) {
      for (const Buffer& buffer : child.buffers) {
        if (buffer.data == nullptr) continue;
        places.insert(buffer.data);
        ++buffers;
      }
    }
    EXPECT_EQ(places.size(), buffers) << backend;
  }
}

TEST(GraphStorage, StepsThatAreGraphsOfTheirOwnHaveTheirOwn) {
  Bound b("flashattention");
  b.capture(kDraft, {}, {4, 2}, 0), b.capture(kDraft, {}, {4, 2}, 1);
  EXPECT_NE(b.address(kDraft, 4, "cache_seqlens", 0), b.address(kDraft, 4, "cache_seqlens", 1));
}

TEST(GraphStorage, WhatGraphsHaveStaysWhereALaterOneNeedsMore) {
  Bound b("flashattention");
  b.capture(kDecode, {}, {2});
  const std::byte* before = b.address(kDecode, 2, "page_table");
  b.capture(kDecode, {}, {8, 4});
  EXPECT_NE(b.address(kDecode, 4, "page_table"), before);
  EXPECT_EQ(b.address(kDecode, 4, "page_table"), b.address(kDecode, 8, "page_table"));
  EXPECT_EQ(b.address(kDecode, 2, "page_table"), before);
}

/// One model for each feature, in pages that the backend has.
std::vector<ModelConfig> models_of(const BackendInfo& info) {
  const int32_t page_size = info.page_sizes.empty() ? 16 : info.page_sizes.back();
  ModelConfig windowed = model_of(page_size, {small_layer(), small_layer(2)}, {1, 3, kDrafts});
  windowed.swa_pool = true;
  ModelConfig local = windowed;
  local.layers.push_back(small_layer());
  local.layers.back().local = true, local.attention_chunk = 16;
  ModelConfig crossed = model_of(page_size, {small_layer(), small_layer()});
  crossed.layers[1].cross = true, crossed.layers[1].params.causal = false;
  crossed.max_encoder_len = 5;
  const ModelConfig tree = model_of(2, {small_layer()}, {2, 3, kDrafts});
  const ModelConfig latent = model_of(page_size, {latent_layer()}, {1, 3, kDrafts});
  return {windowed, local, crossed, tree, latent};
}

/// A row that names no buffer of its backend would change nothing, and nobody would see it.
TEST(GraphStorage, EveryNameIsABufferOfItsBackend) {
  for (const Backend* backend : all_backends()) {
    if (backend->info().buffers.empty()) continue;  // its parts have them
    std::set<std::string_view> endings, found;
    for (const GraphStorage& row : backend->info().graph_storage) {
      EXPECT_FALSE(row.why.empty());
      endings.insert(row.buffers.begin(), row.buffers.end());
    }
    for (const ModelConfig& model : models_of(backend->info())) {
      for (const ForwardMode mode : {kDecode, kVerify, kDraft}) {
        SimDevice device;
        Meta meta;
        const int32_t q_len = mode == kVerify ? kDrafts : 1;
        const Limits limits = Limits::bucket(mode, 2, q_len, model);
        if (!backend->bind(Arena(device, size_t{1} << 20), limits, &meta).ok()) continue;
        for (const Buffer& b : meta.buffers)
          for (const std::string_view ending : endings)
            if (b.data != nullptr && b.name.ends_with(ending)) found.insert(ending);
      }
    }
    EXPECT_EQ(found, endings) << backend->info().name;
  }
}

}  // namespace
}  // namespace shadowgraph::graph_storage_test
