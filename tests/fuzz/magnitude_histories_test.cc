// Slips far from 0 that stand in for a backend's kernels: histories as they are drawn find them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "core/float_formats.h"
#include "faults/substitutes.h"
#include "fuzz/planted_histories.h"
#include "oracle/oracle.h"

namespace shadowgraph::magnitude_histories_test {
namespace {

/// fn(call, row) of each row of a launch of paged attention, after it ran.
template <class Fn>
void after_rows(const KernelLaunch& launch, SlippedRun& run, const Fn& fn) {
  run.launch(launch);
  if (run.noted()) return;
  const PagedAttention call = call_of<PagedAttention>(launch).call;
  for_each_row(call, [&](const OracleRow& row) {
    if (!row.empty()) fn(call, row);
  });
}

/// A running maximum that begins at -10^kDecimals: what lies far below weighs nothing.
template <int kDecimals>
void starts_there(const KernelLaunch& launch, SlippedRun& run) {
  after_rows(launch, run, [](const PagedAttention& call, const OracleRow& row) {
    if (row.logits.maxCoeff() > -std::pow(10.0, kDecimals) - 120) return;
    for (int64_t d = 0; d < call.out.shape[2]; ++d)
      store_float(call.out.data, call.out.dtype, call.out.offset(row.row, row.head, d), 0);
  });
}

/// Weights without a maximum taken away.
void has_no_maximum(const KernelLaunch& launch, SlippedRun& run) {
  after_rows(launch, run, [](const PagedAttention& call, const OracleRow& row) {
    if (row.logits.maxCoeff() < 88) return;
    for (int64_t d = 0; d < call.out.shape[2]; ++d)
      store_float(call.out.data, call.out.dtype, call.out.offset(row.row, row.head, d),
                  std::numeric_limits<float>::quiet_NaN());
  });
}

template <Slip slip>
struct StandsIn : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& /*meta*/, bool /*capturing*/) override {
    act(substitute<slip>(all, [](const KernelLaunch& l) { return l.kernel == &kPagedAttention; }));
  }
};

TEST(MagnitudeProbes, HistoriesFindThem) {
  const std::pair<const char*, MakeTap> probes[] = {
      {"a maximum from -1e4", tap_of<StandsIn<starts_there<4>>>()},
      {"a maximum from -1e30", tap_of<StandsIn<starts_there<30>>>()},
      {"no maximum", tap_of<StandsIn<has_no_maximum>>()},
  };
  for (const auto& [name, tap] : probes) {
    for (const char* backend : {"flashattention", "trtllm_mha"}) {
      const FuzzResult r = planted_histories(tap, {find_backend(backend)}, 400);
      ASSERT_TRUE(r.first) << name << " on " << backend;
      EXPECT_NE(r.findings.to_string().find("num.bound"), std::string::npos)
          << r.findings.to_string();
    }
  }
}

}  // namespace
}  // namespace shadowgraph::magnitude_histories_test
