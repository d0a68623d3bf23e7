// Sizes of a generated call: most calls are small, so that their time goes into combinations; the
// others have one size around an edge of kernels (core/edges.h). Tested by
// tests/fuzz/generate_test.cc.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "core/choices.h"
#include "core/edges.h"

namespace shadowgraph {

/// The size that is large: keys of a request or token, tokens of a request, requests or rows, heads
/// or a group of them, channels of a head.
enum class CallSizes : uint8_t { kSmall, kKeys, kTokens, kRows, kHeads, kWidth };
std::string_view name_of(CallSizes sizes);

inline constexpr std::string_view kCallSizesFactor = "sizes";
inline constexpr int64_t kLargeCallKinds = 5;
/// One of so many calls of a kind has a large size; the others are rows of its covering.
inline constexpr uint64_t kLargeCallEvery = 6;

/// One of those that the call has, or mostly none.
CallSizes choose_sizes(Choices& choices, std::initializer_list<CallSizes> has);

/// Below, at, above or between multiples of an edge on this axis, from about `least` to `most`;
/// `most`, and at least 1, where that is less.
int32_t large_size(Choices& choices, Axis axis, int64_t least, int64_t most);

/// Products that a call with a large size may have: what is large in one way is small in others.
int64_t choose_work(Choices& choices);

}  // namespace shadowgraph
