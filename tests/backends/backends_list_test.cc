// What holds of every backend in the list, composed ones too.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backends/paged_world.h"
#include "shadowgraph/engine/buffer_info.h"

namespace shadowgraph::backends_list_test {
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

/// The same of those whose layers are dense only.
template <class Fn>
void for_dense(Fn fn) {
  for_all([&](const Backend& backend, ForwardMode mode) {
    const BackendInfo& info = backend.info();
    if (info.recurrent.empty() && !info.sparse && info.v4.empty()) fn(backend, mode);
  });
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

/// Another length of padding, of a part's too.
void pad_with(int32_t fill, Meta* meta) {
  meta->limits.model.seq_len_fill = fill;
  for (Meta& child : meta->children) pad_with(fill, &child);
}

/// For layers that are not dense the runner's own law holds (recurrent_world_test.cc,
/// sparse_world_test.cc).
TEST(Backends, LaunchesDependOnTheLimitsAlone) {
  for_dense([](const Backend& backend, ForwardMode mode) {
    PagedWorld w;
    const ModelConfig m = model_for(backend);
    const int32_t q = is_decode_or_idle(mode) ? 1 : 3, steps = q == 1 ? 3 : 0;
    const PagedBatch first(mode, {{5, q}, {90, q}, {7, q}}, m.page_size, steps);
    const PagedBatch second(mode, {{60, q}, {1, q}, {130, q}}, m.page_size, steps);
    Meta meta = w.bind(backend, Limits::bucket(mode, 4, q, m));
    const Layer layer(w, "layer", m, meta.limits.tokens, std::max(first.pages(), second.pages()));
    const std::vector<LayerIo> layers(meta.children.size() == 2 ? 2 : 1, layer.io());
    const auto record = [&](const ForwardBatch& batch) {
      w.fill(backend, batch, meta);
      StepIo step;
      step.layers = layers;
      Graph graph;
      const Status status = Graph::record(
          w.stream, [&](Stream& s) { backend.forward(s, meta, step); }, &graph);
      EXPECT_TRUE(status.ok()) << status.to_string();
      return graph;
    };
    const Graph kept = record(first.view()), again = record(second.view());
    EXPECT_FALSE(kept.nodes().empty());
    Status status = same_launches(kept, again);
    pad_with(5, &meta);  // fa.I-65
    status.add(same_launches(kept, record(first.view().slice(0, 0))));
    EXPECT_TRUE(status.ok()) << status.to_string();
  });
}

/// What a fill leaves, of all parts.
void add_filled(const Meta& meta, std::vector<std::vector<std::byte>>* all) {
  for (const Buffer& b : meta.buffers)
    if (b.data != nullptr && b.lifetime == Lifetime::kPerStep)
      all->emplace_back(b.data, b.data + b.bytes());
  for (const Meta& child : meta.children) add_filled(child, all);
}

/// fi.I-78.
TEST(Backends, ToFillTwiceIsToFillOnce) {
  for_dense([](const Backend& backend, ForwardMode mode) {
    PagedWorld w;
    const ModelConfig m = model_for(backend);
    const int32_t q = is_decode_or_idle(mode) ? 1 : 3, steps = q == 1 ? 3 : 0;
    const PagedBatch longer(mode, {{60, q}, {90, q}, {130, q}}, m.page_size, steps);
    const PagedBatch batch(mode, {{5, q}, {40, q}}, m.page_size, steps);
    Meta meta = w.bind(backend, Limits::bucket(mode, 4, q, m));
    w.fill(backend, longer.view(), meta);
    std::vector<std::vector<std::byte>> once, twice;
    w.fill(backend, batch.view(), meta);
    add_filled(meta, &once);
    w.fill(backend, batch.view(), meta);
    add_filled(meta, &twice);
    EXPECT_FALSE(once.empty());
    EXPECT_EQ(once, twice);
  });
}

int64_t value(const Buffer& b, int64_t i) {
  if (b.dtype == DType::kI64) return reinterpret_cast<const int64_t*>(b.data)[i];
  return reinterpret_cast<const int32_t*>(b.data)[i];
}

/// Elements [first, first + count), which a fill writes.
void add_values(const Buffer& b, int64_t first, int64_t count, std::vector<int64_t>* all) {
  if (b.data == nullptr || b.lifetime != Lifetime::kPerStep) return;
  for (int64_t i = first; i < first + count; ++i) all->push_back(value(b, i));
}

/// What of a batch's metadata is its rows': lengths, offsets, slots to store in, and the slots or
/// pages of all keys. eager: bound for exactly these rows, so that it says how many there are.
std::vector<int64_t> real_rows(const Meta& eager, const Meta& meta) {
  std::vector<int64_t> all;
  for (const BufferInfo& row : meta.backend->info().buffers) {
    const bool in_rows = row.role == Role::kKeyLens || row.role == Role::kKeyOffsets ||
                         row.role == Role::kQueryOffsets || row.role == Role::kQueryEnds ||
                         row.role == Role::kStored || row.role == Role::kStoredInWindow;
    const auto i = static_cast<size_t>(row.buffer);
    if (in_rows && eager.has(i)) add_values(meta[i], 0, eager[i].numel(), &all);
  }
  for (const KeyList& list : meta.backend->key_lists(meta, meta.limits.model.layers[0])) {
    const auto keys = static_cast<size_t>(list.keys), lens = static_cast<size_t>(list.lens);
    if (!eager.has(lens) || !eager.has(keys)) continue;
    if (list.kind == KeyList::Kind::kSlots)
      add_values(meta[keys], 0, value(eager[lens], eager[lens].numel() - 1), &all);
    for (int64_t row = 0; list.kind == KeyList::Kind::kTable && row < eager[lens].numel(); ++row) {
      const int64_t unit = meta.units[keys], columns = meta[keys].shape.back();
      const int64_t used = (value(eager[lens], row) + unit - 1) / unit;
      add_values(meta[keys], row * columns, used, &all);
    }
  }
  return all;
}

/// fa.I-67, fi.I-74. A composed backend's rows are those of its parts.
TEST(Backends, AGraphsRowsAreThoseOfTheEagerStep) {
  for_dense([](const Backend& backend, ForwardMode mode) {
    PagedWorld w;
    const ModelConfig m = model_for(backend);
    const int32_t q = is_decode_or_idle(mode) ? 1 : 3, steps = q == 1 ? 3 : 0;
    const PagedBatch longer(mode, {{60, q}, {90, q}, {130, q}}, m.page_size, steps);
    const PagedBatch batch(mode, {{5, q}, {40, q}}, m.page_size, steps);
    Meta graph = w.bind(backend, Limits::bucket(mode, 4, q, m));
    if (!graph.children.empty()) return;
    w.fill(backend, longer.view(), graph);
    w.fill(backend, batch.view(), graph);
    const Meta eager = w.exact(backend, batch.view(), m);
    const std::vector<int64_t> want = real_rows(eager, eager);
    EXPECT_GT(want.size(), 4u);
    EXPECT_EQ(real_rows(eager, graph), want);
  });
}

void expect_named(const Meta& meta) {
  ASSERT_NE(meta.backend, nullptr);
  EXPECT_EQ(find_backend(meta.backend->info().name), meta.backend);
  for (const Meta& child : meta.children) expect_named(child);
}

/// fi.I-70: each part of a composed backend is bound.
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
}  // namespace shadowgraph::backends_list_test
