// The instruction-set units and how one is chosen. Tested by tests/kernels/isa_test.cc, and
// by tests/kernels/bits_test.cc: all give the same bits.
#pragma once

#include <array>
#include <string_view>

#include "kernels/unit.h"

namespace shadowgraph {

struct Finding;

using AttendFn = void (*)(const AttendUnit&);

/// One instruction set. attend is portable arithmetic; attend_fast may be the same. fold, finish,
/// merge and sum give the same bits everywhere.
struct Isa {
  std::string_view name;
  AttendFn attend;
  AttendFn attend_fast;
  void (*fold)(const FoldRows&);
  void (*finish)(const FinishRow&);
  void (*merge)(const MergeRows&);
  void (*sum)(const SumRows&);
  /// A product of tiles, of 1 to kAmxStripRows rows; null: there are no tiles.
  void (*multiply)(const TileProduct&, int64_t rows) = nullptr;
};

// fp8 to f32, by its bits.
extern const std::array<float, 256> kE4M3Values;
extern const std::array<float, 256> kE5M2Values;

extern const Isa kGenericIsa;
extern const Isa kAvx2Isa;
extern const Isa kAvx512Isa;
extern const Isa kAvx512Bf16Isa;  // fast where q, K and V are bf16, else as kAvx512Isa
extern const Isa kAmxIsa;         // fast where tiles fit, else as kAvx512Isa
extern const Isa kSoftAmxIsa;     // the same with tiles in software, else as kGenericIsa

/// By name; empty: the current default. Null if this machine does not have it. Every machine has
/// "amx_soft", though available_isas() does not tell it: it is there to be compared with.
const Isa* find_isa(std::string_view name);
/// input.isa: there is none of that name.
Finding unknown_isa(std::string_view name);

}  // namespace shadowgraph
