#include "bench/units/best.h"

#include <algorithm>

#include "shadowgraph/attention/attention.h"

namespace shadowgraph::bench {

bool has_isa(std::string_view name) {
  const auto isas = available_isas();
  return std::find(isas.begin(), isas.end(), name) != isas.end();
}

const Unit& best_unit() {
#ifdef SG_BENCH_X86
  if (has_isa("avx512")) return kAvx512Unit;
  if (has_isa("avx2")) return kAvx2Unit;
#endif
  return kGenericUnit;
}

}  // namespace shadowgraph::bench
