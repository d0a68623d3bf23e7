#include "check/recorded/other_arithmetic.h"

#include <algorithm>
#include <iterator>
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
  const auto* const other = std::ranges::find_if(kArithmetics, [&](const Arithmetic& a) {
    return is_of_kernels(a.kernel) && a.kernel != recorded.kernel &&
           judge(call, result, with_declared(a, recorded.declared), how).findings.ok();
  });
  if (other == std::end(kArithmetics)) return;
  for (Finding& f : j->findings.findings()) {
    const int64_t wrong = f.diagnosis[0].wrong;
    f.diagnosis.insert(f.diagnosis.begin(),
                       {"arithmetic",
                        "The bound of " + std::string(other->kernel) +
                            " accepts every row: is that how the kernel computes?",
                        wrong, wrong});
  }
}

}  // namespace shadowgraph
