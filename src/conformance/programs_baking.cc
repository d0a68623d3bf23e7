// G01-G14: what a capture fixes and what a replay reads.
#include "conformance/programs.h"
#include "conformance/shorthand.h"

namespace shadowgraph {
namespace {

using k::args;

void g01(Run& r) {
  const StreamHandle s = r.st();
  int32_t *A = r.dev(4), *B = r.dev(4), *p = A;
  r.begin(s);
  r.fill(s, p, 7);
  p = B;
  const GraphHandle g = r.end(s);
  const ExecHandle e = r.inst(g);
  r.run(e, s);
  r.sync(s);
  r.dump("g", g);
  r.read("A", A, 4);
  r.read("B", B, 4);
}

void g02(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(12);
  int32_t n = 4;
  KernelArgs arguments = args(A, 7, n);
  r.begin(s);
  r.launch(k::fill, {1}, {32}, s, arguments);
  n = 9;
  arguments = args(A, 7, n);
  const GraphHandle g = r.end(s);
  const ExecHandle e = r.inst(g);
  r.run(e, s);
  r.sync(s);
  r.dump("g", g);
  r.read("A", A, 12);
}

void g03(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4);
  k::S4 v{{1, 2, 3, 4}};
  KernelArgs arguments = args(A, v);
  r.begin(s);
  r.launch(k::struct4, {1}, {32}, s, arguments);
  v = k::S4{{9, 9, 9, 9}};
  arguments = args(A, v);
  const GraphHandle g = r.end(s);
  const ExecHandle e = r.inst(g);
  r.run(e, s);
  r.sync(s);
  r.dump("g", g);
  r.read("A", A, 4);
}

void g04(Run& r) {
  const StreamHandle s = r.st();
  int32_t* C = r.dev(2);
  Dim3 grid{2}, block{32};
  r.begin(s);
  r.launch(k::count, grid, block, s, args(C, 1));
  const GraphHandle g = r.end(s);
  grid = {5};
  block = {64};
  const ExecHandle e = r.inst(g);
  r.run(e, s);
  r.sync(s);
  r.read("C1", C, 2);
  r.run(e, s);
  r.sync(s);
  r.read("C2", C, 2);
  r.dump("g", g);
}

void g05(Run& r) {
  const StreamHandle s = r.st();
  int32_t *x = r.dev(4, 3), *y = r.dev(4);
  r.begin(s);
  r.launch(k::mul, {1}, {32}, s, args(y, x, 2, 4));
  const GraphHandle g = r.end(s);
  const ExecHandle e = r.inst(g);
  r.run(e, s);
  r.sync(s);
  r.read("y1", y, 4);
  r.put(x, {5, 6, 7, 8});
  r.run(e, s);
  r.sync(s);
  r.read("y2", y, 4);
  r.dump("g", g);
}

void g06(Run& r) {
  const StreamHandle s = r.st();
  int32_t *len = r.dev(1, 3), *d = r.dev(8);
  r.begin(s);
  r.launch(k::len, {1}, {32}, s, args(d, len, 1));
  const GraphHandle g = r.end(s);
  const ExecHandle e = r.inst(g);
  r.run(e, s);
  r.sync(s);
  r.read("d1", d, 8);
  r.put(len, {6});
  r.run(e, s);
  r.sync(s);
  r.read("d2", d, 8);
  r.dump("g", g);
}

void g07(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4, 5);
  r.begin(s);
  r.fill(s, A, 7);
  const GraphHandle g = r.end(s);
  r.sync(s);
  r.dump("g", g);
  r.read("A", A, 4);
}

void g08(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(1);
  r.begin(s);
  r.add(s, A, 1, 1);
  const GraphHandle g = r.end(s);
  const ExecHandle e = r.inst(g);
  for (int i = 0; i < 5; ++i) r.run(e, s);
  r.sync(s);
  r.dump("g", g);
  r.read("A", A, 1);
}

void g09(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4);
  r.begin(s);
  r.fill(s, A, 7);
  const GraphHandle g = r.end(s);
  const ExecHandle e = r.inst(g);
  r.step("cudaGraphDestroy", r.api().graph_destroy(g));
  r.run(e, s);
  r.sync(s);
  r.read("A", A, 4);
}

void g10(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4);
  const GraphHandle g = r.graph_create();
  const NodeHandle n = r.add_kernel(g, {}, node(k::fill, A, 1, 4));
  const ExecHandle e = r.inst(g);
  r.step("cudaGraphKernelNodeSetParams", r.api().graph_node_set_params(n, node(k::fill, A, 2, 4)));
  r.run(e, s);
  r.sync(s);
  r.read("A1", A, 4);
  UpdateInfo info;
  r.step("cudaGraphExecUpdate", r.api().graph_exec_update(e, g, &info));
  r.fact("update_result", static_cast<int32_t>(info.result));
  r.run(e, s);
  r.sync(s);
  r.read("A2", A, 4);
  r.dump("g", g);
}

void g11(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4);
  KernelLaunch k1 = node(k::fill, A, 3, 4);
  const GraphHandle g = r.graph_create();
  r.add_kernel(g, {}, k1);
  k1.args = args(static_cast<int32_t*>(nullptr), 0x5a5a5a5a, 0x5a5a5a5a);
  const ExecHandle e = r.inst(g);
  r.run(e, s);
  r.sync(s);
  r.dump("g", g);
  r.read("A", A, 4);
}

void g12(Run& r) {
  const StreamHandle s1 = r.st(), s2 = r.st();
  int32_t* A = r.dev(1);
  r.begin(s1);
  r.add(s1, A, 1, 1);
  const GraphHandle g = r.end(s1);
  const ExecHandle e = r.inst(g);
  r.run(e, s2);
  r.sync(s2);
  r.read("A1", A, 1);
  r.run(e, kLegacyStream);
  r.sync(kLegacyStream);
  r.read("A2", A, 1);
  r.dump("g", g);
}

void g13(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4);
  volatile bool flag = true;
  r.begin(s);
  if (flag) {
    r.fill(s, A, 1);
  } else {
    r.fill(s, A, 2);
  }
  const GraphHandle g = r.end(s);
  const ExecHandle e = r.inst(g);
  flag = false;
  r.run(e, s);
  r.run(e, s);
  r.sync(s);
  r.dump("g", g);
  r.read("A", A, 4);
}

void g14(Run& r) {
  int32_t least = 0, greatest = 0;
  (void)r.api().device_get_stream_priority_range(&least, &greatest);
  r.fact("range_least", least);
  r.fact("range_greatest", greatest);
  const StreamHandle s0 = r.st();
  StreamHandle s1;
  const uint32_t flags = r.variant().blocking ? kStreamDefault : kStreamNonBlocking;
  r.step("cudaStreamCreateWithPriority", r.api().stream_create_with_priority(flags, -1, &s1));
  int32_t* A = r.dev(4);
  r.begin(s1);
  r.fill(s1, A, 1);
  const GraphHandle g = r.end(s1);
  r.begin(s0);
  r.fill(s0, A, 2);
  const GraphHandle g0 = r.end(s0);
  for (const bool of_default : {false, true}) {
    const std::vector<NodeHandle> nodes = r.nodes_of(of_default ? g0 : g);
    if (nodes.empty()) continue;
    int32_t priority = 77;
    r.step("cudaGraphKernelNodeGetAttribute",
           r.api().graph_kernel_node_get_priority(nodes[0], &priority));
    r.fact(of_default ? "priority_default_stream" : "priority_minus1_stream", priority);
  }
  r.dump("g", g);
  r.dump("g0", g0);
}

constexpr Program kBakingPrograms[] = {
    {"G01", "pointer argument baked", Verdict::kExact, "N", "", g01},
    {"G02", "scalar argument baked", Verdict::kExact, "N", "", g02},
    {"G03", "by-value struct baked", Verdict::kExact, "N", "", g03},
    {"G04", "launch shape baked", Verdict::kExact, "N", "", g04},
    {"G05", "contents behind pointer read at replay", Verdict::kExact, "N", "", g05},
    {"G06", "length read from device memory", Verdict::kExact, "N", "", g06},
    {"G07", "capture executes nothing", Verdict::kExact, "N", "", g07},
    {"G08", "k launches run k times", Verdict::kExact, "N", "", g08},
    {"G09", "destroy graph, exec still works", Verdict::kExact, "N", "", g09},
    {"G10", "graph edit after instantiate", Verdict::kExact, "N", "", g10},
    {"G11", "kernelParams storage freed after node add", Verdict::kExact, "N", "", g11},
    {"G12", "launch on other stream and on legacy", Verdict::kExact, "D", "", g12},
    {"G13", "host branch frozen", Verdict::kExact, "N", "", g13},
    {"G14", "node priority = stream priority", Verdict::kExact, "D", "", g14},
};

}  // namespace

std::span<const Program> programs_baking() { return kBakingPrograms; }

}  // namespace shadowgraph
