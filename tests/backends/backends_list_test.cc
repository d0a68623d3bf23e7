// What holds of every backend in the list, composed ones too.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backends/paged_world.h"

namespace shadowgraph {
namespace {

/// A model that the backend serves.
ModelConfig model_for(const Backend& backend) {
  const BackendInfo& info = backend.info();
  ModelConfig m =
      model_of(info.page_sizes.empty() ? 16 : info.page_sizes[0], info.heads ? 2 : 1, 256);
  m.num_steps = 3, m.num_draft_tokens = 3;
  if (info.dual_chunk) {
    m.layers[0].dual_chunk = m.layers[0].params.causal = true;
    m.dual_chunk = {.chunk_size = 40, .local_size = 8, .original_max_position = 20};
  }
  return m;
}

/// fn(backend, mode) for all that there is; idle has no requests.
template <class Fn>
void for_all(Fn fn) {
  for (const Backend* backend : all_backends()) {
    for (const ForwardMode mode : backend->info().modes) {
      SCOPED_TRACE(std::string(backend->info().name) + " " + std::string(name_of(mode)));
      if (mode != ForwardMode::kIdle) fn(*backend, mode);
    }
  }
}

TEST(Backends, NamesAreTheListsAndFound) {
  std::vector<std::string> names;
#define SG_BACKEND(name, ...) names.push_back(#name);
#include "backends/backends.inc"
#undef SG_BACKEND
  ASSERT_EQ(names.size(), all_backends().size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(all_backends()[i]->info().name, names[i]);
    EXPECT_EQ(find_backend(names[i]), all_backends()[i]);
  }
  EXPECT_EQ(find_backend("none"), nullptr);
}

/// Dense layers only; for other layers the runner's own law holds (recurrent_world_test.cc,
/// sparse_world_test.cc).
TEST(Backends, LaunchesDependOnTheLimitsAlone) {
  for_all([](const Backend& backend, ForwardMode mode) {
    const BackendInfo& info = backend.info();
    if (!info.recurrent.empty() || info.sparse || !info.v4.empty()) return;
    PagedWorld w;
    const ModelConfig m = model_for(backend);
    const int32_t q = is_decode_or_idle(mode) ? 1 : 3, steps = q == 1 ? 3 : 0;
    const PagedBatch first(mode, {{5, q}, {90, q}, {7, q}}, m.page_size, steps);
    const PagedBatch second(mode, {{60, q}, {1, q}, {130, q}}, m.page_size, steps);
    Meta meta = w.bind(backend, Limits::bucket(mode, 4, q, m));
    const Layer layer(w, "layer", m, meta.limits.tokens, std::max(first.pages(), second.pages()));
    const std::vector<LayerIo> layers(meta.children.size() == 2 ? 2 : 1, layer.io());
    const auto record = [&](const PagedBatch& batch) {
      w.fill(backend, batch.view(), meta);
      StepIo step;
      step.layers = layers;
      Graph graph;
      const Status status = Graph::record(
          w.stream, [&](Stream& s) { backend.forward(s, meta, step); }, &graph);
      EXPECT_TRUE(status.ok()) << status.to_string();
      return graph;
    };
    const Graph kept = record(first), again = record(second);
    EXPECT_FALSE(kept.nodes().empty());
    const Status status = same_launches(kept, again);
    EXPECT_TRUE(status.ok()) << status.to_string();
  });
}

void expect_named(const Meta& meta) {
  ASSERT_NE(meta.backend, nullptr);
  EXPECT_EQ(find_backend(meta.backend->info().name), meta.backend);
  for (const Meta& child : meta.children) expect_named(child);
}

TEST(Backends, MetadataNamesTheBackendThatBoundIt) {
  for_all([](const Backend& backend, ForwardMode mode) {
    if (!backend.info().dense || !backend.info().recurrent.empty()) return;
    PagedWorld w;
    const int32_t q = is_decode_or_idle(mode) ? 1 : 3;
    const Meta meta = w.bind(backend, Limits::bucket(mode, 4, q, model_for(backend)));
    expect_named(meta);
    if (!meta.children.empty()) {
      EXPECT_EQ(meta.backend, &backend);
    }
  });
}

TEST(Backends, WhatTheyDoNotServeIsRefusedAndNothingBound) {
  for (const Backend* backend : all_backends()) {
    PagedWorld w;
    ModelConfig m = model_for(*backend);
    m.page_size = 3;
    Meta meta;
    const Limits limits = Limits::bucket(backend->info().modes[0], 4, 1, m);
    const Status status = backend->bind(w.arena, limits, &meta);
    ASSERT_FALSE(status.ok()) << backend->info().name;
    EXPECT_EQ(status.findings()[0].id, "backend.limits") << backend->info().name;
    EXPECT_EQ(w.arena.used(), 0U) << backend->info().name;
    EXPECT_TRUE(meta.buffers.empty() && meta.children.empty()) << backend->info().name;
  }
}

}  // namespace
}  // namespace shadowgraph
