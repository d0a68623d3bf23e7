// The indexer's dots, compiled for AVX2.
#include "kernels/isa/unit_includes.h"
#include "kernels/sparse/index_unit.h"

namespace shadowgraph {
namespace {
constexpr int kLanes = 4, kHeads = 2;
#include "kernels/sparse/dots.inl"
}  // namespace

const IndexIsa kAvx2Index = {index_dots};

}  // namespace shadowgraph
