// One diagnosis as data: a law, a program that breaks it or does the same right, and what the
// finding must say. diagnostics_test.cc tells the rest.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/laws.h"
#include "patterns_fixture.h"

namespace shadowgraph {

/// Where a program runs, and what it is to do there.
class World : public Rig {
 public:
  World(uint64_t seed, bool with_fault, bool in_graph)
      : Rig(seed), planted(with_fault), replayed(in_graph) {}

  /// What runs the body: in a replay, of what is recorded now.
  std::function<void()> prepare(const std::function<void(Stream&)>& body) {
    if (!replayed) return [this, body] { body(stream); };
    const auto graph = std::make_shared<Graph>();
    const auto exec = std::make_shared<GraphExec>();
    status.add(Graph::record(stream, body, graph.get()));
    if (status.ok()) status.add(GraphExec::instantiate(*graph, exec.get()));
    if (!status.ok()) return [] {};
    return [this, graph, exec] { exec->replay(stream); };
  }
  void run(const std::function<void(Stream&)>& body) { prepare(body)(); }

  int32_t* pinned(const Ints& values) {
    void* p = nullptr;
    EXPECT_EQ(device.malloc_host(values.size() * 4, &p), DeviceError::kSuccess);
    return std::copy(values.begin(), values.end(), static_cast<int32_t*>(p)) - values.size();
  }
  int32_t* allocate(const char* name) {
    void* p = nullptr;
    EXPECT_EQ(device.malloc(16, &p), DeviceError::kSuccess);
    device.name_buffer(p, name);
    return static_cast<int32_t*>(p);
  }
  Status findings() {
    stream.synchronize();
    const Status calls = stream.take_status();
    if (!broken) status.add(calls);
    status.add(device.take_findings());
    return std::exchange(status, {});
  }

  const bool planted, replayed;
  bool broken = false;  // an error is sticky: every call returns it
  Status status;        // of calls, and of what is no device's to find
};

inline void fill(Stream& s, int32_t* p, int32_t n = 4) { launch(s, k::fill, p, 7, n); }
inline void copy(Stream& s, const Buffer& to, const int32_t* from, int32_t n = 4) {
  launch(s, k::copy, ints(to), from, n);
}

struct Fault {
  LawId law;
  const char* name;
  void (*program)(World&);
  /// What the finding says of eager work, of a replay. Empty: the program is no such thing.
  std::vector<std::string_view> eager, replayed;
};

/// Those of diagnostics_graph_test.cc.
std::span<const Fault> graph_faults();

/// A fault as eager work or as a replay.
struct FaultRun {
  Fault fault;
  bool replayed;
};

inline std::vector<FaultRun> runs_of(std::span<const Fault> faults) {
  std::vector<FaultRun> runs;
  for (const Fault& f : faults) {
    if (!f.eager.empty()) runs.push_back({f, false});
    if (!f.replayed.empty()) runs.push_back({f, true});
  }
  return runs;
}

class Diagnostics : public ::testing::TestWithParam<FaultRun> {
 protected:
  static constexpr uint64_t kSeeds = 8;

  static Status run(uint64_t seed, bool planted) {
    World w(seed, planted, GetParam().replayed);
    GetParam().fault.program(w);
    return w.findings();
  }
  static void expect_diagnosis() {
    const Fault& f = GetParam().fault;
    const auto& says = GetParam().replayed ? f.replayed : f.eager;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      const Status clean = run(seed, false), fault = run(seed, true);
      EXPECT_TRUE(clean.ok()) << clean.to_string();
      EXPECT_FALSE(fault.ok());
      for (const Finding& found : fault.findings())
        EXPECT_EQ(found.id, f.law.law().id) << found.to_string();
      for (const std::string_view part : says)
        EXPECT_NE(fault.to_string().find(part), std::string::npos) << part << " is not in\n"
                                                                   << fault.to_string();
    }
  }
};

inline std::string name_of_run(const ::testing::TestParamInfo<FaultRun>& run) {
  return std::string(run.param.fault.name) + (run.param.replayed ? "_replayed" : "_eager");
}

}  // namespace shadowgraph
