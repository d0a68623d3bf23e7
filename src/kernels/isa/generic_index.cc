// The indexer's dots, compiled for any processor.
#include "kernels/index_unit.h"
#include "kernels/isa/unit_includes.h"

namespace shadowgraph {
namespace {
constexpr int kLanes = 2, kHeads = 1;
#include "kernels/index/dots.inl"
}  // namespace

const IndexIsa kGenericIndex = {index_dots};

}  // namespace shadowgraph
