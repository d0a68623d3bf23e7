// Stream, Graph, GraphExec: the little of a device that a backend sees. A backend's forward() is
// given a Stream and launches; whether that is recorded, run at once or replayed later is not its
// business. Written once, on DeviceApi. DESIGN "The one path".
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "shadowgraph/device_api.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// A stream of its own, non-blocking. Calls do not fail one by one: the first error of each kind
/// stands in status(), as graph.device_error.
class Stream {
 public:
  explicit Stream(DeviceApi& api);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void launch(const KernelLaunch& launch);
  /// Either side may be host memory, which must not change before the copy is done.
  void copy(void* dst, const void* src, size_t bytes);
  void fill(void* dst, uint32_t byte, size_t bytes);
  /// Everything launched here from now on comes after what other holds now (fork, join).
  void wait_for(Stream& other);
  void synchronize();

  /// What went wrong since the last call.
  Status take_status() { return std::exchange(status_, {}); }
  DeviceApi& api() { return api_; }
  StreamHandle handle() const { return handle_; }

 private:
  friend class Graph;
  friend class GraphExec;
  void check(DeviceError error, const char* call);
  void write_down(const NodeParams& params);

  DeviceApi& api_;
  StreamHandle handle_;
  EventHandle event_;
  /// While recording: where launches are written down; a stream that joins writes there too. Gone
  /// once the recording is over.
  std::weak_ptr<std::vector<NodeParams>> record_;
  Status status_;
};

/// What one recording launched, as data, and the device's graph of it.
class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(Graph&& other) noexcept { *this = std::move(other); }
  Graph& operator=(Graph&& other) noexcept;

  /// Records what body launches on the stream, and on streams that wait for it; nothing runs. A
  /// stream that took part must have been waited for. Not ok: graph is as it was.
  static Status record(Stream& stream, const std::function<void(Stream&)>& body, Graph* graph);

  /// In order of launch.
  std::span<const NodeParams> nodes() const { return nodes_; }
  /// By ordinal, sorted.
  std::span<const std::pair<int32_t, int32_t>> edges() const { return edges_; }

 private:
  friend class GraphExec;
  DeviceApi* api_ = nullptr;
  GraphHandle handle_;
  std::vector<NodeParams> nodes_;
  std::vector<std::pair<int32_t, int32_t>> edges_;
};

/// A graph ready to replay: it keeps addresses and scalars as they were recorded.
class GraphExec {
 public:
  GraphExec() = default;
  ~GraphExec();
  GraphExec(GraphExec&& other) noexcept { *this = std::move(other); }
  GraphExec& operator=(GraphExec&& other) noexcept;

  /// Not ok: exec is as it was.
  static Status instantiate(Graph& graph, GraphExec* exec);
  /// From now on another recording of the same topology (cudaGraphExecUpdate).
  Status update(Graph& graph);
  void replay(Stream& stream);

 private:
  DeviceApi* api_ = nullptr;
  ExecHandle handle_;
};

/// Recording again should give what the exec kept: graph.topology_changed, graph.address_changed
/// and graph.baked_scalar name the node and the argument that differ.
Status same_launches(const Graph& kept, const Graph& again);

}  // namespace shadowgraph
