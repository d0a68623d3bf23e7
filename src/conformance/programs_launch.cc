// G84-G96: instantiate and launch.
#include "conformance/programs.h"
#include "conformance/shorthand.h"

namespace shadowgraph {
namespace {

constexpr auto kUntouched = static_cast<InstantiateResult>(77);

void result_fact(Run& run, const InstantiateParams& params) {
  run.fact("result", static_cast<int64_t>(params.result));
}

GraphHandle capture_fill(Run& run, StreamHandle s, int32_t* p, int32_t v) {
  run.begin(s);
  run.fill(s, p, v);
  return run.end(s);
}

void g84(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 5, "A");
  run.begin(s);
  const GraphHandle g = run.end(s);
  run.dump("g", g);
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
}

void g85(Run& run) {
  InstantiateParams params;
  params.result = kUntouched;
  const GraphHandle g = run.graph_create();
  const NodeHandle a = add_node(run, g, {}, EmptyParams{});
  const NodeHandle b = add_node(run, g, {}, EmptyParams{});
  add_dependency(run, g, a, b);
  add_dependency(run, g, b, a);
  ExecHandle x;
  if (run.sub_is("plain")) {
    x = run.inst(g);
  } else {
    x = inst(run, g, &params);
    result_fact(run, params);
    run.fact("err_node", run.ordinal(g, params.error_node));
  }
  run.fact("exec_null", !x);
  run.dump("g", g);
}

void g86(Run& run) {
  const GraphHandle g = run.graph_create();
  const NodeHandle a = add_node(run, g, {}, EmptyParams{});
  const NodeHandle b = add_node(run, g, {}, EmptyParams{});
  add_dependency(run, g, a, b);
  add_dependency(run, g, a, b);
  add_dependency(run, g, a, a);
  const GraphEdge absent{b, a, {}};
  run.step("cudaGraphRemoveDependencies", run.api().graph_remove_dependencies(g, {&absent, 1}));
  run.dump("g", g);
}

GraphHandle capture_rmw(Run& run, StreamHandle s, int32_t* p) {
  run.begin(s);
  run.launch(k::rmw, {1}, {1}, s, k::args(p, 1, k::kSpinS));
  return run.end(s);
}

void g87(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st();
  int32_t* const a = run.dev(1, 0, "A");
  const GraphHandle g = capture_rmw(run, s1, a);
  const ExecHandle x = run.inst(g);
  for (const StreamHandle s : {s1, s2, s1, s2}) run.run(x, s);
  run.sync(s1);
  run.sync(s2);
  run.dump("g", g);
  run.read("A", a, 1);
}

void g88(Run& run) {
  const StreamHandle s1 = run.st(), s2 = run.st();
  int32_t* const a = run.dev(1, 0, "A");
  const GraphHandle g = capture_rmw(run, s1, a);
  const ExecHandle x = run.inst(g);
  const ExecHandle y = run.inst(g);
  run.run(x, s1);
  run.run(y, s2);
  run.sync(s1);
  run.sync(s2);
  run.dump("g", g);
  run.read("A", a, 1);
}

void g89(Run& run) {
  const StreamHandle s = run.st(), t = run.st_nb();
  int32_t *const a = run.dev(1, 0, "A"), *const b = run.dev(1, 0, "B");
  const GraphHandle inner = run.graph_create();
  run.add_kernel(inner, {}, node(k::add, a, 1, 1));
  const ExecHandle inner_exec = run.inst(inner);
  run.begin(s);
  run.add(s, b, 1, 1);
  run.run(inner_exec, s);
  run.probe("s", s);
  run.add(s, b, 1, 1);
  const GraphHandle g = run.end(s);
  run.probe("s", s);
  run.dump("g", g);
  run.read("A0", a, 1);
  const ExecHandle x = run.inst(g);
  run.run(x, t);
  run.run(x, t);
  run.sync(t);
  run.read("A", a, 1);
  run.read("B", b, 1);
}

void g90(Run& run) {
  const StreamHandle s = run.st();
  run.run(ExecHandle{}, s);
  run.sync(s);
}

void g90d(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  const GraphHandle g = capture_fill(run, s, a, 1);
  const ExecHandle x = run.inst(g);
  run.step("cudaGraphExecDestroy", run.api().graph_exec_destroy(x));
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
}

void g91(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  InstantiateParams params;
  params.flags = kAutoFreeOnLaunch | kInstantiateUpload;
  params.upload_stream = s;
  const GraphHandle g = capture_fill(run, s, a, 1);
  ExecHandle x;
  if (run.sub_is("plain_autofree")) {
    x = inst(run, g, kAutoFreeOnLaunch);
  } else if (run.sub_is("plain_autofree_upload")) {
    x = inst(run, g, kAutoFreeOnLaunch | kInstantiateUpload);
  } else if (run.sub_is("plain_all_but_device")) {
    x = inst(run, g, kAutoFreeOnLaunch | kUseNodePriority);
  } else {
    x = inst(run, g, &params);
    result_fact(run, params);
  }
  if (!x) return;
  uint64_t flags = 77;
  run.step("cudaGraphExecGetFlags", run.api().graph_exec_get_flags(x, &flags));
  run.fact("flags", static_cast<int64_t>(flags));
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
}

void g92(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  InstantiateParams params;
  params.flags = kAutoFreeOnLaunch | kDeviceLaunch;
  const GraphHandle g = capture_fill(run, s, a, 1);
  inst(run, g, params.flags);
  inst(run, g, &params);
  result_fact(run, params);
}

void g93(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  run.begin(s);
  run.add(s, a, 1);
  const GraphHandle g = run.end(s);
  const ExecHandle x = run.inst(g);
  run.step("cudaGraphUpload", run.api().graph_upload(x, s));
  run.sync(s);
  run.read("A0", a, 4);
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
}

void set_kernel_params(Run& run, NodeHandle n, const KernelLaunch& kernel) {
  run.step("cudaGraphKernelNodeSetParams", run.api().graph_node_set_params(n, kernel));
}

/// cudaGraphChildGraphNodeGetGraph
GraphHandle inner_graph(Run& run, NodeHandle child) {
  NodeParams params = ChildGraphParams{};
  run.step("cudaGraphChildGraphNodeGetGraph", run.api().graph_node_get_params(child, &params));
  return std::get<ChildGraphParams>(params).graph;
}

void g94(Run& run) {
  const StreamHandle s = run.st();
  int32_t *const a = run.dev(4, 0, "A"), *const b = run.dev(4, 0, "B");
  const GraphHandle child = run.graph_create();
  const NodeHandle n = run.add_kernel(child, {}, node(k::fill, a, 1, 4));
  const GraphHandle g = run.graph_create();
  const NodeHandle child_node = add_node(run, g, {}, ChildGraphParams{child});
  set_kernel_params(run, n, node(k::fill, a, 2, 4));
  run.add_kernel(child, {}, node(k::fill, b, 3, 4));
  const GraphHandle inner = inner_graph(run, child_node);
  run.fact("inner_is_child", inner == child);
  run.dump("g", g);
  run.dump("ch", child);
  run.dump("inner", inner);
  const ExecHandle x = run.inst(g);
  run.run(x, s);
  run.sync(s);
  run.read("A", a, 4);
  run.read("B", b, 4);
}

void g95(Run& run) {
  const StreamHandle s = run.st();
  int32_t* const a = run.dev(4, 0, "A");
  const GraphHandle g = run.graph_create();
  const NodeHandle n = run.add_kernel(g, {}, node(k::fill, a, 1, 4));
  GraphHandle clone;
  run.step("cudaGraphClone", run.api().graph_clone(g, &clone));
  set_kernel_params(run, n, node(k::fill, a, 2, 4));
  NodeHandle found;
  run.step("cudaGraphNodeFindInClone", run.api().graph_node_find_in_clone(n, clone, &found));
  run.fact("found_ordinal", run.ordinal(clone, found));
  run.dump("g", g);
  run.dump("cl", clone);
  const ExecHandle x = run.inst(clone);
  run.run(x, s);
  run.sync(s);
  run.read("A_clone", a, 4);
  const ExecHandle y = run.inst(g);
  run.run(y, s);
  run.sync(s);
  run.read("A_orig", a, 4);
}

void g96(Run& run) {
  InstantiateParams params;
  params.flags = kDeviceLaunch;
  params.result = kUntouched;
  int32_t* const a = run.dev(4, 0, "A");
  const GraphHandle g = run.graph_create();
  if (run.sub_is("hostnode")) {
    add_node(run, g, {}, HostParams{host_count});
  } else if (run.sub_is("kernel")) {
    run.add_kernel(g, {}, node(k::fill, a, 1, 4));
  } else if (run.sub_is("emptynode")) {
    add_node(run, g, {}, EmptyParams{});
  }
  const ExecHandle x = inst(run, g, &params);
  result_fact(run, params);
  run.fact("err_node", run.ordinal(g, params.error_node));
  if (!x) inst(run, g, kDeviceLaunch);
}

constexpr Program kLaunchPrograms[] = {
    {"G84", "empty capture", kE, "N", "", g84},
    {"G85", "cyclic graph", kE, "N", "withParams plain", g85},
    {"G86", "duplicate and self edges", kE, "N", "", g86},
    {"G87", "one exec on two streams is serialised", kE, "N", "", g87},
    {"G88", "two execs of one graph on two streams", kU, "N", "", g88, "mem.race"},
    {"G89", "GraphLaunch into a capturing stream", kE, "A", "", g89},
    {"G90", "launch a null exec", kE, "N", "", g90},
    {"G90d", "launch a destroyed exec", kU, "N", "", g90d, "mem.use_after_free"},
    {"G91", "exec flags", kE, "N",
     "plain_autofree plain_autofree_upload params_autofree_upload plain_all_but_device", g91},
    {"G92", "AutoFree with DeviceLaunch", kE, "N", "", g92},
    {"G93", "upload then launch", kE, "N", "", g93},
    {"G94", "child graph is cloned at add", kE, "N", "", g94},
    {"G95", "clone is independent", kE, "N", "", g95},
    {"G96", "device-launch flag refused", kE, "N", "empty hostnode kernel emptynode", g96},
};

}  // namespace

std::span<const Program> programs_launch() { return kLaunchPrograms; }

}  // namespace shadowgraph
