#include "check/recorded/other_arithmetic.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "check/bounds/declared.h"
#include "core/law_counts.h"

namespace shadowgraph {
namespace {

/// An arithmetic of attention that a recording may have; not ours, and none of chosen keys.
bool is_of_kernels(std::string_view name) {
  for (const std::string_view other : {"ours_", "cuda_", "ds", "float64", "flashinfer_merge"})
    if (name.starts_with(other)) return false;
  return name.find("sparse") == name.npos;
}

}  // namespace

void suggest_arithmetic(const AnyCall& call, const Recorded& recorded, const Result& result,
                        const JudgeOptions& how, Judgement* j) {
  const auto open = std::ranges::find_if(j->findings.findings(), [](const Finding& f) {
    return !f.diagnosis.empty() && f.diagnosis[0].explained < f.diagnosis[0].wrong;
  });
  if (open == j->findings.findings().end()) return;
  LawCounts not_counted;
  const CountsJudgements trials(&not_counted);
  const Arithmetic* narrowest = nullptr;
  double nearest = 0;
  for (const Arithmetic& other : kArithmetics) {
    if (!is_of_kernels(other.kernel) || other.kernel == recorded.kernel) continue;
    const Judgement as = judge(call, result, with_declared(other, recorded.declared), how);
    const double ratio = std::max(as.error_over_bound, as.lse_error_over_bound);
    if (as.findings.ok() && ratio >= nearest) narrowest = &other, nearest = ratio;
  }
  if (narrowest == nullptr) return;
  for (Finding& f : j->findings.findings()) {
    const int64_t wrong = f.diagnosis[0].wrong;
    f.diagnosis.insert(f.diagnosis.begin(),
                       {"arithmetic",
                        "The bound of " + std::string(narrowest->kernel) +
                            " accepts every row: is that how the kernel computes?",
                        wrong, wrong});
  }
}

}  // namespace shadowgraph
