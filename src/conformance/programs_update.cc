// G97-G110: updating executable graphs.
#include "conformance/programs.h"
#include "conformance/shorthand.h"

namespace shadowgraph {
namespace {

void set_exec_kernel(Run& run, ExecHandle x, NodeHandle n, const KernelLaunch& kernel) {
  run.step("cudaGraphExecKernelNodeSetParams", run.api().graph_exec_node_set_params(x, n, kernel));
}

void set_enabled(Run& run, ExecHandle x, NodeHandle n, bool enabled) {
  run.step("cudaGraphNodeSetEnabled", run.api().graph_node_set_enabled(x, n, enabled));
}

/// fact enabled: 77 where the call does not say.
void get_enabled(Run& run, ExecHandle x, NodeHandle n) {
  bool enabled = false;
  const DeviceError ret =
      run.step("cudaGraphNodeGetEnabled", run.api().graph_node_get_enabled(x, n, &enabled));
  run.fact("enabled", int64_t{ret == DeviceError::kSuccess ? enabled : 77});
}

MemcpyParams copy_16(void* dst, const void* src) {
  return {.dst = dst, .src = src, .width = 16, .kind = MemcpyKind::kDeviceToDevice};
}

void g97(Run& run) {
  const StreamHandle s = run.st();
  int32_t *const a = run.dev(1, 0, "A"), *const b = run.dev(1, 0, "B"), *const flag = run.pinned(1);
  run.begin(s);
  run.launch(k::spinflag, {1}, {1}, s, k::args(flag, a, 7, k::kSpinT));
  const GraphHandle g1 = run.end(s);
  run.begin(s);
  run.launch(k::spinflag, {1}, {1}, s, k::args(flag, b, 7, k::kSpinT));
  const GraphHandle g2 = run.end(s);
  const ExecHandle x = run.inst(g1);
  run.run(x, s);
  run.update(x, g2);
  run.run(x, s);
  *flag = 1;
  run.sync(s);
  run.read("A", a, 1);
  run.read("B", b, 1);
}

void g98(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s);
  run.fill(s, a, 1);
  const GraphHandle g1 = run.end(s);
  run.begin(s);
  memset_async(run, a, 0, 16, s);
  const GraphHandle g2 = run.end(s);
  const ExecHandle x = run.inst(g1);
  run.update(x, g2);
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
}

void g99(Run& run) {
  const StreamHandle s = run.st();
  int32_t *const a = run.dev(4, 0, "A"), *const b = run.dev(4, 0, "B");
  run.begin(s);
  run.fill(s, a, 1);
  run.fill(s, b, 1);
  const GraphHandle g1 = run.end(s);
  run.begin(s);
  run.fill(s, a, 2);
  if (!run.sub_is("one_less_chain")) run.fill(s, b, 2);
  if (run.sub_is("one_more_root")) {
    run.step("cudaStreamUpdateCaptureDependencies",
             run.api().stream_update_capture_dependencies(s, {}, {}, kSetCaptureDependencies));
  }
  if (run.sub_is("one_more_memset")) {
    memset_async(run, b, 0, 16, s);
  } else if (!run.sub_is("one_less_chain")) {
    run.fill(s, b, 3);
  }
  const GraphHandle g2 = run.end(s);
  run.dump("g1", g1);
  run.dump("g2", g2);
  const ExecHandle x = run.inst(g1);
  run.update(x, g2);
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
  run.read("B", b, 4);
}

void g100(Run& run) {
  const StreamHandle s = run.st();
  int32_t *const a = run.dev(8, 1, "A"), *const b = run.dev(8, 2, "B"),
                 *const c = run.dev(8, 3, "C"), *const h = run.pinned(8, 5);
  run.begin(s);
  if (run.sub().starts_with('H')) {
    run.cpy(a, h, 16, MemcpyKind::kHostToDevice, s);
  } else {
    run.cpy(a, b, 16, MemcpyKind::kDeviceToDevice, s);
  }
  const GraphHandle g1 = run.end(s);
  run.begin(s);
  if (run.sub_is("H2D_to_D2H")) {
    run.cpy(h, a, 16, MemcpyKind::kDeviceToHost, s);
  } else if (run.sub_is("D2D_to_H2D")) {
    run.cpy(a, h, 16, MemcpyKind::kHostToDevice, s);
  } else if (run.sub_is("H2D_longer")) {
    run.cpy(a, h, 32, MemcpyKind::kHostToDevice, s);
  } else {
    run.cpy(c, b, 16, MemcpyKind::kDeviceToDevice, s);
  }
  const GraphHandle g2 = run.end(s);
  const ExecHandle x = run.inst(g1);
  run.update(x, g2);
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 8);
  run.read("C", c, 4);
  run.read("h", h, 4);
}

/// Two roots and, unless roots_only, a node behind both.
struct Vee {
  int32_t *a, *b, *c;

  GraphHandle build(Run& run, bool swap_nodes, bool swap_edges, bool roots_only,
                    int32_t base) const {
    const KernelLaunch ka = node(k::fill, a, base + 1, 1), kb = node(k::add, b, base + 2, 1);
    const GraphHandle g = run.graph_create();
    NodeHandle na, nb;
    if (swap_nodes) {
      nb = run.add_kernel(g, {}, kb);
      na = run.add_kernel(g, {}, ka);
    } else {
      na = run.add_kernel(g, {}, ka);
      nb = run.add_kernel(g, {}, kb);
    }
    if (roots_only) return g;
    const NodeHandle last = run.add_kernel(g, {}, node(k::copy, c, a, 1));
    if (swap_edges) std::swap(na, nb);
    add_dependency(run, g, na, last);
    add_dependency(run, g, nb, last);
    return g;
  }
};

void g101(Run& run) {
  const StreamHandle s = run.st();
  const Vee vee{run.dev(1, 0, "A"), run.dev(1, 0, "B"), run.dev(1, 0, "C")};
  const bool roots_only = run.sub_is("node_order_roots_only");
  const GraphHandle g1 = vee.build(run, false, false, roots_only, 0);
  const GraphHandle g2 =
      vee.build(run, run.sub().starts_with('n'), run.sub_is("edge_order"), roots_only, 10);
  run.dump("g1", g1);
  run.dump("g2", g2);
  const ExecHandle x = run.inst(g1);
  run.update(x, g2);
  run.run(x, s);
  run.sync(s);
  run.read("A", vee.a, 1);
  run.read("B", vee.b, 1);
  run.read("C", vee.c, 1);
}

void g102(Run& run) {
  const StreamHandle s = run.st();
  int32_t *const a = run.dev(4, 0, "A"), *const b = run.dev(4, 0, "B");
  run.begin(s);
  run.fill(s, a, 1);
  run.add(s, a, 1);
  const GraphHandle g1 = run.end(s);
  run.begin(s);
  run.fill(s, b, 8);
  memset_async(run, b, 0, 4, s);
  const GraphHandle g2 = run.end(s);
  const ExecHandle x = run.inst(g1);
  run.update(x, g2);
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
  run.read("B", b, 4);
}

void g103(Run& run) {
  const StreamHandle s = run.st();
  int32_t *const a = run.dev(64, 0, "A"), *const c = run.dev(2, 0, "C");
  const GraphHandle g = run.graph_create();
  const NodeHandle n = run.add_kernel(g, {}, node(k::count, c, 1));
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
  run.read("C1", c, 2);
  set_exec_kernel(run, x, n, {&k::count, {3}, {64}, 0, k::args(c, 1)});
  run.run(x, s);
  run.sync(s);
  run.read("C2", c, 2);
  NodeParams params;
  run.step("cudaGraphKernelNodeGetParams", run.api().graph_node_get_params(n, &params));
  const KernelLaunch kernel = std::get<KernelLaunch>(params);
  run.fact("graph_grid", int64_t{kernel.grid.x});
  run.fact("graph_block", int64_t{kernel.block.x});
  set_exec_kernel(run, x, n, node(k::fill, a, 5, 4));
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
  run.read("C3", c, 2);
}

/// A graph of append(log, 1), append(log, 2), append(log, 3) in a chain; its second node.
std::pair<GraphHandle, NodeHandle> chain3(Run& run, int32_t* log) {
  const GraphHandle g = run.graph_create();
  const NodeHandle first = run.add_kernel(g, {}, node(k::append, log, 1));
  const NodeHandle second = run.add_kernel(g, {first}, node(k::append, log, 2));
  run.add_kernel(g, {second}, node(k::append, log, 3));
  return {g, second};
}

void g104(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const log = run.dev(16, 0, "L");
  const auto [g, n] = chain3(run, log);
  const ExecHandle x = run.inst(g);
  set_enabled(run, x, n, false);
  get_enabled(run, x, n);
  run.run(x, s);
  run.sync(s);
  run.read("L1", log, 8);
  set_enabled(run, x, n, true);
  run.run(x, s);
  run.sync(s);
  run.read("L2", log, 8);
  run.dump("g", g);
}

void g105(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const log = run.dev(16, 0, "L");
  const auto [g, n] = chain3(run, log);
  const ExecHandle x = run.inst(g);
  set_enabled(run, x, n, false);
  set_exec_kernel(run, x, n, node(k::append, log, 7));
  get_enabled(run, x, n);
  run.run(x, s);
  run.sync(s);
  run.read("L1", log, 8);
  set_enabled(run, x, n, true);
  run.run(x, s);
  run.sync(s);
  run.read("L2", log, 8);
}

void g106(Run& run) {
  const StreamHandle s = run.st();
  int32_t *const a = run.dev(4, 1, "A"), *const b = run.dev(4, 2, "B");
  const EventHandle e = run.ev();
  const GraphHandle g = run.graph_create();
  NodeHandle n;
  if (run.sub_is("host")) {
    n = add_node(run, g, {}, HostParams{host_count});
  } else if (run.sub_is("empty")) {
    n = add_node(run, g, {}, EmptyParams{});
  } else if (run.sub_is("memset")) {
    n = add_node(run, g, {}, MemsetParams{a, 0, 4, 4});
  } else if (run.sub_is("memcpy")) {
    n = add_node(run, g, {}, copy_16(a, b));
  } else if (run.sub_is("child")) {
    n = add_node(run, g, {}, ChildGraphParams{run.graph_create()});
  } else {
    n = add_node(run, g, {}, EventRecordParams{e});
  }
  const ExecHandle x = run.inst(g);
  set_enabled(run, x, n, false);
  get_enabled(run, x, n);
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
}

void g107(Run& run) {
  const StreamHandle s = run.st();
  int32_t *const a = run.dev(16, 0, "A"), *const b = run.dev(16, 0, "B");
  const GraphHandle g = run.graph_create();
  const std::string& sub = run.sub();
  MemsetParams set{a, 3, 4, 2};
  if (sub.ends_with("2d") && !sub.starts_with('1')) {
    set.height = 2;
    set.pitch = 16;
  }
  const NodeHandle n = add_node(run, g, {}, set);
  const ExecHandle x = run.inst(g);
  if (sub.starts_with("wider")) {
    set.width = 3;
  } else if (sub.starts_with("narrower")) {
    set.width = 1;
  } else if (sub.starts_with("value")) {
    set.value = 8;
  } else if (sub == "address1d") {
    set.dst = b;
  } else if (sub == "elemsize1d") {
    set.element_size = 1;
  } else if (sub == "taller2d") {
    set.height = 3;
  } else {
    set.height = 2;
    set.pitch = 16;
  }
  run.step("cudaGraphExecMemsetNodeSetParams", run.api().graph_exec_node_set_params(x, n, set));
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 16);
  run.read("B", b, 4);
}

void g108(Run& run) {
  const StreamHandle s = run.st();
  int32_t *const a = run.dev(4, 0, "A"), *const b = run.dev(4, 2, "B");
  const GraphHandle g = run.graph_create();
  MemcpyParams copy = copy_16(a, b);
  const NodeHandle n = add_node(run, g, {}, copy);
  const ExecHandle x = run.inst(g);
  copy.width = 0;
  run.step("cudaGraphExecMemcpyNodeSetParams1D", run.api().graph_exec_node_set_params(x, n, copy));
  run.step("cudaGraphMemcpyNodeSetParams1D", run.api().graph_node_set_params(n, copy));
  add_node(run, g, {}, copy);
  run.dump("g", g);
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
}

/// Two graphs share an exec, in the order A B A; skip: nobody updates it to B.
void share_exec(Run& run, bool skip) {
  const StreamHandle s = run.st();
  int32_t *const a = run.dev(1, 0, "A"), *const b = run.dev(1, 0, "B");
  run.begin(s);
  run.add(s, a, 1, 1);
  const GraphHandle ga = run.end(s);
  run.begin(s);
  run.add(s, b, 10, 1);
  const GraphHandle gb = run.end(s);
  const ExecHandle x = run.inst(ga);
  const auto run_as = [&](GraphHandle g) {
    run.api().expect_graph(x, g);
    run.run(x, s);
  };
  run_as(ga);
  if (!skip) run.update(x, gb);
  run_as(gb);
  run.update(x, ga);
  run_as(ga);
  run.sync(s);
  run.read("A", a, 1);
  run.read("B", b, 1);
}

void g109(Run& run) { share_exec(run, false); }
void g110(Run& run) { share_exec(run, true); }

constexpr Open kG99[] = {{"", "fact update_result", "2 6"}};
constexpr Open kG101[] = {
    {"edge_order", "ret cudaGraphExecUpdate", "0 910"},
    {"same node_order node_order_roots_only", "ret cudaGraphExecUpdate", "0"}};
constexpr Open kG107[] = {{"wider1d elemsize1d", "ret cudaGraphExecMemsetNodeSetParams", "0 1"}};

constexpr Program kUpdatePrograms[] = {
    {"G97", "update while a launch is running", kE, "N", "", g97},
    {"G98", "update: node type changed", kE, "N", "", g98},
    {"G99", "update: node count changed", kS, "N",
     "one_more_chain one_less_chain one_more_root one_more_memset", g99, "", kG99},
    {"G100", "update: memcpy direction flipped", kE, "N",
     "H2D_to_D2H D2D_to_H2D D2D_other_addresses H2D_longer", g100},
    {"G101", "update: same topology, other insertion order", kS, "N",
     "same edge_order node_order node_order_roots_only", g101,
     "edge_order=graph.update_order node_order=graph.update_order", kG101},
    {"G102", "failed update leaves the exec alone", kE, "N", "", g102},
    {"G103", "exec kernel node SetParams", kE, "N", "", g103},
    {"G104", "disable and enable a kernel node", kE, "N", "", g104},
    {"G105", "params set while disabled", kE, "N", "", g105},
    {"G106", "SetEnabled by node type", kE, "N", "host empty memset memcpy child event", g106},
    {"G107", "exec memset node SetParams", kS, "N",
     "wider1d narrower1d value1d address1d elemsize1d taller2d wider2d value2d 1dto2d", g107, "",
     kG107},
    {"G108", "memcpy node of length zero", kE, "N", "", g108},
    {"G109", "graphs of one signature share an exec", kE, "N", "", g109},
    {"G110", "as G109 with one update forgotten", kU, "N", "", g110, "mem.stale_generation"},
};

}  // namespace

std::span<const Program> programs_update() { return kUpdatePrograms; }

}  // namespace shadowgraph
