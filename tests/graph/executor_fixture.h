// An executor over a small memory; bodies built node by node; the laws that were violated.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/kernels.h"
#include "graph/executor/executor.h"

namespace shadowgraph {

/// A graph to launch. Nodes come in a topological order and their source handles are ordinal + 1.
class Body {
 public:
  int32_t add(const DeviceMemory& memory, NodeParams params,
              std::initializer_list<int32_t> after = {}) {
    const auto node = static_cast<int32_t>(body_.nodes.size());
    ExecNode& n = body_.nodes.emplace_back();
    n.label = label_of(params);
    n.pointers = bake_pointers(memory, host_block, params);
    n.params = std::move(params);
    n.source = {static_cast<uint64_t>(node) + 1 + base};
    n.before.assign(after);
    for (const int32_t i : after) at(i).after.push_back(node);
    body_.order.push_back(node);
    return node;
  }
  ExecNode& at(int32_t node) { return body_.nodes[static_cast<size_t>(node)]; }
  void add_handle(ConditionalInfo info) { body_.conditionals.push_back(info); }

  std::shared_ptr<const ExecBody> build() const {
    ExecBody b = body_;
    const size_t n = b.nodes.size();
    b.reach.assign((n * n + 63) / 64, 0);
    const auto mark = [&](size_t from, size_t to) {
      b.reach[(from * n + to) / 64] |= uint64_t{1} << ((from * n + to) % 64);
    };
    for (size_t to = 0; to < n; ++to) {
      for (const int32_t before : b.nodes[to].before) {
        mark(static_cast<size_t>(before), to);
        for (size_t from = 0; from < to; ++from)
          if (b.ordered(static_cast<int32_t>(from), before)) mark(from, to);
      }
    }
    return std::make_shared<const ExecBody>(std::move(b));
  }

  uint64_t base = 0;  // of the source handles
  HostBlockOf host_block;

 private:
  ExecBody body_;
};

class ExecutorTest : public ::testing::Test {
 protected:
  /// choose: none: eager.
  void make(Choose choose = nullptr, bool checked = true) {
    const bool eager = choose == nullptr;
    memory.emplace(MemoryOptions{.capacity = size_t{1} << 24, .checked = checked});
    ExecutorHooks hooks;
    hooks.marker_of = [this](EventHandle e) { return events[e]; };
    hooks.host_function = [this](bool inside) { in_host_function = inside; };
    executor.emplace(*memory, std::move(choose), eager, std::move(hooks), &findings);
    for (int i = 0; i < 3; ++i) executor->add_lane();
  }
  /// Nothing runs before it is waited for; then the oldest first.
  void make_lazy() {
    make([this](uint32_t bound) { return advancing ? bound - 1 : 0; });
  }
  void SetUp() override { make(); }

  int32_t* ints(int64_t n, int32_t value = 0, AllocKind kind = AllocKind::kMalloc) {
    auto* p = static_cast<int32_t*>(memory->allocate(static_cast<size_t>(n) * 4, kind));
    std::fill_n(p, n, value);
    memory->commit({}, {{p, 0, n, 4, Access::kWrite}});
    return p;
  }

  static KernelLaunch kernel(const Kernel& k, KernelArgs args) {
    return {&k, {}, {.x = 32}, 0, std::move(args), false};
  }
  static KernelLaunch fill(int32_t* p, int32_t v, int32_t n = 1) {
    return kernel(k::fill, k::args(p, v, n));
  }
  static KernelLaunch add(int32_t* p, int32_t v) { return kernel(k::add, k::args(p, v, 1)); }
  static KernelLaunch copy(int32_t* to, int32_t* from, int32_t n = 1) {
    return kernel(k::copy, k::args(to, from, n));
  }
  static KernelLaunch append(int32_t* log, int32_t v) { return kernel(k::append, k::args(log, v)); }
  static KernelLaunch spinflag(int32_t* flag, int32_t* p, int32_t v) {
    return kernel(k::spinflag, k::args(flag, p, v, k::kSpinT));
  }
  static MemcpyParams transfer(void* dst, const void* src, size_t bytes, MemcpyKind kind) {
    return {.dst = dst, .src = src, .width = bytes, .kind = kind};
  }
  /// The writers of a log, in the order in which they ran.
  static std::vector<int32_t> read_log(const int32_t* log) { return {log + 1, log + 1 + *log}; }

  /// One operation outside graphs.
  Marker run(uint32_t lane, NodeParams params, std::vector<Marker> after = {}) {
    std::vector<BakedPointer> pointers = bake_pointers(*memory, host_block(), params);
    return enqueue(lane, single_node_body(std::move(params), std::move(pointers)), Phase::kEager,
                   std::move(after));
  }
  Marker launch(uint32_t lane, const Body& body, std::vector<Marker> after = {}) {
    return enqueue(lane, body.build(), Phase::kReplay, std::move(after));
  }
  Marker enqueue(uint32_t lane, std::shared_ptr<const ExecBody> body, Phase phase,
                 std::vector<Marker> after = {}) {
    const uint64_t serial = executor->enqueue(std::move(body), {lane, phase, std::move(after)});
    advancing = true;
    executor->advance();
    advancing = false;
    return {serial, {}};
  }
  HostBlockOf host_block() {
    return [this](const void* p) { return executor->host_block_of(p); };
  }
  int32_t add_to(Body& body, NodeParams params, std::initializer_list<int32_t> after = {}) {
    body.host_block = host_block();
    return body.add(*memory, std::move(params), after);
  }
  int32_t nest(Body& body, NodeParams params, std::initializer_list<const Body*> bodies,
               std::initializer_list<int32_t> after = {}) {
    const int32_t node = add_to(body, std::move(params), after);
    for (const Body* b : bodies) body.at(node).bodies.push_back(b->build());
    return node;
  }

  /// The laws that were found violated since the last call, separated by spaces.
  std::string found() {
    std::string laws;
    for (const Finding& f : findings.findings()) {
      laws += (laws.empty() ? "" : " ") + f.id;
      last = f.to_string();
    }
    findings = {};
    return laws;
  }

  Status findings;
  std::string last;  // finding
  std::map<EventHandle, Marker> events;
  bool in_host_function = false, advancing = false;
  std::optional<DeviceMemory> memory;
  std::optional<Executor> executor;
};

}  // namespace shadowgraph
