// G123-G129: conditional nodes.
#include "conformance/programs.h"
#include "conformance/shorthand.h"

namespace shadowgraph {
namespace {

/// A graph of one conditional node with nothing before it.
struct Conditional {
  GraphHandle graph;
  ConditionalHandle handle;
  std::vector<GraphHandle> bodies;  // empty: refused
};

Conditional conditional(Run& run, ConditionalType type, uint32_t size, uint32_t default_value,
                        uint32_t flags = kCondAssignDefault) {
  Conditional result;
  result.graph = run.graph_create();
  result.handle = run.conditional_handle(result.graph, default_value, flags);
  result.bodies = run.add_conditional(result.graph, {}, result.handle, type, size);
  return result;
}

/// Inst g>x; Run x@s; Sync s
void run_once(Run& run, GraphHandle g, StreamHandle s) {
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
}

void g123(Run& run) {
  const StreamHandle s = run.st();
  int32_t *const a = run.dev(2, 0, "A"), *const v = run.dev(1, 1);
  const bool kernel_sets = run.sub_is("kernel_sets");
  const bool with_else = run.sub().starts_with('e');
  const GraphHandle g = run.graph_create();
  const ConditionalHandle h =
      kernel_sets ? run.conditional_handle(g, 0, 0)
                  : run.conditional_handle(g, run.sub().ends_with('1'), kCondAssignDefault);
  std::vector<GraphHandle> bodies;
  if (kernel_sets) {
    const NodeHandle setter = run.add_kernel(g, {}, {&k::setcond, {1}, {1}, 0, k::args(h, v)});
    bodies = run.add_conditional(g, {setter}, h, ConditionalType::kIf, 1);
  } else {
    bodies = run.add_conditional(g, {}, h, ConditionalType::kIf, with_else ? 2 : 1);
  }
  if (bodies.empty()) return;
  run.add_kernel(bodies[0], {}, node(k::add, a, 1, 1));
  if (with_else) run.add_kernel(bodies[1], {}, node(k::add, a + 1, 1, 1));
  run.dump("g", g);
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
  run.read("A1", a, 2);
  if (kernel_sets) run.put(v, {0});
  run.run(x, s);
  run.sync(s);
  run.read("A2", a, 2);
}

void g124(Run& run) {
  const StreamHandle s = run.st();
  const int32_t n = run.sub()[1] - '0';
  int32_t *const a = run.dev(1, n, "A"), *const b = run.dev(1, 0, "B");
  const auto [g, h, bodies] = conditional(run, ConditionalType::kWhile, 1, n > 0);
  if (bodies.empty()) return;
  const NodeHandle first = run.add_kernel(bodies[0], {}, node(k::add, b, 1, 1));
  run.add_kernel(bodies[0], {first}, {&k::whilestep, {1}, {1}, 0, k::args(a, h)});
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
  run.read("B1", b, 1);
  run.put(a, {n});
  run.run(x, s);
  run.sync(s);
  run.read("B2", b, 1);
  run.read("A", a, 1);
}

void g125(Run& run) {
  const StreamHandle s = run.st();
  const auto v = static_cast<uint32_t>(run.sub()[1] - '0');
  int32_t* const a = run.dev(2, 0, "A");
  const auto [g, h, bodies] = conditional(run, ConditionalType::kSwitch, 2, v);
  if (bodies.empty()) return;
  run.add_kernel(bodies[0], {}, node(k::add, a, 1, 1));
  run.add_kernel(bodies[1], {}, node(k::add, a + 1, 1, 1));
  run_once(run, g, s);
  run.read("A", a, 2);
}

void capture_host_func(Run& run, StreamHandle s, GraphHandle body) {
  run.step("cudaStreamBeginCaptureToGraph",
           run.api().stream_begin_capture_to_graph(s, body, {}, {}, run.mode));
  run.step("cudaLaunchHostFunc", run.api().launch_host_func(s, host_count, nullptr));
  run.probe("s", s);
  run.end(s);
}

void g126(Run& run) {
  const StreamHandle s = run.st();
  const EventHandle e = run.ev();
  int32_t* const a = run.dev(4, 0, "A");
  const auto [g, h, bodies] = conditional(run, ConditionalType::kIf, 1, 1);
  if (bodies.empty()) return;
  const GraphHandle body = bodies[0];
  if (run.sub_is("host")) {
    add_node(run, body, {}, HostParams{host_count});
  } else if (run.sub_is("eventRecord")) {
    add_node(run, body, {}, EventRecordParams{e});
  } else if (run.sub_is("memAlloc")) {
    add_node(run, body, {}, MemAllocParams{64});
  } else if (run.sub_is("empty_ok")) {
    add_node(run, body, {}, EmptyParams{});
  } else if (run.sub_is("memset_ok")) {
    add_node(run, body, {}, MemsetParams{a, 4, 4, 4});
  } else {
    capture_host_func(run, s, body);
  }
  const ExecHandle x = run.inst(g);
  if (!x) return;
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
}

void g127(Run& run) {
  int32_t* const a = run.dev(1, 0, "A");
  const auto [g, h, bodies] = conditional(run, ConditionalType::kIf, 1, 1);
  if (bodies.empty()) return;
  run.add_kernel(bodies[0], {}, node(k::add, a, 1, 1));
  if (run.sub_is("clone")) {
    GraphHandle clone;
    run.step("cudaGraphClone", run.api().graph_clone(g, &clone));
  } else if (run.sub_is("child")) {
    const GraphHandle parent = run.graph_create();
    add_node(run, parent, {}, ChildGraphParams{g});
  } else {
    run.inst(g);
    run.inst(g);
  }
}

void g128(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(1, 0, "A");
  const auto [g, h, bodies] = conditional(run, ConditionalType::kIf, 1, 0, 0);
  if (bodies.empty()) return;
  run.add_kernel(bodies[0], {}, node(k::add, a, 1, 1));
  run_once(run, g, s);
  run.read("A", a, 1);
}

void g129(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(1, 0, "A");
  InstantiateParams params;
  params.result = static_cast<InstantiateResult>(77);
  const GraphHandle g = run.graph_create();
  run.conditional_handle(g, 0, 0);
  run.add_kernel(g, {}, node(k::add, a, 1, 1));
  const ExecHandle x = inst(run, g, &params);
  run.fact("result", static_cast<int64_t>(params.result));
  if (!x) return;
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 1);
}

constexpr Open kG129[] = {{"", "ret cudaGraphInstantiateWithParams", "1 0"}};

constexpr Program kConditionalPrograms[] = {
    {"G123", "IF node", kE, "N", "default1 default0 else1 else0 kernel_sets", g123},
    {"G124", "WHILE node", kE, "N", "n3 n1 n0", g124},
    {"G125", "SWITCH node", kE, "N", "v0 v1 v2 v9", g125},
    {"G126", "forbidden node in a body", kE, "N",
     "host eventRecord memAlloc host_capture empty_ok memset_ok", g126},
    {"G127", "restrictions of graphs with conditional nodes", kE, "N",
     "second_instantiate clone child", g127},
    {"G128", "conditional value never set, no default", kU, "N", "", g128, "mem.uninit_read"},
    {"G129", "unused conditional handle", kS, "N", "", g129, "", kG129},
};

}  // namespace

std::span<const Program> programs_conditional() { return kConditionalPrograms; }

}  // namespace shadowgraph
