// RunnerWorld: what the pools hold before a step, and what a prebuilt one leaves in them.
#include "check/worlds/runner_world.h"

#include <gtest/gtest.h>

#include <cstring>

#include "check/canonical.h"
#include "check/runs.h"

namespace shadowgraph::runner_world_test {
namespace {

using Bytes = std::vector<std::byte>;

/// K and V of a slot in layer 0.
Bytes contents(const RunnerWorld& world, const ModelConfig& model, int64_t slot) {
  const KvCache cache = world.layers(1)[0].cache;
  Bytes bytes;
  for (const KvPlane& plane : {cache.k, cache.v}) {
    const auto* token = plane.data + (slot / model.page_size * plane.page_stride +
                                      slot % model.page_size * plane.token_stride) *
                                         static_cast<int64_t>(sizeof(float));
    bytes.insert(bytes.end(), token, token + plane.head_dim * sizeof(float));
  }
  return bytes;
}

TEST(RunnerWorld, WhatIsPrebuiltIsNewInSlotsThatAnotherRequestHadToo) {
  const ModelConfig model = model_of(2, {small_layer()});
  RunnerWorld world(*find_backend("flashattention"), model, options_of(model, {1}));
  ASSERT_EQ(world.ready().to_string(), "ok");
  Step step = make_step(
      {.mode = ForwardMode::kPrebuilt, .page_size = 2, .prefix_lens = {2, 0}, .q_lens = {3, 4}},
      width_of(model));
  const auto row = [&](int64_t r) { return step.batch().req_to_token.row(r); };
  const auto all = [&] {
    std::vector<Bytes> slots;
    for (const int64_t r : {1, 2}) {
      for (size_t c = 0; c < (r == 1 ? 5 : 4); ++c)
        slots.push_back(contents(world, model, row(r)[c]));
    }
    return slots;
  };
  world.begin_step(step);
  const std::vector<Bytes> first = all();
  step.requests = {7, 8};
  // They share a prefix, and nothing else.
  for (Chain& chain : step.chains.fresh) chain = extend(chain, 0);
  world.begin_step(step);
  const std::vector<Bytes> second = all();
  for (size_t i = 0; i < first.size(); ++i) {
    // The prefix was stored before: it may be shared.
    EXPECT_EQ(second[i] == first[i], i < 2) << i;
    for (size_t j = 0; j < i; ++j) EXPECT_NE(second[i], second[j]);
  }
}

/// fa.I-56: a NaN of padding that came through to a real row would be a finding in every replay.
TEST(RunnerWorld, WhatPaddingReadsIsNaN) {
  const ModelConfig model = model_of(2, {small_layer()});
  const RunnerWorld world(*find_backend("flashattention"), model, options_of(model, {1}));
  for (const int64_t slot : {0, 1}) {
    for (const std::byte b : contents(world, model, slot)) EXPECT_EQ(b, std::byte{0xff}) << slot;
  }
}

TEST(RunnerWorld, WhatAStepStoresIsKAndV) {
  const ModelConfig model = model_of(2, {small_layer()});
  RunnerWorld world(*find_backend("flashattention"), model, options_of(model, {1}));
  const Step step = make_step({.page_size = 2, .prefix_lens = {3, 4}}, width_of(model));
  world.begin_step(step);
  const LayerIo io = world.layers(2)[0];
  const ForwardBatch batch = step.batch();
  const CanonicalRows rows = canonical_rows(batch, model.layers[0], model);
  const auto store = [&](const KvPlane& plane, const ConstTensorView& of, int64_t t) {
    const int64_t slot = rows.stored[static_cast<size_t>(t)];
    const auto bytes = static_cast<size_t>(plane.head_dim) * sizeof(float);
    std::memcpy(plane.data + static_cast<size_t>(slot) * bytes, of.at(t), bytes);
  };
  const auto found = [&](int64_t token) {
    return "slot.write: out_cache_loc[" + std::to_string(token) + "] is others there, expected " +
           "its K and V in slot " + std::to_string(rows.stored[static_cast<size_t>(token)]);
  };
  EXPECT_EQ(world.check_stored(batch).to_string(), found(0));
  for (const int64_t t : {0, 1}) store(io.cache.k, io.k, t);
  EXPECT_EQ(world.check_stored(batch).to_string(), found(0)) << "its V is missing";
  store(io.cache.v, io.v, 0);
  EXPECT_EQ(world.check_stored(batch).to_string(), found(1));
  store(io.cache.v, io.v, 1);
  EXPECT_EQ(world.check_stored(batch).to_string(), "ok");
}

}  // namespace
}  // namespace shadowgraph::runner_world_test
