// Footprints proved honest: where the build has AddressSanitizer, a kernel's body sees its
// footprint and nothing else of the allocations that its launch names. Tested by
// tests/graph/asan_guard_test.cc.
#pragma once

#include <span>

#include "graph/memory/memory.h"
#include "shadowgraph/device/access.h"
#include "shadowgraph/device/kernel.h"

#if defined(__SANITIZE_ADDRESS__)
#define SG_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SG_ASAN
#endif
#endif

namespace shadowgraph {

#ifdef SG_ASAN
inline constexpr bool kHasAsan = true;
#else
inline constexpr bool kHasAsan = false;
#endif

/// Runs the body. With AddressSanitizer, in checked memory, what lies outside the footprint is
/// poisoned meanwhile, to the byte behind a span and to a multiple of 8 before it; a kernel that
/// declares no footprint sees everything.
Progress run_body(const DeviceMemory& memory, std::span<const BakedPointer> pointers,
                  const Footprint& spans, LaunchFrame& frame);

}  // namespace shadowgraph
