#include "attn/cases/case.h"

#include "attn/cases/case_names.h"

namespace shadowgraph {

CaseKernel Case::kernel() const {
  if (const auto* attention = as<AttentionCase>()) return attention->kernel;
  constexpr CaseKernel kOthers[] = {CaseKernel::kMergeStates, CaseKernel::kLinear,
                                    CaseKernel::kSparse};
  return kOthers[call.index() - 1];
}

void Case::set_kernel(CaseKernel kernel) {
  switch (kernel) {
    case CaseKernel::kMergeStates: call = MergeCase(); return;
    case CaseKernel::kLinear: call = RecurrentCase(); return;
    case CaseKernel::kSparse: call = SparseCase(); return;
    default: call.emplace<AttentionCase>().kernel = kernel;
  }
}

int64_t Case::tokens() const {
  return std::visit([](const auto& c) { return c.tokens(); }, call);
}

std::string Case::to_string() const {
  const auto text = [&](const auto& c) { return c.to_string(word(kCaseDataNames, data)); };
  std::string s = std::visit(text, call);
  if (more_threads > 0) s += " threads=" + std::to_string(1 + more_threads);
  return s + (far ? " far" : "") + " seed=" + std::to_string(seed);
}

}  // namespace shadowgraph
