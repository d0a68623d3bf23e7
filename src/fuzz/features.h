// Features that random cases can have, and how many had each. A run without findings says by this
// what it looked at, as law_counts.h does for laws. Tested by tests/fuzz/features_test.cc.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/cases/case.h"
#include "fuzz/history/history.h"

namespace shadowgraph {

/// Cases by "histories topk" or "calls custom_mask packed".
using FeatureCounts = std::map<std::string, int64_t>;

struct FuzzFeature {
  std::string name;                             // "histories topk"
  std::string what;                             // "drafts are trees"
  std::vector<std::string_view> backends = {};  // of histories: that serve it
};
std::vector<FuzzFeature> describe_features();

/// Features of histories that one of the backends serves, and of kernels' calls; each 0.
FeatureCounts all_features(std::span<const Backend* const> backends, bool kernels);

/// One more for each feature that it has.
void count_features(const History& history, FeatureCounts* counts);
void count_features(const Case& x, FeatureCounts* counts);

}  // namespace shadowgraph
