// The indexer's dots, compiled for AVX2.
#include "kernels/index_unit.h"
#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
constexpr int kLanes = 4, kHeads = 2;
#include "kernels/index/dots.inl"
}  // namespace

const IndexIsa kAvx2Index = {index_dots};

}  // namespace shadowgraph
