// Stream, Graph, GraphExec: the part of a device that a backend uses. A backend's forward()
// launches on a Stream; it does not know whether the launches are recorded, run at once or replayed
// later. Written once, on DeviceApi. See docs/architecture.md, "One path".
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shadowgraph/device/device_api.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// A non-blocking stream of its own. Calls return no error; take_status() has the first error of
/// each kind, as graph.device_error.
class Stream {
 public:
  explicit Stream(DeviceApi& api);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void launch(const KernelLaunch& launch);
  /// Either side may be host memory, which must not change until the copy is done.
  void copy(void* dst, const void* src, size_t bytes);
  void fill(void* dst, uint32_t byte, size_t bytes);
  /// Work launched here from now on runs after all work that `other` holds now (fork, join).
  void wait_for(Stream& other);
  void synchronize();

  /// The errors since the last call of take_status.
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
  /// While a recording runs: the list that launches are added to; streams that join it add to the
  /// same list. Expires when the recording ends.
  std::weak_ptr<std::vector<NodeParams>> record_;
  Status status_;
};

/// The launches of one recording, as data, and the device's graph of them.
class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(Graph&& other) noexcept { *this = std::move(other); }
  Graph& operator=(Graph&& other) noexcept;

  /// Records the launches of `body` on the stream, and on streams that wait for it; nothing runs.
  /// Every stream that took part must have been waited for at the end. Not ok: *graph is unchanged.
  static Status record(Stream& stream, const std::function<void(Stream&)>& body, Graph* graph);

  /// In the order of the launches.
  std::span<const NodeParams> nodes() const { return nodes_; }
  /// Pairs of indices into nodes(), sorted.
  std::span<const std::pair<int32_t, int32_t>> edges() const { return edges_; }

 private:
  friend class GraphExec;
  DeviceApi* api_ = nullptr;
  GraphHandle handle_;
  std::vector<NodeParams> nodes_;
  std::vector<std::pair<int32_t, int32_t>> edges_;
};

/// A graph ready to replay. It keeps the addresses and scalars of its recording.
class GraphExec {
 public:
  GraphExec() = default;
  ~GraphExec();
  GraphExec(GraphExec&& other) noexcept { *this = std::move(other); }
  GraphExec& operator=(GraphExec&& other) noexcept;

  /// Not ok: *exec is unchanged.
  static Status instantiate(Graph& graph, GraphExec* exec);
  /// Takes the parameters of another recording of the same topology (cudaGraphExecUpdate).
  Status update(Graph& graph);
  void replay(Stream& stream);

 private:
  DeviceApi* api_ = nullptr;
  ExecHandle handle_;
};

/// Gives an address its name in messages: Arena::place_of.
using PlaceOf = std::function<std::string(const void* address)>;

/// Compares a new recording with the one that an exec was made from. graph.topology_changed,
/// graph.address_changed and graph.baked_scalar name the node and the argument that differ.
Status same_launches(const Graph& kept, const Graph& again, const PlaceOf& place_of = {});

}  // namespace shadowgraph
