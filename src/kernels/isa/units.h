// The instruction-set units and how one is chosen. Tested by tests/kernels/isa_test.cc: all give
// the same bits.
#pragma once

#include <array>
#include <string_view>

#include "kernels/unit.h"

namespace shadowgraph {

using AttendFn = void (*)(const AttendUnit&);

/// One instruction set. attend is portable arithmetic; attend_fast may be the same.
struct Isa {
  std::string_view name;
  AttendFn attend;
  AttendFn attend_fast;
};

// fp8 to f32, by its bits.
extern const std::array<float, 256> kE4M3Values;
extern const std::array<float, 256> kE5M2Values;

void attend_generic(const AttendUnit& unit);
void attend_avx2(const AttendUnit& unit);
void attend_avx512(const AttendUnit& unit);
void attend_avx512bf16(
    const AttendUnit& unit);  // fast arithmetic where q, K and V are bf16, else attend_avx512

/// By name; empty: the current default. Null if this machine does not have it.
const Isa* find_isa(std::string_view name);

}  // namespace shadowgraph
