// An arithmetic of an error bound in words: each member that is not plain f32's. Tested by
// tests/tools/names_test.py.
#pragma once

#include <string>

#include "check/bounds/arithmetic.h"

namespace shadowgraph::cli {

/// "tensor cores add 16 products in one step; weights are rounded to q's type; ..."
std::string words_of(const Arithmetic& arithmetic);

}  // namespace shadowgraph::cli
