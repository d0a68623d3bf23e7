// check_device_program: runs one program beside a model of what it must do to memory.
#include <algorithm>
#include <array>
#include <optional>
#include <thread>

#include "core/laws.h"
#include "fuzz/device/device_program.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph {

namespace {

using enum DeviceError;

constexpr size_t kStreams = 3, kEvents = 3;

/// x := 3 x + c: order shows.
Progress mix_body(LaunchFrame& f) {
  auto* x = f.pointer<uint32_t>(0);
  *x = *x * 3 + f.scalar<uint32_t>(1);
  return Progress::kDone;
}
void mix_footprint(const LaunchFrame& f, Footprint* spans) {
  const auto* x = f.pointer<uint32_t>(0);
  spans->push_back({x, 0, 1, sizeof *x, Access::kRead});
  spans->push_back({x, 0, 1, sizeof *x, Access::kWrite});
}
constexpr Kernel kMix{.name = "mix", .body = mix_body, .footprint = mix_footprint, .label_arg = 1};

/// What one kernel or memset does; an allocation does nothing to the cells.
struct Effect {
  enum class Kind : uint8_t { kMixed, kSet, kNone } kind = Kind::kNone;
  size_t cell = 0;
  uint32_t value = 0;
};

using Cells = std::array<uint32_t, kStreams>;

void act(const Effect& e, Cells* cells) {
  uint32_t& x = (*cells)[e.cell];
  if (e.kind == Effect::Kind::kMixed) x = x * 3 + e.value;
  if (e.kind == Effect::Kind::kSet) x = e.value * 0x01010101u;
}

struct Captured {
  GraphHandle graph;
  std::vector<Effect> effects;  // one a node, in order
};

class ProgramRun {
 public:
  ProgramRun(const DeviceProgram& program, uint64_t seed, DeviceCoverage* coverage)
      : program_(program),
        coverage_(coverage),
        device_({.seed = seed, .choose = {}, .memory_bytes = size_t{1} << 20}) {}

  Status run() {
    set_up();
    for (size_t i = 0; i < program_.calls.size(); ++i)
      checked(program_.calls[i], static_cast<uint32_t>(i + 1));
    close_captures();
    compare("device.capture_pure", "after the program");
    for (const Captured& c : graphs_) check_graph(c);
    judged("device.no_alarm");
    Status alarms = device_.take_findings();
    for (Finding& alarm : alarms.findings()) {
      add("device.no_alarm", alarm.id, "no finding", alarm.to_string());
    }
    return std::move(status_);
  }

 private:
  void set_up() {
    void* p = nullptr;
    device_.malloc(sizeof(Cells), &p);
    cells_ = static_cast<uint32_t*>(p);
    write(Cells{});
    for (StreamHandle& s : streams_)
      device_.stream_create_with_flags(program_.blocking ? kStreamDefault : kStreamNonBlocking, &s);
    for (EventHandle& e : events_) device_.event_create_with_flags(kEventDisableTiming, &e);
  }
  void write(const Cells& cells) {
    device_.memcpy({.dst = cells_, .src = cells.data(), .width = sizeof cells});
    device_.device_synchronize();
    model_ = cells;
  }

  using Infos = std::array<CaptureInfo, kStreams>;
  Infos infos() {
    Infos all;
    for (size_t s = 0; s < kStreams; ++s) device_.stream_get_capture_info(streams_[s], &all[s]);
    return all;
  }

  void checked(const DeviceCall& call, uint32_t number) {
    const Infos before = infos();
    DeviceError error = kSuccess;
    if (call.thread_b) {
      std::thread([&] { error = make(call, number); }).join();
    } else {
      error = make(call, number);
    }
    const Infos after = infos();
    ++coverage_->codes[error];
    for (size_t s = 0; s < kStreams; ++s)
      if (before[s].status != after[s].status)
        ++coverage_->transitions[{before[s].status, after[s].status}];
    if (error != kSuccess && error != kNotReady) check_atomic(call, error, before, after);
    if (call.verb == DeviceVerb::kEnd) ended(call, error, before, after);
    if (error == kSuccess) took_effect(call, number, before[call.stream]);
  }

  DeviceError make(const DeviceCall& c, uint32_t number) {
    const StreamHandle s = streams_[c.stream];
    const EventHandle e = events_[c.event];
    uint32_t* cell = cells_ + c.stream;
    void* p = nullptr;
    CaptureMode mode = c.mode;
    switch (c.verb) {
      case DeviceVerb::kKernel: {
        KernelLaunch launch;
        launch.kernel = &kMix;
        launch.args.pointer(cell).scalar(number);
        return device_.launch_kernel(launch, s);
      }
      case DeviceVerb::kRecord: return device_.event_record(e, s);
      case DeviceVerb::kWait: return device_.stream_wait_event(s, e, kEventWaitDefault);
      case DeviceVerb::kBegin: return device_.stream_begin_capture(s, mode);
      case DeviceVerb::kEnd: return device_.stream_end_capture(s, &ended_);
      case DeviceVerb::kMemset:
        return device_.memset_async({.dst = cell, .value = number, .width = sizeof *cell}, s);
      case DeviceVerb::kMalloc: return device_.malloc(64, &p);
      case DeviceVerb::kMallocAsync: return device_.malloc_async(64, s, &p);
      case DeviceVerb::kCopyLegacy:
        return device_.memcpy({.dst = &scratch_, .src = &host_, .width = 4});
      case DeviceVerb::kStreamSynchronize: return device_.stream_synchronize(s);
      case DeviceVerb::kEventSynchronize: return device_.event_synchronize(e);
      case DeviceVerb::kEventQuery: return device_.event_query(e);
      case DeviceVerb::kDeviceSynchronize: return device_.device_synchronize();
      case DeviceVerb::kExchangeMode: return device_.thread_exchange_stream_capture_mode(&mode);
    }
    return kUnknown;
  }

  /// A successful call on a capturing stream becomes a node; on any other it acts.
  void took_effect(const DeviceCall& c, uint32_t number, const CaptureInfo& before) {
    Effect effect;
    effect.cell = c.stream;
    effect.value = number;
    if (c.verb == DeviceVerb::kKernel) effect.kind = Effect::Kind::kMixed;
    if (c.verb == DeviceVerb::kMemset) effect.kind = Effect::Kind::kSet;
    if (effect.kind == Effect::Kind::kNone && c.verb != DeviceVerb::kMallocAsync) return;
    if (before.status == CaptureStatus::kActive) {
      captured_[before.id].push_back(effect);
    } else {
      act(effect, &model_);
    }
  }

  void check_atomic(const DeviceCall& call, DeviceError error, const Infos& before,
                    const Infos& after) {
    for (size_t s = 0; s < kStreams; ++s) {
      judged("device.error_atomic");
      const CaptureInfo &b = before[s], &a = after[s];
      const bool over = call.verb == DeviceVerb::kEnd && a.status == CaptureStatus::kNone;
      const bool invalidated =
          b.status == CaptureStatus::kActive && a.status == CaptureStatus::kInvalidated;
      const bool same = a.status == b.status && a.id == b.id && a.dependencies == b.dependencies;
      if (over || invalidated || same) continue;
      add("device.error_atomic", 's' + std::to_string(s), "as before", std::string(name_of(error)));
    }
  }

  void ended(const DeviceCall& call, DeviceError error, const Infos& before, const Infos& after) {
    const bool terminal = error == kSuccess || error == kStreamCaptureInvalidated ||
                          error == kStreamCaptureUnjoined || error == kStreamCaptureWrongThread;
    if (!terminal) return;
    const uint64_t id = before[call.stream].id;
    for (size_t s = 0; s < kStreams; ++s) {
      judged("device.capture_ends");
      const bool took_part = s == call.stream || (id != 0 && before[s].id == id);
      if (took_part && after[s].status != CaptureStatus::kNone)
        add("device.capture_ends", 's' + std::to_string(s), "none", "still capturing");
    }
    if (error == kSuccess) graphs_.push_back({ended_, captured_[id]});
  }

  /// Ends what is still open, from this thread, origin or not.
  void close_captures() {
    for (int round = 0; round < 2; ++round) {
      const Infos now = infos();
      for (size_t s = 0; s < kStreams; ++s)
        if (now[s].status != CaptureStatus::kNone) device_.stream_end_capture(streams_[s], nullptr);
    }
    const Infos now = infos();
    for (size_t s = 0; s < kStreams; ++s)
      if (now[s].status != CaptureStatus::kNone)
        add("device.capture_ends", 's' + std::to_string(s), "none", "still capturing");
  }

  void compare(LawId law, const char* when) {
    judged(law);
    if (const DeviceError error = device_.device_synchronize(); error != kSuccess) {
      add(law, when, "cudaSuccess", std::string(name_of(error)));
      return;
    }
    Cells now{};
    device_.memcpy({.dst = now.data(), .src = cells_, .width = sizeof now});
    for (size_t i = 0; i < now.size(); ++i) {
      if (now[i] != model_[i])
        add(law, std::string(when) + ", cell " + std::to_string(i), std::to_string(model_[i]),
            std::to_string(now[i]));
    }
    model_ = now;
  }

  void launch(ExecHandle x, const std::vector<Effect>& effects, LawId law, const char* when) {
    if (const DeviceError error = device_.graph_launch(x, streams_[0]); error != kSuccess) {
      add(law, when, "cudaSuccess", std::string(name_of(error)));
      return;
    }
    for (const Effect& e : effects) act(e, &model_);
    compare(law, when);
  }

  void check_graph(const Captured& c) {
    ExecHandle x;
    if (device_.graph_instantiate(c.graph, 0, &x) != kSuccess) {
      add("device.replay", "instantiate", "cudaSuccess", "an error");
      return;
    }
    launch(x, c.effects, "device.replay", "first launch");
    // Allocations that the graph does not free allow one launch, and no clone.
    const auto allocates = [](const Effect& e) { return e.kind == Effect::Kind::kNone; };
    if (std::any_of(c.effects.begin(), c.effects.end(), allocates)) return;
    launch(x, c.effects, "device.replay", "second launch");

    GraphHandle clone;
    ExecHandle y;
    UpdateInfo info;
    device_.graph_clone(c.graph, &clone);
    device_.graph_instantiate(clone, 0, &y);
    launch(y, c.effects, "device.replay", "clone");
    if (device_.graph_exec_update(x, clone, &info) != kSuccess)
      add("device.replay", "update", "cudaSuccess", "an error");
    launch(x, c.effects, "device.replay", "updated");

    std::vector<NodeHandle> nodes;
    device_.graph_get_nodes(c.graph, &nodes);
    if (nodes.size() != c.effects.size()) {
      add("device.replay", "nodes", std::to_string(c.effects.size()), std::to_string(nodes.size()));
    } else if (!nodes.empty()) {
      device_.graph_node_set_enabled(x, nodes[0], false);
      launch(x, {c.effects.begin() + 1, c.effects.end()}, "device.disable", "first node disabled");
    }
  }

  void add(LawId law, std::string field, std::string expected, std::string got) {
    Finding f = make_finding(law, at(std::move(field)), std::move(expected), std::move(got));
    f.case_id = program_.to_string();
    status_.add(std::move(f));
  }

  const DeviceProgram& program_;
  DeviceCoverage* coverage_;
  SimDevice device_;
  uint32_t* cells_ = nullptr;
  uint32_t host_ = 0, scratch_ = 0;
  std::array<StreamHandle, kStreams> streams_;
  std::array<EventHandle, kEvents> events_;
  Cells model_{};
  GraphHandle ended_;
  std::map<uint64_t, std::vector<Effect>> captured_;
  std::vector<Captured> graphs_;
  Status status_;
};

}  // namespace

Status check_device_program(const DeviceProgram& program, uint64_t seed, DeviceCoverage* coverage) {
  return ProgramRun(program, seed, coverage).run();
}

}  // namespace shadowgraph
