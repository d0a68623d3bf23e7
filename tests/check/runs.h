// Runners of small models, and steps made by hand.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "check/runner.h"
#include "fuzz/history/small_layer.h"
#include "runtime/small_steps.h"

namespace shadowgraph {

using Ints = std::vector<int32_t>;
using Laws = std::set<std::string>;

inline constexpr int32_t kContext = 16;

inline LayerKind latent_layer() {
  LayerKind latent = small_layer();
  latent.mla = true;
  latent.params.head_dim_qk = 6;
  return latent;
}

inline LayerKind recurrent_layer(RecurrentFamily family) {
  const bool lightning = family == RecurrentFamily::kLightning;
  LayerKind kind;
  kind.math = RecurrentLayer{.family = family,
                             .num_k_heads = 1,
                             .num_v_heads = lightning ? 1 : 2,
                             .head_dim_k = 4,
                             .head_dim_v = 4,
                             .conv_width = lightning ? 0 : 3,
                             .chunk_size = 4,
                             .scale = 0.5f};
  return kind;
}

inline ModelConfig model_of(int32_t page_size, std::vector<LayerKind> layers,
                            DraftShape draft = {}) {
  ModelConfig m;
  m.max_context_len = kContext;
  m.page_size = page_size;
  m.topk = draft.topk, m.num_steps = draft.num_steps, m.num_draft_tokens = draft.num_draft_tokens;
  m.layers = std::move(layers);
  return m;
}

inline int32_t width_of(const ModelConfig& m) {
  return m.max_context_len + m.max_encoder_len +
         draft_reserve({m.topk, m.num_steps, m.num_draft_tokens}, m.page_size);
}

inline RunnerOptions options_of(const ModelConfig& m, std::vector<int32_t> buckets) {
  RunnerOptions o;
  o.slots = o.swa_slots = pool_slots(3, width_of(m), m.page_size * m.dcp_size) / m.dcp_size;
  o.max_tokens = 64;
  o.state_slots = 9, o.draft_rows = 4;
  o.buckets = std::move(buckets);
  return o;
}

/// A runner of one model, and its steps.
struct Runs {
  const ModelConfig model;
  Runner runner;

  Runs(const Backend& backend, const ModelConfig& m, const RunnerOptions& options)
      : model(m), runner(backend, m, options) {
    EXPECT_EQ(runner.ready().to_string(), "ok");
  }
  explicit Runs(const ModelConfig& m, const Backend& backend = *find_backend("flashattention"))
      : Runs(backend, m, options_of(m, {1, 2, 4})) {}

  Step made(StepShape shape) const {
    shape.page_size = model.page_size * model.dcp_size;
    shape.draft = {model.topk, model.num_steps, model.num_draft_tokens};
    shape.swa = model.swa_pool;
    return make_step(shape, width_of(model));
  }
  /// Tokens that the requests have stored before, in no step of these, arrive first.
  Status step(StepShape shape) {
    Ints read = shape.prefix_lens;
    for (int32_t& tokens : read) tokens += shape.draft_step;
    if (read != stored_ || shape.encoder_lens != encoded_) {
      EXPECT_EQ(arrive(shape).to_string(), "ok");
    }
    const Step made_step = made(std::move(shape));
    const ForwardBatch batch = made_step.batch();
    stored_.clear();
    for (int64_t i = 0; i < batch.size(); ++i) stored_.push_back(batch.extent(i).kv_len);
    encoded_ = made_step.encoder_lens;
    return runner.step(made_step);
  }

 private:
  Status arrive(const StepShape& shape) {
    StepShape text = shape;
    text.mode = ForwardMode::kExtend;
    text.q_lens = std::exchange(text.prefix_lens, Ints(shape.prefix_lens.size()));
    for (int32_t& q_len : text.q_lens) q_len = std::max(q_len, 1);
    text.trees = {}, text.draft_step = 0, text.track = false;
    if (text.q_lens.empty()) return {};
    Status status = runner.pass(made(std::move(text)));
    StepShape drafted = shape;
    for (drafted.draft_step = 0; drafted.draft_step < shape.draft_step; ++drafted.draft_step)
      status.add(runner.pass(made(drafted)));
    return status;
  }

  Ints stored_, encoded_;  // lengths after the last step
};

inline Laws laws(const Status& status) {
  Laws ids;
  for (const Finding& f : status.findings()) ids.insert(f.id);
  return ids;
}

}  // namespace shadowgraph
