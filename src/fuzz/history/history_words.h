// The words for what a history is made of, in reports and in files; each table in the order of its
// enumeration.
#pragma once

#include <string_view>

#include "attn/cases/case_names.h"
#include "check/runner.h"
#include "fuzz/history/history.h"

namespace shadowgraph {

inline constexpr std::string_view kRunnerDataNames[] = {"random", "uniform", "selector", "shifted"};
inline constexpr std::string_view kSizesNames[] = {"small", "long_extends", "long_contexts",
                                                   "many_requests"};
inline constexpr std::string_view kFamilyNames[] = {"mamba2", "gdn", "kda", "lightning"};
inline constexpr std::string_view kV4PoolNames[] = {"paged", "unified"};

inline std::string_view name_of(RunnerData data) { return word(kRunnerDataNames, data); }
inline std::string_view name_of(HistorySizes sizes) { return word(kSizesNames, sizes); }
inline std::string_view name_of(RecurrentFamily family) { return word(kFamilyNames, family); }
inline std::string_view name_of(V4Pools pools) { return word(kV4PoolNames, pools); }

}  // namespace shadowgraph
