// The indexer's dots, compiled for any processor.
#include "kernels/isa/unit_includes.h"
#include "kernels/sparse/index_unit.h"

namespace shadowgraph {
namespace {
constexpr int kLanes = 2, kHeads = 1;
#include "kernels/sparse/dots.inl"
}  // namespace

const IndexIsa kGenericIndex = {index_dots};

}  // namespace shadowgraph
