// What the driver of index scores (indexer_logits.cc) hands to the instruction-set units
// (kernels/isa/*_index.cc): plain data, in double.
#pragma once

#include <cstdint>
#include <string_view>

namespace shadowgraph {

/// Keys that are taken together, channel by channel.
constexpr int kIndexPanel = 16;  // edge: keys

/// dots[h, j] = sum_c q[h, c] keys[c, j] of numbers that are e4m3's: every product and every sum of
/// 128 of them is a double, so that no order and no fused operation makes a difference.
struct IndexDots {
  int32_t heads = 0;
  const double* q = nullptr;     // [heads, 128]
  const double* keys = nullptr;  // [128, kIndexPanel]
  double* dots = nullptr;        // [heads, kIndexPanel]
};

struct IndexIsa {
  void (*dots)(const IndexDots&);
};

extern const IndexIsa kGenericIndex;
extern const IndexIsa kAvx2Index;
extern const IndexIsa kAvx512Index;

/// By name of an instruction set that this machine has; empty: the current default.
const IndexIsa& index_isa(std::string_view name);

}  // namespace shadowgraph
