// The axes of SGLang's attention tests, multiplied: every twin in each of its modes, on each of its
// page sizes at the edge of a page, with each speculation that it has. All of it is clean.
#include <cstdio>

#include "fuzz/history/small_layer.h"
#include "upstream/stories.h"

namespace shadowgraph::attention_product_test {
namespace {

using enum ForwardMode;

/// topk and steps: none, a chain, and a tree where the backend has trees.
const DraftShape kNone{}, kChain{1, 2, 3}, kTree{2, 2, 3};
const DraftTree kSiblings{{-1, 0, 0}, {0, 1, 1}};

/// Heads of their own and latents, where a backend serves both; AITER has trees of heads alone.
std::vector<LayerKind> layers_of(const BackendInfo& info, const DraftShape& draft) {
  std::vector<LayerKind> layers;
  if (info.sparse) return {small_sparse_layer(8)};
  if (!info.v4.empty()) {
    const bool unified = info.v4[0] == V4Pools::kUnified;
    return {small_v4_layer(0, unified ? 4 : 0)};
  }
  if (info.dense) layers.push_back(info.heads ? small_layer() : latent_layer());
  if (info.dense && info.heads && info.latent && draft.topk == 1) layers.push_back(latent_layer());
  if (info.dual_chunk) layers[0].dual_chunk = true;
  if (!info.recurrent.empty()) layers.push_back(recurrent_layer(info.recurrent[0]));
  return layers;
}

std::vector<int32_t> pages_of(const BackendInfo& info) {
  if (info.page_sizes.empty()) return {1, 16, 64};
  return {info.page_sizes.begin(), info.page_sizes.end()};
}

std::vector<DraftShape> drafts_of(const BackendInfo& info, ForwardMode mode) {
  const bool speculates = is_target_verify(mode) || mode == kDraftDecode ||
                          is_draft_extend(mode, DraftExtendV2::kIncluded);
  if (!speculates) return {kNone};
  const bool has_branches = is_target_verify(mode) || mode == kDraftDecode;
  if (!info.tree || !has_branches) return {kChain};
  return {kChain, kTree};
}

/// One request ends a page with its first new token, the other begins one.
StepShape shape_of(ForwardMode mode, int32_t page_size, const DraftShape& draft) {
  StepShape s{.mode = mode, .page_size = page_size, .draft = draft};
  s.prefix_lens = {std::max(page_size - 1, 1), page_size};
  switch (mode) {
    case kExtend:
    case kSplitPrefill: s.q_lens = {2, 3}; break;
    case kMixed: s.q_lens = {1, 3}; break;
    case kDraftExtend:
    case kDraftExtendV2: s.q_lens = {3, 3}; break;
    case kDllmExtend: s.q_lens = {4, 4}; break;
    case kTargetVerify:
      if (draft.topk > 1) s.trees = {kSiblings, kSiblings};
      break;
    default: break;
  }
  return s;
}

struct Counts {
  int64_t modes = 0, pages = 0, cases = 0, steps = 0, replays = 0;
};

/// Plays a case; recurrent layers have states from prompts as long as the prefixes.
void play(const Backend& backend, const ModelConfig& m, StepShape shape, Counts* counts) {
  SCOPED_TRACE(std::string(backend.info().name) + " " + std::string(name_of(shape.mode)) +
               " page_size " + std::to_string(m.page_size) + " topk " + std::to_string(m.topk));
  Story story(backend, m, 3, {2});
  if (!backend.info().recurrent.empty()) {
    shape.states = true;
    const StepShape prompts{
        .mode = kExtend, .prefix_lens = {0, 0}, .q_lens = shape.prefix_lens, .states = true};
    EXPECT_EQ(story.step(prompts).to_string(), "ok");
  }
  const int64_t before = story.runner.counts().steps;
  EXPECT_EQ(story.step(shape).to_string(), "ok");
  const RunnerCounts& ran = story.runner.counts();
  EXPECT_EQ(ran.steps - before, 1);
  EXPECT_EQ(ran.refused, 0);
  EXPECT_EQ(ran.replays, is_captured(shape.mode) ? 1 : 0);
  ++counts->cases, counts->steps += ran.steps - before, counts->replays += ran.replays;
}

Counts play_all(const Backend& backend) {
  Counts counts;
  const BackendInfo& info = backend.info();
  for (const int32_t page_size : pages_of(info)) {
    ++counts.pages;
    for (const ForwardMode mode : info.modes) {
      if (mode == kIdle) continue;
      for (const DraftShape& draft : drafts_of(info, mode)) {
        ModelConfig m =
            with_context(model_of(page_size, layers_of(info, draft), draft), page_size + 8);
        if (info.dual_chunk) m.dual_chunk = {.chunk_size = page_size + 1, .local_size = 1};
        if (info.engine == &kSglangNpu) m.seq_len_fill = 0;
        play(backend, m, shape_of(mode, page_size, draft), &counts);
      }
    }
  }
  for (const ForwardMode mode : info.modes) counts.modes += mode != kIdle;
  return counts;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Backend* backend : all_backends()) all.emplace_back(backend->info().name);
  return all;
}

class UpstreamProduct : public ::testing::TestWithParam<std::string> {};

TEST_P(UpstreamProduct, OfModesPagesAndSpeculationIsClean) { play_all(*find_backend(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Twins, UpstreamProduct, ::testing::ValuesIn(names()),
                         [](const auto& name) { return name.param; });

TEST(UpstreamTables, TheProductAndItsCounts) {
  std::printf("%-32s %6s %6s %6s %8s\n", "twin", "modes", "pages", "cases", "replays");
  Counts all;
  for (const Backend* backend : all_backends()) {
    const Counts n = play_all(*backend);
    std::printf("%-32s %6ld %6ld %6ld %8ld\n", std::string(backend->info().name).c_str(), n.modes,
                n.pages, n.cases, n.replays);
    all.cases += n.cases, all.replays += n.replays;
  }
  std::printf("%-46s %6ld %8ld\n", "all", all.cases, all.replays);
  EXPECT_GT(all.cases, 0);
}

}  // namespace
}  // namespace shadowgraph::attention_product_test
