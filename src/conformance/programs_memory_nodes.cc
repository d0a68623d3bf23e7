// G111-G122: graph memory nodes. Allocations that a program leaves live are freed at its end,
// unrecorded: only G121 leaks.
#include <cstring>

#include "conformance/programs.h"
#include "conformance/shorthand.h"

namespace shadowgraph {
namespace {

constexpr size_t kBytes = 64;

void copy_16(Run& run, int32_t* dst, const int32_t* src, StreamHandle s) {
  run.cpy(dst, src, 16, MemcpyKind::kDeviceToDevice, s);
}

struct Allocation {
  NodeHandle node;
  int32_t* p = nullptr;
};

/// cudaGraphAddMemAllocNode
Allocation add_alloc(Run& run, GraphHandle g) {
  NodeParams params = MemAllocParams{kBytes};
  Allocation result;
  run.add_node(g, {}, params, &result.node);
  result.p = static_cast<int32_t*>(std::get<MemAllocParams>(params).address);
  return result;
}

void g111(Run& run) {
  const StreamHandle s = run.st();
  int32_t *const a = run.dev(4, 0, "A"), *const q = run.dev(2);
  run.begin(s);
  int32_t* const p = run.malloc_async(kBytes, s);
  run.probe("s", s);
  run.fill(s, p, 3);
  run.add(s, p, 1);
  copy_16(run, a, p, s);
  run.launch(k::ptr, {1}, {1}, s, k::args(q, p));
  run.free_async(p, s);
  const GraphHandle g = run.end(s);
  run.probe("s", s);
  run.dump("g", g);
  run.fact("p_nonnull", p != nullptr);
  const ExecHandle x = run.inst(g);
  for (const char* const i : {"1", "2", "3"}) {
    run.run(x, s);
    run.sync(s);
    const int32_t* seen = nullptr;
    std::memcpy(&seen, run.peek(q, 2).data(), sizeof seen);
    run.fact(std::string("same_ptr_") + i, seen == p);
    run.read(std::string("A") + i, a, 4);
    run.put(a, {0, 0, 0, 0});
  }
}

void g112(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s);
  int32_t* const p = run.malloc_async(kBytes, s);
  copy_16(run, a, p, s);
  run.fill(s, p, 9);
  run.free_async(p, s);
  const GraphHandle g = run.end(s);
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
  run.read("A1", a, 4);
  run.run(x, s);
  run.sync(s);
  run.read("A2", a, 4);
}

void leave_unfreed(Run& run, uint64_t flags) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s);
  int32_t* const p = run.malloc_async(kBytes, s);
  run.fill(s, p, 3);
  copy_16(run, a, p, s);
  const GraphHandle g = run.end(s);
  run.dump("g", g);
  const ExecHandle x = inst(run, g, flags);
  run.run(x, s);
  run.run(x, s);
  run.sync(s);
  run.read("A1", a, 4);
  run.free_async(p, s);
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
  run.api().free_async(p, s);
}

void g113(Run& run) { leave_unfreed(run, 0); }
void g114(Run& run) { leave_unfreed(run, kAutoFreeOnLaunch); }

void g115(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s);
  int32_t* const p = run.malloc_async(kBytes, s);
  run.fill(s, p, 3);
  const GraphHandle g = run.end(s);
  const ExecHandle x = run.inst(g);
  for (const char* const name : {"A1", "A2"}) {
    run.run(x, s);
    run.add(s, p, 4);
    run.launch(k::copy, {1}, {32}, s, k::args(a, p, 4));
    run.free_async(p, s);
    run.sync(s);
    run.read(name, a, 4);
    run.put(a, {0, 0, 0, 0});
  }
  run.free_async(p, s);
  run.sync(s);
}

void g116(Run& run) {
  const StreamHandle s = run.st(), t = run.st_nb();
  int32_t* a = run.dev(16, 0, "A");
  if (run.sub_is("explicit")) {
    const GraphHandle g = run.graph_create();
    add_node(run, g, {}, MemFreeParams{a});
    run.dump("g", g);
    return;
  }
  const bool pool = run.sub_is("pool");
  if (pool) {
    a = run.malloc_async(kBytes, t);
    run.sync(t);
  }
  run.begin(s);
  run.fill(s, a, 1);
  run.free_async(a, s);
  run.probe("s", s);
  run.fill(s, a, 2);
  const GraphHandle g = run.end(s);
  run.probe("s", s);
  run.dump("g", g);
  if (pool) run.api().free_async(a, t);
}

void g117(Run& run) {
  const StreamHandle s = run.st();
  if (run.sub_is("capture")) {
    run.begin(s);
    int32_t* const p = run.malloc_async(kBytes, s);
    run.free_async(p, s);
    run.free_async(p, s);
    run.probe("s", s);
    const GraphHandle g = run.end(s);
    run.probe("s", s);
    run.dump("g", g);
    return;
  }
  const GraphHandle g = run.graph_create();
  const Allocation alloc = add_alloc(run, g);
  const NodeHandle freed = add_node(run, g, {alloc.node}, MemFreeParams{alloc.p});
  add_node(run, g, {freed}, MemFreeParams{alloc.p});
  run.dump("g", g);
}

/// What is not allowed with g, whose nodes are in a chain.
void restricted(Run& run, GraphHandle g, std::span<const NodeHandle> nodes, StreamHandle s) {
  DeviceApi& api = run.api();
  if (run.sub_is("second_instantiate")) {
    run.inst(g);
    run.inst(g);
  } else if (run.sub_is("clone")) {
    GraphHandle clone;
    run.step("cudaGraphClone", api.graph_clone(g, &clone));
  } else if (run.sub_is("child")) {
    const GraphHandle parent = run.graph_create();
    add_node(run, parent, {}, ChildGraphParams{g});
  } else if (run.sub_is("remove_edge")) {
    const GraphEdge edge{nodes[0], nodes[1], {}};
    run.step("cudaGraphRemoveDependencies", api.graph_remove_dependencies(g, {&edge, 1}));
  } else if (run.sub_is("destroy_node")) {
    run.step("cudaGraphDestroyNode", api.graph_destroy_node(nodes[1]));
    run.step("cudaGraphDestroyNode", api.graph_destroy_node(nodes[0]));
  } else {
    const ExecHandle x = run.inst(g);
    run.step("cudaGraphExecDestroy", api.graph_exec_destroy(x));
    const ExecHandle y = run.inst(g);
    run.run(y, s);
    run.sync(s);
  }
}

void g118(Run& run) {
  const StreamHandle s = run.st();
  run.begin(s);
  int32_t* const p = run.malloc_async(kBytes, s);
  run.fill(s, p, 3);
  run.free_async(p, s);
  const GraphHandle g = run.end(s);
  run.dump("g", g);
  const std::vector<NodeHandle> nodes = run.nodes_of(g);
  if (nodes.size() < 3) {
    run.fact("note", "capture_failed");
    return;
  }
  restricted(run, g, nodes, s);
  run.dump("g", g);
}

void g119(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  const GraphHandle g = run.graph_create();
  const Allocation alloc = add_alloc(run, g);
  const KernelLaunch write = node(k::fill, alloc.p, 6, 4);
  if (run.sub_is("before_alloc")) {
    run.add_kernel(g, {}, write);
    add_node(run, g, {alloc.node}, MemFreeParams{alloc.p});
  } else {
    const NodeHandle written = run.add_kernel(g, {alloc.node}, write);
    const NodeHandle freed = add_node(run, g, {written}, MemFreeParams{alloc.p});
    run.add_kernel(g, {freed}, node(k::copy, a, alloc.p, 4));
  }
  run.dump("g", g);
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
}

/// A life on s: allocate, fill with v, copy to dst, free. The address.
const int32_t* use(Run& run, StreamHandle s, int32_t* dst, int32_t v, size_t bytes = kBytes) {
  int32_t* const p = run.malloc_async(bytes, s);
  run.fill(s, p, v);
  copy_16(run, dst, p, s);
  run.free_async(p, s);
  return p;
}

void g120(Run& run) {
  const StreamHandle s = run.st(), s2 = run.st();
  const EventHandle e = run.ev(), f = run.ev();
  int32_t* const a = run.dev(8, 0, "A");
  const bool chain = run.sub_is("chain");
  const StreamHandle second_stream = chain ? s : s2;
  run.begin(s);
  if (!chain) order(run, s, e, s2);
  const int32_t* const first = use(run, s, a, 1);
  const int32_t* const second = use(run, second_stream, a + 4, 2);
  if (!chain) order(run, s2, f, s);
  const GraphHandle g = run.end(s);
  run.dump("g", g);
  run.fact("same_address", first == second);
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 8);
}

void used_fact(Run& run, std::string_view name) {
  uint64_t bytes = 0;
  run.api().device_graph_mem_used(&bytes);
  run.fact(name, bytes > 0);
}

void g121(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  used_fact(run, "used0");
  run.begin(s);
  int32_t* const p = run.malloc_async(kBytes, s);
  run.fill(s, p, 3);
  const GraphHandle g = run.end(s);
  used_fact(run, "used_after_capture");
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
  used_fact(run, "used_after_launch");
  run.step("cudaGraphExecDestroy", run.api().graph_exec_destroy(x));
  run.step("cudaGraphDestroy", run.api().graph_destroy(g));
  used_fact(run, "used_after_destroy");
  run.add(s, p, 4);
  run.launch(k::copy, {1}, {32}, s, k::args(a, p, 4));
  run.sync(s);
  run.read("A", a, 4);
  if (run.sub_is("freed_after")) {
    run.free_async(p, s);
    run.sync(s);
    used_fact(run, "used_after_free");
  }
}

void g122(Run& run) {
  const StreamHandle s = run.st();
  int32_t *const a = run.dev(4, 0, "A"), *const b = run.dev(4, 0, "B");
  run.begin(s);
  const int32_t* const p = use(run, s, a, 3, 4096);
  const GraphHandle g1 = run.end(s);
  run.begin(s);
  const int32_t* const q = use(run, s, b, 4, 4096);
  const GraphHandle g2 = run.end(s);
  const ExecHandle x = run.inst(g1);
  const ExecHandle y = run.inst(g2);
  run.fact("same_virtual_address", p == q);
  for (int i = 0; i < 3; ++i) {
    run.run(x, s);
    run.run(y, s);
  }
  run.sync(s);
  run.read("A", a, 4);
  run.read("B", b, 4);
}

constexpr Open kG120[] = {{"chain", "fact same_address", "true false"}};

constexpr Program kMemoryNodesPrograms[] = {
    {"G111", "alloc, use and free inside a capture", kE, "A", "", g111},
    {"G112", "read of a graph allocation before writing it", kU, "N", "", g112, "mem.uninit_read"},
    {"G113", "relaunch with an unfreed graph allocation", kE, "N", "", g113},
    {"G114", "as G113 with AutoFreeOnLaunch", kE, "N", "", g114},
    {"G115", "graph allocation used and freed outside", kE, "N", "", g115},
    {"G116", "free of a cudaMalloc pointer in a graph", kE, "D", "capture explicit pool", g116},
    {"G117", "one graph allocation freed twice in one graph", kE, "D", "capture explicit", g117},
    {"G118", "restrictions of graphs with memory nodes", kE, "N",
     "second_instantiate clone child remove_edge destroy_node instantiate_after_destroy", g118},
    {"G119", "access not ordered after the allocation", kU, "N", "before_alloc after_free", g119,
     "mem.unordered_access"},
    {"G120", "address reuse inside one graph", kS, "N", "chain parallel", g120, "", kG120},
    {"G121", "destroy graph and exec with a live allocation", kE, "N", "freed_after never_freed",
     g121, "never_freed=mem.leak"},
    {"G122", "two graphs with memory nodes in one stream", kE, "N", "", g122},
};

}  // namespace

std::span<const Program> programs_memory_nodes() { return kMemoryNodesPrograms; }

}  // namespace shadowgraph
