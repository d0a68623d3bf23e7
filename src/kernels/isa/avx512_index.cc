// The indexer's dots, compiled for AVX-512.
#include "kernels/isa/unit_includes.h"
#include "kernels/sparse/index_unit.h"

namespace shadowgraph {
namespace {
constexpr int kLanes = 8, kHeads = 4;  // no edge: it divides kIndexPanel
#include "kernels/sparse/dots.inl"
}  // namespace

const IndexIsa kAvx512Index = {index_dots};

}  // namespace shadowgraph
