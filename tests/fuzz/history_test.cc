// Histories of every backend find nothing, and are functions of their choices.
#include "fuzz/history/history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "fuzz/fuzz.h"
#include "runtime/scheduler.h"

namespace shadowgraph::history_test {
namespace {

constexpr uint64_t kSeed = 11;

std::vector<const Backend*> everyone() {
  const auto all = all_backends();
  return {all.begin(), all.end()};
}

using Coverage = std::map<std::string, int64_t>;

/// The coverage of histories without a finding.
Coverage coverage_of(std::span<const Backend* const> backends, uint64_t histories) {
  Coverage all;
  for (uint64_t number = 0; number < histories; ++number) {
    Choices choices = history_choices(kSeed, number, backends);
    const History h = generate_history(choices, backends);
    const HistoryResult result = run_history(h, choices, nullptr);
    EXPECT_EQ(result.findings.to_string(), "ok") << "history " << number << ": " << h.to_string();
    EXPECT_EQ(result.counts.steps + result.counts.refused, result.steps);
    int64_t received = 0;
    for (const auto& [name, steps] : result.coverage)
      received += name.ends_with(" received") ? steps : 0;
    EXPECT_EQ(result.judged + received, result.counts.steps);
    EXPECT_LE(result.steps, h.steps);
    for (const auto& [name, steps] : result.coverage) all[name] += steps;
  }
  return all;
}

TEST(History, OfEveryBackendFindsNothing) {
  const Coverage coverage = coverage_of(everyone(), 300);
  EXPECT_GT(coverage.size(), 20u);
}

TEST(History, RunsEveryModeThatASchedulerMakesEagerlyAndWhereGraphsAreAsAReplay) {
  const Backend* fa[] = {find_backend("flashattention")};
  const Coverage coverage = coverage_of(fa, 150);
  const ForwardMode eager_only[] = {ForwardMode::kExtend, ForwardMode::kMixed,
                                    ForwardMode::kSplitPrefill};
  const ForwardMode captured[] = {ForwardMode::kDecode,       ForwardMode::kIdle,
                                  ForwardMode::kTargetVerify, ForwardMode::kDraftExtend,
                                  ForwardMode::kDraftDecode,  ForwardMode::kDllmExtend,
                                  ForwardMode::kDraftExtendV2};
  const auto steps = [&](ForwardMode mode, const char* phase) {
    const auto it = coverage.find("flashattention " + std::string(name_of(mode)) + phase);
    return it == coverage.end() ? 0 : it->second;
  };
  for (const ForwardMode mode : eager_only) {
    EXPECT_GT(steps(mode, " eager"), 0) << name_of(mode);
    EXPECT_EQ(steps(mode, " replay"), 0) << name_of(mode);
  }
  EXPECT_GT(steps(ForwardMode::kPrebuilt, " received"), 0);
  for (const ForwardMode mode : captured) {
    EXPECT_GT(steps(mode, " eager"), 0) << name_of(mode);
    EXPECT_GT(steps(mode, " replay"), 0) << name_of(mode);
  }
}

TEST(History, AWholeDraftIsPlayedOnceARoundInBothPhases) {
  for (const Backend* b : everyone()) {
    if (!b->info().whole_draft) continue;
    const Backend* one[] = {b};
    const Coverage coverage = coverage_of(one, 30);
    const std::string name(b->info().name);
    std::vector<std::string> rows;
    for (const auto& [row, steps] : coverage) rows.push_back(row);
    EXPECT_EQ(rows,
              (std::vector<std::string>{name + " draft_decode eager", name + " draft_decode replay",
                                        name + " prebuilt received"}));
  }
}

TEST(History, EveryGeneratedRuntimeIsValidAndEveryFeatureComes) {
  std::map<std::string, int> features;
  const auto backends = everyone();
  for (uint64_t number = 0; number < 20000; ++number) {
    Choices choices = history_choices(kSeed, number, backends);
    const History h = generate_history(choices, backends);
    ASSERT_EQ(validate(h.runtime).to_string(), "ok") << h.to_string();
    EXPECT_EQ(h.model.page_size * h.model.dcp_size, h.runtime.page_size);
    EXPECT_EQ(h.runner.slots, int64_t{h.runtime.num_pages + 1} * h.model.page_size);
    features["radix"] += h.runtime.radix;
    features["window pool"] += h.runtime.window_left >= 0;
    features["encoder"] += h.runtime.max_encoder_len > 0;
    features["diffusion"] += h.runtime.dllm_block > 0;
    features["chain"] += h.runtime.draft.num_steps > 0 && h.runtime.draft.topk == 1;
    features["tree"] += h.runtime.draft.topk > 1;
    features["latent"] += h.model.layers[0].mla;
    features["prefix in chunks"] += h.model.prefix_chunk_tokens > 0;
    features["local"] += h.model.attention_chunk > 0;
    features["items"] += h.items;
    features["prebuilt"] += h.runtime.prebuilt;
    if (h.model.two_chunk_below > 0 && number < 2000) {
      Scheduler scheduler(h.runtime);
      for (int32_t i = 0; i < h.steps; ++i) {
        const Step step = scheduler.next(choices);
        features["cut inside a request"] += Limits::exact(step.batch(), h.model).split_request;
      }
    }
    features["ranks"] += h.model.dcp_size > 1;
    features["later ranks"] += h.model.dcp_rank > 0;
    features[std::string(h.backend->info().name)] += 1;
  }
  for (const auto& [name, histories] : features) EXPECT_GT(histories, 10) << name;
  EXPECT_EQ(features.size(), 14 + backends.size());
}

TEST(History, TheSameChoicesAreTheSameHistory) {
  const auto backends = everyone();
  for (uint64_t number = 0; number < 20; ++number) {
    Choices choices = history_choices(kSeed, number, backends);
    const History h = generate_history(choices, backends);
    const HistoryResult result = run_history(h, choices, nullptr);
    Choices again(choices.made());
    const History same = generate_history(again, backends);
    const HistoryResult repeated = run_history(same, again, nullptr);
    EXPECT_EQ(same.to_string(), h.to_string());
    EXPECT_EQ(repeated.coverage, result.coverage);
    EXPECT_EQ(repeated.counts.rows, result.counts.rows);
    EXPECT_EQ(repeated.counts.captures, result.counts.captures);
    EXPECT_EQ(again.made(), choices.made());
  }
}

TEST(History, EndsAtItsFirstFinding) {
  struct Refuses : Tap {
    Status filled(const ForwardBatch& batch, Meta&) override {
      Status status;
      if (is_decode(batch.mode)) status.add(Finding{});
      return status;
    }
  };
  const Backend* fa[] = {find_backend("flashattention")};
  int found = 0, shorter = 0;
  for (uint64_t number = 0; number < 40; ++number) {
    Choices choices = history_choices(kSeed, number, fa),
            whole = history_choices(kSeed, number, fa);
    const History h = generate_history(choices, fa);
    const HistoryResult result = run_history(h, choices, tap_of<Refuses>());
    if (result.findings.ok()) continue;
    ++found;
    run_history(generate_history(whole, fa), whole, nullptr);
    shorter += choices.made().size() < whole.made().size();
    EXPECT_EQ(std::as_const(result.findings).findings().size(), 1u);
    int64_t decodes = 0;
    for (const auto& [name, steps] : result.coverage) {
      if (name == "flashattention decode eager" || name == "flashattention draft_decode eager")
        decodes += steps;
    }
    EXPECT_EQ(decodes, 1);
  }
  EXPECT_GT(found, 15);
  EXPECT_GT(shorter, 15);  // the scheduler made no step behind it
}

TEST(History, WhatAHistoryMadeIsReadWhole) {
  const auto backends = everyone();
  for (uint64_t number = 0; number < 20; ++number) {
    Choices choices = history_choices(kSeed, number, backends);
    run_history(generate_history(choices, backends), choices, nullptr);
    Choices again(choices.made());
    run_history(generate_history(again, backends), again, nullptr);
    const ChoicesRead read = compare_choices(choices.made(), again.made());
    EXPECT_TRUE(read.out_of_range.empty() && read.behind == 0 && !read.none);
  }
}

}  // namespace
}  // namespace shadowgraph::history_test
