// SGLang's attention tests, case by case, through the twins: every case is clean, eagerly and in
// graphs. Upstream's own run of 29 May 2026 on an H200 had 172 tests and 536 subtests.
#include <cstdio>
#include <functional>

#include "backends/compose/hybrid.h"
#include "backends/compose/hybrid_linear.h"
#include "fuzz/history/small_layer.h"
#include "upstream/attention_cases.h"

namespace shadowgraph::attention_matrix_test {
namespace {

constexpr int kUpstreamTests = 172, kUpstreamSubtests = 536;

using Layers = std::vector<LayerKind> (*)(const UpstreamCase&);

std::vector<LayerKind> dense(const UpstreamCase& c) {
  LayerKind kind = small_layer(c.window_left);
  kind.params.num_qo_heads = 4, kind.params.num_kv_heads = c.kv_heads;
  return {kind};
}
std::vector<LayerKind> latent(const UpstreamCase&) { return {latent_layer()}; }
std::vector<LayerKind> dual_chunk(const UpstreamCase& c) {
  std::vector<LayerKind> layers = dense(c);
  layers[0].dual_chunk = true;
  return layers;
}
template <RecurrentFamily family>
std::vector<LayerKind> states(const UpstreamCase&) {
  return {recurrent_layer(family)};
}
std::vector<LayerKind> dense_and_gdn(const UpstreamCase& c) {
  return {dense(c)[0], recurrent_layer(RecurrentFamily::kGdn)};
}
std::vector<LayerKind> sparse(const UpstreamCase&) { return {small_sparse_layer(128)}; }
template <int32_t ratio>
std::vector<LayerKind> v4(const UpstreamCase&) {
  LayerKind kind = small_v4_layer(ratio);
  auto& layer = std::get<V4Layer>(kind.math);
  layer.window = 128, layer.index_topk = 512;
  return {kind};
}

const Backend& twin(const char* name) {
  const Backend* backend = find_backend(name);
  EXPECT_NE(backend, nullptr) << name;
  return *backend;
}
const Backend& hybrid_attn() {
  static const Hybrid backend(twin("flashinfer"), twin("triton"), VerifyBy::kDecode);
  return backend;
}
const Backend& triton_gdn() {
  static const HybridLinear backend(twin("triton"), twin("gdn"));
  return backend;
}
const Backend& flashinfer_gdn() {
  static const HybridLinear backend(twin("flashinfer"), twin("gdn"));
  return backend;
}

/// One of upstream's backends, with the cases that it has there.
struct Column {
  const char* method;
  const char* upstream;
  std::function<const Backend&()> backend;
  Layers layers;
  std::vector<const UpstreamCases*> groups;

  std::string name() const { return std::string(method) + "_" + upstream; }
};
void PrintTo(const Column& c, std::ostream* out) { *out << c.name(); }

std::function<const Backend&()> by(const char* name) {
  return [name]() -> const Backend& { return twin(name); };
}

std::vector<Column> dense_columns() {
  using namespace cases;
  const std::vector<const UpstreamCases*> lists = {
      &kInputs,     &kHeads,      &kSplitOps, &kInterleaved, &kNonMonotonic, &kVerifyChain,
      &kVerifyTree, &kCatchUpsV2, &kDrafts,   &kDraftTrees,  &kFrozenKv};
  const std::vector<const UpstreamCases*> tables = {&kInputs,      &kHeads,       &kSplitOps,
                                                    &kInterleaved, &kVerifyChain, &kCatchUpsV2,
                                                    &kDrafts,      &kFrozenKv};
  std::vector<const UpstreamCases*> flashinfer = lists;
  flashinfer.push_back(&kCatchUps);
  return {{"dense", "triton", by("triton"), dense, lists},
          {"dense", "flashinfer", by("flashinfer"), dense, flashinfer},
          {"dense", "fa3", by("flashattention"), dense, tables},
          {"dense", "fa4", by("flashattention"), dense, tables},
          {"dense", "trtllm_mha", by("trtllm_mha"), dense, {&kTrtllmMha, &kDrafts}},
          {"dense", "hybrid_attn", hybrid_attn, dense, {&kInputs}},
          {"dense", "tbo_triton", by("triton_two_batch"), dense, {&kInterleaved}},
          {"dense", "tbo_fa3", by("flashattention_two_batch"), dense, {&kVerifyChain}},
          {"swa", "triton", by("triton"), dense, {&kWindows, &kMoreWindows}},
          {"swa", "flashinfer", by("flashinfer"), dense, {&kWindows}}};
}

std::vector<Column> other_columns() {
  using namespace cases;
  using enum RecurrentFamily;
  const std::vector<const UpstreamCases*> chains = {&kInputs, &kInterleaved, &kVerifyChain};
  std::vector<const UpstreamCases*> trees = chains;
  trees.push_back(&kVerifyTree);
  return {{"mla",
           "triton",
           by("triton"),
           latent,
           {&kInputs, &kSplitOps, &kInterleaved, &kNonMonotonic, &kVerifyChain, &kVerifyTree,
            &kCatchUpsV2, &kDrafts, &kDraftTrees}},
          {"mla",
           "flashinfer",
           by("flashinfer_mla"),
           latent,
           {&kInputs, &kSplitOps, &kInterleaved, &kVerifyChain, &kCatchUps, &kDrafts}},
          {"mla", "flashmla_extend", by("flashinfer_mla"), latent, {&kFlashMlaExtends}},
          {"mla", "flashmla", by("flashmla"), latent, {&kFlashMla}},
          {"gdn", "triton", triton_gdn, dense_and_gdn, trees},
          {"gdn", "flashinfer", flashinfer_gdn, dense_and_gdn, trees},
          {"kda", "triton", by("kda"), states<kKda>, trees},
          {"lightning", "triton", by("lightning"), states<kLightning>, chains},
          {"mamba2", "triton", by("mamba2"), states<kMamba2>, {&kInputs, &kInterleaved}},
          {"dsa", "dense_fallback", by("dsa"), sparse, {&kDsaDense}},
          {"dsa", "sparse", by("dsa"), sparse, {&kDsaSparse}},
          {"dsv4", "window", by("deepseek_v4"), v4<0>, {&kV4Window}},
          {"dsv4", "blocks_4", by("deepseek_v4"), v4<4>, {&kV4Blocks4}},
          {"dsv4", "blocks_128", by("deepseek_v4"), v4<128>, {&kV4Blocks128}},
          {"dual_chunk", "flash_attn", by("dual_chunk"), dual_chunk, {&kDualChunks}}};
}

std::vector<Column> columns() {
  std::vector<Column> all = dense_columns();
  for (Column& c : other_columns()) all.push_back(std::move(c));
  return all;
}

/// Backends of upstream's matrix that make no metadata of their own, or have no twin.
constexpr std::pair<const char*, const char*> kWithoutTwin[] = {
    {"torch_native", "PyTorch's own attention: no metadata"},
    {"flex_attention", "PyTorch's own attention: a mask function in the place of metadata"},
    {"tokenspeed_mla", "no twin; upstream skips it, too"},
};

int32_t longest(const StepShape& s) {
  int32_t len = 0;
  for (size_t i = 0; i < s.prefix_lens.size(); ++i)
    len = std::max(len, s.prefix_lens[i] + (s.q_lens.empty() ? 1 : s.q_lens[i]));
  return len;
}

ModelConfig model_for(const Column& column, const UpstreamCase& c) {
  ModelConfig m = with_context(model_of(c.shape.page_size, column.layers(c), c.shape.draft),
                               longest(c.shape) + 8);
  if (m.layers[0].dual_chunk)
    m.dual_chunk = {.chunk_size = 64, .local_size = 16, .original_max_position = 32768};
  return m;
}

/// The slots of each request's new tokens, the last first.
void reverse_new_tokens(Step* step) {
  auto loc = step->out_cache_loc.begin();
  for (size_t i = 0; i < step->seq_lens.size(); ++i) {
    const int32_t q_len = step->extend_lens[i];
    const auto row = step->req_to_token.begin() + step->req_pool_indices[i] * step->width;
    std::reverse(row + step->seq_lens[i] - q_len, row + step->seq_lens[i]);
    std::reverse(loc, loc + q_len);
    loc += q_len;
  }
}

/// Requests get their states from prompts that are as long as the prefixes.
void play_prompts(const StepShape& of, Story* story) {
  StepShape prompts{.mode = ForwardMode::kExtend, .order = of.order, .states = true};
  for (const int32_t prefix : of.prefix_lens) {
    prompts.prefix_lens.push_back(0);
    prompts.q_lens.push_back(std::max(prefix, 1));
  }
  EXPECT_EQ(story->step(prompts).to_string(), "ok");
}

/// A whole draft where a backend plays one, else step by step.
const Backend& player(const Column& column, const UpstreamCase& c) {
  const Backend& backend = column.backend();
  if (c.shape.mode != ForwardMode::kDraftDecode) return backend;
  const Backend* whole = find_backend(std::string(backend.info().name) + "_multi_step");
  return whole == nullptr ? backend : *whole;
}

struct Counts {
  int64_t cases = 0, subtests = 0, eager = 0, replays = 0;
};

/// What is found in a case; of a clean one, what it counts.
Status run(const Column& column, const UpstreamCase& c, Counts* counts,
           std::unique_ptr<Tap> slip = nullptr) {
  SCOPED_TRACE(column.name() + " " + c.name);
  const Backend& backend = player(column, c);
  const auto requests = static_cast<int32_t>(c.shape.prefix_lens.size());
  const ModelConfig m = model_for(column, c);
  Story story(backend, m, std::max(2, requests), {std::max(2, requests) * c.bucket},
              std::move(slip));
  const bool has_states = !backend.info().recurrent.empty();
  if (has_states) play_prompts(c.shape, &story);
  const int64_t before = story.runner.counts().steps;
  const bool by_steps = c.shape.mode == ForwardMode::kDraftDecode && !backend.info().whole_draft;
  Counts one{.cases = 1, .subtests = c.subtests};
  for (int32_t s = 0; s < (by_steps ? c.shape.draft.num_steps - 1 : 1); ++s) {
    StepShape shape = c.shape;
    shape.states = has_states, shape.draft_step = s;
    Step step = story.made(shape);
    if (c.non_monotonic) reverse_new_tokens(&step);
    if (Status status = story.runner.step(step); !status.ok()) return status;
    ++one.eager;
    one.replays += is_captured(shape.mode);
  }
  EXPECT_EQ(story.runner.counts().steps - before, one.eager);
  EXPECT_EQ(story.runner.counts().replays, one.replays);
  EXPECT_EQ(story.runner.counts().refused, 0);
  counts->cases += one.cases, counts->subtests += one.subtests;
  counts->eager += one.eager, counts->replays += one.replays;
  return {};
}

/// All cases of a column are clean.
Counts run_all(const Column& column) {
  Counts counts;
  for (const UpstreamCases* group : column.groups)
    for (const UpstreamCase& c : *group)
      EXPECT_EQ(run(column, c, &counts).to_string(), "ok") << column.name() << " " << c.name;
  return counts;
}

class UpstreamMatrix : public ::testing::TestWithParam<Column> {};

TEST_P(UpstreamMatrix, EveryCaseIsCleanEagerlyAndInGraphs) {
  EXPECT_GT(run_all(GetParam()).cases, 0);
}

INSTANTIATE_TEST_SUITE_P(Sglang, UpstreamMatrix, ::testing::ValuesIn(columns()),
                         ::testing::PrintToStringParamName());

TEST(UpstreamMatrixFinds, ASlipInTheCasesWhereItActsAndInNoOther) {
  const auto found_in = [](const Column& column, const char* id) {
    std::vector<std::string> names;
    Counts counts;
    for (const UpstreamCases* group : column.groups)
      for (const UpstreamCase& c : *group)
        if (!run(column, c, &counts, fault(id)).ok()) names.emplace_back(c.name);
    return names;
  };
  using Names = std::vector<std::string>;
  const Column fa3{"dense",
                   "fa3",
                   by("flashattention"),
                   dense,
                   {&cases::kInputs, &cases::kVerifyChain, &cases::kCatchUpsV2}};
  EXPECT_EQ(found_in(fa3, "K01"), (Names{"draft_extend_v2", "draft_extend_v2_padded_to_4",
                                         "draft_extend_v2_padded_to_8"}));
  const Column swa{"swa", "triton", by("triton"), dense, {&cases::kWindows, &cases::kMoreWindows}};
  EXPECT_EQ(found_in(swa, "K34"), (Names{"swa_decode_above_window", "layout_swa_decode"}));
}

TEST(UpstreamTables, TheMatrixAndItsCounts) {
  Counts all;
  std::printf("%-11s %-16s %-26s %6s %6s %8s %9s\n", "method", "upstream", "twin", "cases", "eager",
              "replays", "subtests");
  for (const Column& column : columns()) {
    const Counts n = run_all(column);
    std::printf("%-11s %-16s %-26s %6ld %6ld %8ld %9ld\n", column.method, column.upstream,
                std::string(column.backend().info().name).c_str(), n.cases, n.eager, n.replays,
                n.subtests);
    all.cases += n.cases, all.subtests += n.subtests;
    all.eager += n.eager, all.replays += n.replays;
  }
  std::printf("%-55s %6ld %6ld %8ld %9ld\n", "here", all.cases, all.eager, all.replays,
              all.subtests);
  std::printf("upstream, 29 May 2026, H200: %d tests, %d subtests\n", kUpstreamTests,
              kUpstreamSubtests);
  for (const auto& [name, why] : kWithoutTwin) std::printf("not here: %s: %s\n", name, why);
  EXPECT_GE(all.eager + all.replays, kUpstreamTests);
}

}  // namespace
}  // namespace shadowgraph::attention_matrix_test
