// generate: a Case as a function of Choices, so that a case is its choice sequence, wherever the
// choices come from. Lengths favour the places where kernels break: 0, 1, page, panel, tile and
// split edges, one more and one less. Tested by tests/fuzz/generate_test.cc.
#pragma once

#include <optional>

#include "attn/cases/case.h"
#include "core/choices.h"
#include "shadowgraph/testing.h"

namespace shadowgraph {

/// The draw of the kernel.
inline constexpr std::string_view kKernelFactor = "kernel";
Case generate(Choices& choices);
/// A call of dense attention that somebody declares his kernel to take; nullopt: the choices make
/// none. Requires lists that are not empty.
std::optional<Case> generate_declared(Choices& choices, const testing::KernelSupport& declared);

}  // namespace shadowgraph
