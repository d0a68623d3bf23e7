// KernelSupport: its check, and the values that a test must draw. Tested by
// tests/testing/kernel_support_test.cc.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/cases/attention_case.h"
#include "check/bounds/arithmetic.h"
#include "shadowgraph/testing.h"

namespace shadowgraph::testing {

/// Finds options that no test can run (test.options).
Status validate(const KernelOptions& options, const Kernel& kernel);

/// "causal".
std::string_view name_of(Term term);

/// A value that must come up: "page_sizes", "64".
struct DeclaredValue {
  std::string_view field;
  std::string value;
  std::function<bool(const AttentionCase&)> is_drawn;
};
std::vector<DeclaredValue> declared_values(const KernelSupport& support);

/// Requires a name that validate() accepts.
Arithmetic arithmetic_of(const KernelSupport& support);

}  // namespace shadowgraph::testing
