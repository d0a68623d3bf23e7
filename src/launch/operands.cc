#include "launch/operands.h"

namespace shadowgraph {

std::vector<Operand> operands_of(const NodeParams& node) {
  std::vector<Operand> all;
  OperandLister list(&all);
  if (const auto* launch = std::get_if<KernelLaunch>(&node)) {
    if (launch->kernel->operands != nullptr) launch->kernel->operands(*launch, &all);
  } else if (const auto* copy = std::get_if<MemcpyParams>(&node)) {
    MemcpyParams c = *copy;
    list("dst", c.dst);
    list("src", c.src);
  } else if (const auto* set = std::get_if<MemsetParams>(&node)) {
    MemsetParams s = *set;
    list("dst", s.dst);
  }
  return all;
}

}  // namespace shadowgraph
