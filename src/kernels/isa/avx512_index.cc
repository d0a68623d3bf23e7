// The indexer's dots, compiled for AVX-512.
#include "kernels/index_unit.h"
#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
constexpr int kLanes = 8, kHeads = 4;
#include "kernels/index/dots.inl"
}  // namespace

const IndexIsa kAvx512Index = {index_dots};

}  // namespace shadowgraph
