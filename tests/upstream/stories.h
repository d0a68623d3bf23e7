// A story: the report's step, with the engine's slip on its path (before) and without it (after).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "check/runs.h"
#include "faults/faults.h"

namespace shadowgraph {

/// Pools for so many requests.
inline RunnerOptions pools_for(const ModelConfig& m, int32_t requests,
                               std::vector<int32_t> buckets) {
  RunnerOptions o = options_of(m, std::move(buckets));
  o.slots = o.swa_slots = pool_slots(requests, width_of(m), m.page_size);
  o.max_tokens = 4096;
  o.state_slots = 2 * requests + 1, o.draft_rows = 16;
  return o;
}

inline ModelConfig with_context(ModelConfig m, int32_t max_context_len) {
  m.max_context_len = max_context_len;
  return m;
}

struct OwnsTap {
  std::unique_ptr<Tap> tap;
};

/// The runner ends before its tap. No tap: after.
struct Story : OwnsTap, Runs {
  Story(const Backend& backend, const ModelConfig& m, int32_t requests,
        std::vector<int32_t> buckets, std::unique_ptr<Tap> before = nullptr)
      : OwnsTap{std::move(before)},
        Runs(backend, m, tapped(pools_for(m, requests, std::move(buckets)))) {}
  Story(const char* backend, const ModelConfig& m, int32_t requests, std::vector<int32_t> buckets,
        std::unique_ptr<Tap> before = nullptr)
      : Story(*find_backend(backend), m, requests, std::move(buckets), std::move(before)) {}

 private:
  RunnerOptions tapped(RunnerOptions o) const {
    o.tap = tap.get();
    return o;
  }
};

inline std::unique_ptr<Tap> fault(const char* id) { return find_fault(id)->tap(); }

/// The first finding of a law; an empty one: none.
inline Finding first_of(const Status& status, const char* law) {
  for (const Finding& f : status.findings())
    if (f.id == law) return f;
  ADD_FAILURE() << law << " is not found in: " << status.to_string();
  return {};
}

}  // namespace shadowgraph
