#include "fuzz/device/update_grid.h"

#include <optional>
#include <utility>

#include "core/laws.h"
#include "fuzz/device/numbered_cases.h"
#include "fuzz/device/update_subjects.h"

namespace shadowgraph {
namespace {

using enum DeviceError;

constexpr std::string_view kPlaces[] = {"alone", "beside others that change", "in a child",
                                        "in a body"};
constexpr std::string_view kWays[] = {"cudaGraphExecUpdate",
                                      "cudaGraphNodeSetParams, cudaGraphExecUpdate",
                                      "cudaGraphExecNodeSetParams"};

SimOptions device_options(uint64_t seed) {
  return {.seed = seed, .choose = {}, .memory_bytes = size_t{1} << 24};
}

/// CUDA's rules for parameters that differ (cudaGraphExecUpdate and the calls that set
/// those of one node), and what G97 to G108 recorded. This is not the device's own rule.
UpdateRule rule_of(const NodeParams& old, const NodeParams& now, UpdateWay way) {
  using enum UpdateRule;
  if (const auto* copy = std::get_if<MemcpyParams>(&now)) {
    const auto& was = std::get<MemcpyParams>(old);
    if (*copy == was) return kTaken;
    return copy->kind == was.kind && copy->height == 1 && was.height == 1 ? kTaken : kRefused;
  }
  if (const auto* set = std::get_if<MemsetParams>(&now)) {
    const auto& was = std::get<MemsetParams>(old);
    if (set->height == 1 && was.height == 1)
      return set->element_size == was.element_size && set->width <= was.width ? kTaken : kOpen;
    const bool same = set->height == was.height && set->width == was.width &&
                      set->pitch == was.pitch && set->element_size == was.element_size;
    return same ? kTaken : kRefused;
  }
  const bool settable =
      !std::holds_alternative<ChildGraphParams>(now) && !std::holds_alternative<EmptyParams>(now) &&
      !std::holds_alternative<MemAllocParams>(now) && !std::holds_alternative<MemFreeParams>(now) &&
      !std::holds_alternative<ConditionalParams>(now);
  if (settable) return kTaken;
  if (way == UpdateWay::kNode) return kRefused;
  if (const auto* conditional = std::get_if<ConditionalParams>(&now)) {
    const auto& was = std::get<ConditionalParams>(old);
    return conditional->type == was.type && conditional->size == was.size ? kTaken : kRefused;
  }
  return kOpen;  // of a child what is inside decides
}

/// A graph with the node in its place, and the node's handle as an exec of the graph knows it.
struct Placed {
  GraphHandle graph;
  BuiltNode subject;
};

class Bench {
 public:
  Bench(const UpdateCase& c, std::unique_ptr<SimDevice> device) : c_(c), rig_(std::move(device)) {}

  /// changed: with the changed field; others: what stands beside it changes, too.
  Placed build(FieldChange* change, bool others) {
    Placed p;
    device().graph_create(&p.graph);
    switch (c_.place) {
      case UpdatePlace::kAlone: p.subject = add(p.graph, {}, change); break;
      case UpdatePlace::kBeside: {
        const NodeHandle before = neighbour(p.graph, {}, rig_.a + 40, others ? 21 : 20);
        p.subject = add(p.graph, {before}, change);
        if (p.subject.error == kSuccess)
          neighbour(p.graph, {p.subject.node}, rig_.a + 48, others ? 31 : 30);
        break;
      }
      case UpdatePlace::kChild: {
        GraphHandle inside;
        device().graph_create(&inside);
        p.subject = add(inside, {}, change);
        if (p.subject.error == kSuccess) nest(inside, &p);
        break;
      }
      case UpdatePlace::kBody: {
        ConditionalParams conditional;
        device().graph_conditional_handle_create(p.graph, 1, kCondAssignDefault,
                                                 &conditional.handle);
        NodeParams params = conditional;
        NodeHandle outer;
        device().graph_add_node(p.graph, {}, params, &outer);
        p.subject = add(std::get<ConditionalParams>(params).bodies[0], {}, change);
        break;
      }
    }
    return p;
  }
  UpdateRig& rig() { return rig_; }
  SimDevice& device() { return *rig_.device; }

 private:
  BuiltNode add(GraphHandle g, std::vector<NodeHandle> after, FieldChange* change) {
    return update_subjects()[c_.subject].add(rig_, g, std::move(after), change);
  }
  NodeHandle neighbour(GraphHandle g, const std::vector<NodeHandle>& after, uint32_t* target,
                       uint32_t value) {
    NodeParams params = shown_launch(target, rig_.b, value);
    NodeHandle node;
    device().graph_add_node(g, after, params, &node);
    return node;
  }
  /// The child is a clone: its node is the one of the same number.
  void nest(GraphHandle inside, Placed* p) {
    std::vector<NodeHandle> originals, clones;
    device().graph_get_nodes(inside, &originals);
    NodeParams params = ChildGraphParams{inside};
    NodeHandle outer;
    p->subject.error = device().graph_add_node(p->graph, {}, params, &outer);
    if (p->subject.error != kSuccess) return;
    device().graph_node_get_params(outer, &params);
    device().graph_get_nodes(std::get<ChildGraphParams>(params).graph, &clones);
    for (size_t i = 0; i < originals.size(); ++i)
      if (originals[i] == p->subject.node) p->subject.node = clones[i];
  }

  const UpdateCase& c_;
  UpdateRig rig_;
};

class UpdateCheck {
 public:
  UpdateCheck(const UpdateCase& c, const MakeSimDevice& make) : c_(c), make_(make) {}

  Status run(UpdateOutcome* outcome) {
    *outcome = UpdateOutcome::kNone;
    const SimOptions options = device_options(c_.seed);
    Bench bench(c_, make_ ? make_(options) : std::make_unique<SimDevice>(options));
    const Placed before = bench.build(nullptr, false);
    FieldChange change{.number = c_.change};
    // An edit changes the node alone, and so does setting it in the exec.
    const Placed after = bench.build(&change, c_.way == UpdateWay::kGraph);
    ExecHandle exec;
    if (before.subject.error != kSuccess ||
        bench.device().graph_instantiate(before.graph, 0, &exec) != kSuccess)
      return {};
    // A node that no graph can hold is asked of its own calls alone.
    if (after.subject.error != kSuccess && c_.way == UpdateWay::kGraph) return {};
    const DeviceError error = update(bench.device(), exec, before, after);
    const bool taken = error == kSuccess;
    *outcome = taken ? UpdateOutcome::kTaken : UpdateOutcome::kRefused;
    judged("device.update");
    judge_answer(error, before, after);
    const std::optional<std::string> want = what_a_new_one_shows(taken);
    if (!want) return std::move(status_);  // nobody says what an exec does that there cannot be
    if (std::string seen = bench.rig().launch(exec); seen != *want)
      fail(taken ? "what a new one of the other graph does" : "what it did before", *want,
           std::move(seen));
    return std::move(status_);
  }

 private:
  DeviceError update(SimDevice& device, ExecHandle exec, const Placed& before,
                     const Placed& after) {
    NodeHandle node = before.subject.node;
    const NodeParams& params = after.subject.params;
    if (c_.way == UpdateWay::kNode) return device.graph_exec_node_set_params(exec, node, params);
    GraphHandle from = after.graph;
    if (c_.way == UpdateWay::kEdited) {
      edited_ = device.graph_node_set_params(node, params);
      if (edited_ != kSuccess) return edited_;
      from = before.graph;
    }
    return device.graph_exec_update(exec, from, &info_);
  }

  void judge_answer(DeviceError error, const Placed& before, const Placed& after) {
    const NodeParams &old = before.subject.params, &now = after.subject.params;
    const UpdateRule rule = rule_of(old, now, c_.way);
    const bool taken = error == kSuccess;
    if (c_.way != UpdateWay::kGraph && after.subject.error != kSuccess) {
      if (taken) fail("the answer", "refused: no graph can have the node", "taken");
      return;
    }
    if (edited_ != kSuccess) return;  // the graph's own node does not take it
    if (rule == UpdateRule::kTaken && !taken) fail("the answer", "taken", answer(error));
    if (rule == UpdateRule::kRefused && taken) fail("the answer", "refused", "taken");
    if (taken) return;
    const bool whole = c_.way != UpdateWay::kNode;
    if (error != (whole ? kGraphExecUpdateFailure : kInvalidValue))
      fail("the code", std::string(name_of(whole ? kGraphExecUpdateFailure : kInvalidValue)),
           answer(error));
    const bool parameters =
        std::holds_alternative<MemcpyParams>(now) || std::holds_alternative<MemsetParams>(now);
    if (!whole || !parameters || info_.result == UpdateResult::kNotSupported) return;
    const NodeHandle at_fault =
        c_.way == UpdateWay::kEdited ? before.subject.node : after.subject.node;
    if (info_.result != UpdateResult::kParametersChanged || info_.error_node != at_fault)
      fail("the result", "parameters changed, of the node that was changed", answer(error));
  }

  /// The same calls on another device, up to the update.
  std::optional<std::string> what_a_new_one_shows(bool of_the_other) {
    Bench bench(c_, std::make_unique<SimDevice>(device_options(0)));
    const Placed before = bench.build(nullptr, false);
    FieldChange change{.number = c_.change};
    const Placed after = bench.build(&change, c_.way == UpdateWay::kGraph);
    ExecHandle exec;
    const DeviceError error =
        bench.device().graph_instantiate((of_the_other ? after : before).graph, 0, &exec);
    if (error != kSuccess) return {};
    return bench.rig().launch(exec);
  }

  std::string answer(DeviceError error) const {
    std::string text(name_of(error));
    if (c_.way != UpdateWay::kNode)
      text += ", result " + std::to_string(static_cast<int>(info_.result));
    return text;
  }
  void fail(const std::string& what, std::string expected, std::string got) {
    Finding f =
        make_finding("device.update", at(std::string(c_.kind) + " " + c_.text + ", " + what),
                     std::move(expected), std::move(got));
    f.case_id = c_.to_string();
    status_.add(std::move(f));
  }

  const UpdateCase& c_;
  const MakeSimDevice& make_;
  DeviceError edited_ = kSuccess;  // of the graph's node
  UpdateInfo info_;
  Status status_;
};

/// The changes of each kind, by what they are called, on any device.
std::vector<UpdateCase> make_cases() {
  std::vector<UpdateCase> cases;
  const std::span<const UpdateSubject> subjects = update_subjects();
  for (size_t s = 0; s < subjects.size(); ++s) {
    UpdateRig rig(std::make_unique<SimDevice>(device_options(0)));
    const auto make = [&](uint32_t number) {
      FieldChange change{.number = number};
      GraphHandle g;
      rig.device->graph_create(&g);
      subjects[s].add(rig, g, {}, &change);
      return change;
    };
    for (uint32_t n = 0;; ++n) {
      const FieldChange change = make(n);
      if (!change.text) break;
      UpdateCase c{subjects[s].kind, s, n, *change.text};
      for (c.place = UpdatePlace::kAlone;;
           c.place = static_cast<UpdatePlace>(static_cast<int>(c.place) + 1)) {
        for (const UpdateWay way : {UpdateWay::kGraph, UpdateWay::kEdited, UpdateWay::kNode})
          for (const uint64_t seed : {0, 1}) {
            if (seed > 0 && subjects[s].races) continue;
            c.way = way, c.seed = seed;
            cases.push_back(c);
          }
        const bool last =
            subjects[s].nested ? c.place == UpdatePlace::kBody : c.place == UpdatePlace::kBeside;
        if (last) break;
      }
    }
  }
  return cases;
}

}  // namespace

std::string UpdateCase::to_string() const {
  return std::string(kind) + ": " + text + ", " + std::string(kPlaces[static_cast<size_t>(place)]) +
         ", by " + std::string(kWays[static_cast<size_t>(way)]) + ", seed " + std::to_string(seed);
}

std::span<const UpdateCase> update_cases() {
  static const std::vector<UpdateCase> cases = make_cases();
  return cases;
}

Status check_update(const UpdateCase& c, const MakeSimDevice& make, UpdateOutcome* outcome) {
  return UpdateCheck(c, make).run(outcome);
}

void UpdateGridResult::add(const UpdateGridResult& part) {
  cases += part.cases;
  for (const auto& [kind, n] : part.counts) counts[kind] += n;
  laws.add(part.laws);
}

UpdateGridResult run_update_grid(int threads, size_t max_findings,
                                 const std::function<void(uint64_t done, uint64_t of)>& progress,
                                 const std::atomic<bool>& stop, const CaseRange& range,
                                 const std::function<void(uint64_t)>& starts,
                                 const MakeSimDevice& make) {
  constexpr const char* kOutcomes[] = {" taken", " refused", " in no graph"};
  const std::span<const UpdateCase> cases = update_cases();
  UpdateGridResult all;
  const auto check = [&](uint64_t number, UpdateGridResult* mine) {
    UpdateOutcome outcome = UpdateOutcome::kNone;
    const UpdateCase& c = cases[number];
    Status status = check_update(c, make, &outcome);
    ++mine->cases;
    ++mine->counts[std::string(c.kind) + kOutcomes[static_cast<size_t>(outcome)]];
    for (Finding& f : status.findings())
      f.reproduce = "shadowgraph fuzz --exhaustive " + std::string(kUpdateGrid) + " --first " +
                    std::to_string(number) + " --cases 1";
    return status;
  };
  all.findings = run_numbered(cases.size(), {threads, max_findings, progress, stop, range, starts},
                              &all, check);
  return all;
}

}  // namespace shadowgraph
