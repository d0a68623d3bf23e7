// Stream capture as a state machine, and the gate that every call passes before it acts. Pure host
// code: no memory, no work. See docs/graphs.md "The gate"; where it is silent, the records in
// tests/data/cuda_graph decide.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "graph/executor/executor.h"
#include "shadowgraph/device/device_api.h"

namespace shadowgraph {

struct Capture;

/// What the next node of a capturing stream depends on.
struct DependencySet {
  std::vector<NodeHandle> nodes;
  std::vector<EdgeData> edge_data;  // one a node
  void join(std::span<const NodeHandle> others);
  void join(NodeHandle node, EdgeData data);
  void become(NodeHandle node) { nodes = {node}, edge_data = {EdgeData{}}; }
};

struct SimStream {
  StreamHandle handle;
  bool blocking = true;
  bool legacy = false;
  int32_t priority = 0;
  uint32_t lane = 0;
  Capture* capture = nullptr;  // active or invalidated
  DependencySet dependencies;  // while capturing
  Marker last;                 // its newest operation outside captures
  std::vector<Marker> waits;   // that its next operation waits for too
};

struct SimEvent {
  enum class State : uint8_t { kNever, kRecorded, kCaptured };
  EventHandle handle;
  bool timing = true;
  State state = State::kNever;
  Marker marker;            // kRecorded
  uint64_t capture_id = 0;  // kCaptured
  std::vector<NodeHandle> nodes;
};

struct Capture {
  uint64_t id = 0;
  SimStream* origin = nullptr;
  uint64_t thread = 0;
  CaptureMode mode = CaptureMode::kGlobal;
  GraphHandle graph;
  bool users_graph = false;  // cudaStreamBeginCaptureToGraph
  bool invalidated = false;
  std::vector<SimStream*> participants;  // origin first
  /// Dependency sets of forked streams that were destroyed.
  std::vector<DependencySet> left_behind;
};

/// Per-thread state of the runtime.
struct ThreadState {
  uint64_t id = 0;  // never that of a thread that ended
  CaptureMode mode = CaptureMode::kGlobal;
  DeviceError last_error = DeviceError::kSuccess;
  bool has_context = false;
  std::unique_ptr<SimStream> stream;  // cudaStreamPerThread, once it is used
};

class Captures {
 public:
  // The gate. Each returns kSuccess, or the error with the captures it touches invalidated.
  /// Rule 1: the call is on the legacy stream, explicitly or as a synchronous one.
  DeviceError enter_legacy();
  /// Rule 1 for the two queries of capture state: refused, and nothing is invalidated.
  DeviceError query_legacy() const;
  /// Rule 2: synchronises or queries a stream.
  DeviceError enter_synchronize(const SimStream& s, const ThreadState& thread);
  /// Rule 2: synchronises the device.
  DeviceError enter_device_synchronize();
  /// Rule 2 and 3: synchronises or queries an event.
  DeviceError enter_event(const SimEvent& e, const ThreadState& thread);
  /// Rule 3: a potentially unsafe call.
  DeviceError enter_unsafe(const ThreadState& thread);
  /// A call that no capturing stream takes (cudaStreamAddCallback, cudaGraphLaunch, ...).
  DeviceError enter_uncapturable(const SimStream& s);
  /// Rule 1 and 4: enqueues on s. captures: s is capturing, so the work becomes a node.
  DeviceError enter_enqueue(const SimStream& s, bool* captures);

  // Capture.
  void begin(SimStream& s, CaptureMode mode, const ThreadState& thread, GraphHandle graph,
             DependencySet dependencies);
  /// Is an open capture adding to this graph?
  bool captures_into(GraphHandle graph) const;
  /// Rule 6. is_joined says whether the work of all forks is before the origin's dependency set.
  struct End {
    DeviceError error = DeviceError::kSuccess;
    std::unique_ptr<Capture> over;  // set if the capture is over, whatever the error
  };
  using IsJoined = bool (*)(void* context, const Capture& capture);
  End end(SimStream& s, const ThreadState& thread, IsJoined is_joined, void* context);
  /// Rule 5. kSuccess and *external: the caller adds an event-wait node; *eager: s is not capturing
  /// and e is not captured.
  DeviceError wait(SimStream& s, const SimEvent& e, bool external, bool* add_node, bool* eager);
  /// Is the event captured in a capture that is still open and valid?
  const Capture* active(const SimEvent& e) const;
  /// Captured, and its capture ended or was invalidated.
  bool is_stale(const SimEvent& e) const;
  /// The stream goes away. True: that ended its capture, which comes back in over.
  bool destroy(SimStream& s, std::unique_ptr<Capture>* over);

  static void invalidate(Capture* c);

 private:
  Capture* find(uint64_t id) const;
  bool blocking_capture() const;
  static bool forbids(const Capture& c, const ThreadState& thread);
  std::unique_ptr<Capture> take(Capture* c);

  std::vector<std::unique_ptr<Capture>> open_;
  uint64_t last_id_ = 0;
};

}  // namespace shadowgraph
