// Histories that tests look into: engines of every feature, and the first step that is as wanted.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "runtime/scheduler.h"

namespace shadowgraph {

/// A step and the pools that it was made from.
struct Moment {
  Step step;
  PoolState state;
};

struct Engine {
  std::string name;
  RuntimeConfig config;
  std::set<ForwardMode> modes;  // that its histories have
};

inline RuntimeConfig config_of(int32_t page_size) {
  RuntimeConfig c;
  c.page_size = page_size;
  c.num_pages = 64 / page_size;
  return c;
}

inline RuntimeConfig with_window(RuntimeConfig c) {
  c.window_left = 5;
  c.swa_pages = (16 + draft_reserve(c.draft, c.page_size)) / c.page_size + 3;
  if (c.prebuilt) c.swa_pages = std::max(c.swa_pages, 32 / c.page_size);
  return c;
}

inline RuntimeConfig drafting(int32_t page_size, const DraftShape& shape) {
  RuntimeConfig c = config_of(page_size);
  c.draft = shape;
  c.num_pages = 160 / page_size;
  return c;
}

/// Every feature, with pages of one and of several tokens, in pools that run short.
inline std::vector<Engine> engines() {
  using enum ForwardMode;
  const std::set<ForwardMode> usual{kExtend, kSplitPrefill, kDecode, kMixed, kIdle};
  std::vector<Engine> all;
  for (const int32_t page_size : {1, 4}) {
    const RuntimeConfig plain = config_of(page_size);
    all.push_back({"plain", plain, usual});
    RuntimeConfig c = plain;
    c.radix = true;
    all.push_back({"radix", c, usual});
    all.push_back({"swa", with_window(plain), usual});
    c = plain;
    c.max_encoder_len = 8;
    all.push_back({"encoder", c, usual});
    c = plain;
    c.state_slots = 5;
    all.push_back({"states", c, usual});
    c.radix = true, c.state_slots = 7, c.state_chunk = 4;
    all.push_back({"states radix", c, usual});
    c = plain;
    c.dllm_block = 3, c.radix = true;
    all.push_back({"dllm", c, {kExtend, kSplitPrefill, kDllmExtend, kIdle}});
    c = plain;
    c.prebuilt = true;
    all.push_back({"prebuilt", c, {kPrebuilt, kDecode, kIdle}});
    all.push_back({"prebuilt swa", with_window(c), {kPrebuilt, kDecode, kIdle}});
    c.radix = true;
    all.push_back({"prebuilt radix", c, {kPrebuilt, kDecode, kIdle}});
    const std::set<ForwardMode> eagle{kExtend,      kSplitPrefill,  kDraftDecode, kTargetVerify,
                                      kDraftExtend, kDraftExtendV2, kIdle};
    for (const DraftShape shape : {DraftShape{1, 3, 4}, DraftShape{2, 3, 6}, DraftShape{4, 2, 4}}) {
      c = drafting(page_size, shape);
      all.push_back({"eagle swa", with_window(c), eagle});
      c.radix = true;
      all.push_back({"eagle", c, eagle});
      c.state_slots = 6, c.state_chunk = 4;
      all.push_back({"eagle states", c, eagle});
    }
    all.push_back({"one draft",
                   drafting(page_size, {3, 1, 3}),
                   {kExtend, kSplitPrefill, kTargetVerify, kDraftExtend, kDraftExtendV2, kIdle}});
  }
  return all;
}

/// Every step of some histories; stops where a step is refused.
inline void play(const RuntimeConfig& config, uint64_t seeds, int steps,
                 const std::function<void(const Moment&, uint64_t seed, int step)>& look) {
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    Choices choices{Rng(seed)};
    Scheduler scheduler(config);
    for (int i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) {
      Moment m;
      m.step = scheduler.next(choices);
      m.state = scheduler.state();
      look(m, seed, i);
    }
  }
}

/// The first step of a history that is as wanted.
inline Moment moment(const RuntimeConfig& config,
                     const std::function<bool(const Moment&)>& wanted) {
  Choices choices{Rng(7)};
  Scheduler scheduler(config);
  for (int i = 0; i < 5000; ++i) {
    Moment m;
    m.step = scheduler.next(choices);
    m.state = scheduler.state();
    if (wanted(m)) return m;
  }
  ADD_FAILURE() << "no such step";
  return {};
}

}  // namespace shadowgraph
