// Short forms that several themes of programs share; each comment says which calls it makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "conformance/kernels.h"
#include "conformance/program.h"

namespace shadowgraph {

/// In tables of programs.
inline constexpr auto kE = Verdict::kExact, kS = Verdict::kSet, kU = Verdict::kUndefined;

inline void get_last_error(Run& run) { run.step("cudaGetLastError", run.api().get_last_error()); }

/// node kernel<1,32>(args)
template <class... Args>
KernelLaunch node(const Kernel& kernel, const Args&... args) {
  return {&kernel, {1}, {32}, 0, k::args(args...)};
}

/// Rec e@from; Wait to,e: a fork or a join.
inline void order(Run& run, StreamHandle from, EventHandle e, StreamHandle to) {
  run.rec(e, from);
  run.wait(to, e);
}

/// cudaGraphInstantiate(&x, g, flags)
inline ExecHandle inst(Run& run, GraphHandle g, uint64_t flags) {
  ExecHandle x;
  run.step("cudaGraphInstantiate", run.api().graph_instantiate(g, flags, &x));
  return x;
}

/// cudaGraphInstantiateWithParams(&x, g, params)
inline ExecHandle inst(Run& run, GraphHandle g, InstantiateParams* params) {
  ExecHandle x;
  run.step("cudaGraphInstantiateWithParams",
           run.api().graph_instantiate_with_params(g, params, &x));
  return x;
}

/// cudaGraphAdd...Node where nobody asks for what the call fills in
inline NodeHandle add_node(Run& run, GraphHandle g, std::initializer_list<NodeHandle> after,
                           NodeParams params) {
  NodeHandle n;
  run.add_node(g, after, params, &n);
  return n;
}

/// cudaGraphAddDependencies(g, &from, &to, null, 1)
inline DeviceError add_dependency(Run& run, GraphHandle g, NodeHandle from, NodeHandle to) {
  const GraphEdge edge{from, to, {}};
  return run.step("cudaGraphAddDependencies", run.api().graph_add_dependencies(g, {&edge, 1}));
}

/// cudaMemsetAsync(p, value, bytes, s)
inline DeviceError memset_async(Run& run, void* p, uint32_t value, size_t bytes, StreamHandle s) {
  return run.step("cudaMemsetAsync",
                  run.api().memset_async({.dst = p, .value = value, .width = bytes}, s));
}

}  // namespace shadowgraph
