// SimDevice: stream capture.
#include <algorithm>

#include "graph/sim/sim_impl.h"

namespace shadowgraph {

using enum DeviceError;

DeviceError SimDevice::thread_exchange_stream_capture_mode(CaptureMode* mode) {
  return impl_->call(
      [&](ThreadState& t) {
        if (mode == nullptr) return kInvalidValue;
        // CUDA takes a mode that does not exist without a word; it is as good as the strictest
        // here.
        const bool known = *mode >= CaptureMode::kGlobal && *mode <= CaptureMode::kRelaxed;
        *mode = std::exchange(t.mode, known ? *mode : CaptureMode::kGlobal);
        return kSuccess;
      },
      /*after_fault=*/true);
}

DeviceError SimDevice::Impl::begin_capture(StreamHandle handle, ThreadState& thread,
                                           CaptureMode mode, GraphHandle graph,
                                           DependencySet dependencies) {
  SimStream* s = stream(handle, thread);
  if (s == nullptr) return kInvalidResourceHandle;
  if (s->legacy) return kStreamCaptureUnsupported;
  if (mode < CaptureMode::kGlobal || mode > CaptureMode::kRelaxed) return kInvalidValue;
  if (s->capture != nullptr) return kIllegalState;
  const bool users_graph = static_cast<bool>(graph);
  if (!users_graph) graphs.create(&graph);
  captures.begin(*s, mode, thread, graph, std::move(dependencies));
  s->capture->users_graph = users_graph;
  return kSuccess;
}

DeviceError SimDevice::stream_begin_capture(StreamHandle s, CaptureMode mode) {
  return impl_->call([&](ThreadState& t) { return impl_->begin_capture(s, t, mode, {}, {}); });
}

DeviceError SimDevice::stream_begin_capture_to_graph(StreamHandle s, GraphHandle g,
                                                     std::span<const NodeHandle> dependencies,
                                                     std::span<const EdgeData> edge_data,
                                                     CaptureMode mode) {
  return impl_->call([&](ThreadState& t) {
    if (impl_->graphs.find(g) == nullptr) return kInvalidValue;
    DependencySet set;
    const DeviceError error = impl_->make_set(g, dependencies, edge_data, &set);
    return error != kSuccess ? error : impl_->begin_capture(s, t, mode, g, std::move(set));
  });
}

/// Nodes of g with their edge data, which may be left out.
DeviceError SimDevice::Impl::make_set(GraphHandle g, std::span<const NodeHandle> nodes,
                                      std::span<const EdgeData> edge_data, DependencySet* set) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    const StoredGraph* home = graphs.graph_of(nodes[i]);
    if (home == nullptr || home->handle != g) return kInvalidValue;
    set->join(nodes[i], i < edge_data.size() ? edge_data[i] : EdgeData{});
  }
  return kSuccess;
}

bool SimDevice::Impl::all_joined(void* impl, const Capture& capture) {
  GraphStore& graphs = static_cast<Impl*>(impl)->graphs;
  const auto joined = [&](const DependencySet& set) {
    return std::all_of(set.nodes.begin(), set.nodes.end(), [&](NodeHandle node) {
      return graphs.reaches(node, capture.origin->dependencies.nodes);
    });
  };
  return std::all_of(capture.participants.begin(), capture.participants.end(),
                     [&](const SimStream* s) { return joined(s->dependencies); }) &&
         std::all_of(capture.left_behind.begin(), capture.left_behind.end(), joined);
}

DeviceError SimDevice::stream_end_capture(StreamHandle handle, GraphHandle* g) {
  // Set whatever happens, also where the call is refused before it looks at its stream.
  if (g != nullptr) *g = {};
  return impl_->call([&](ThreadState& t) {
    SimStream* s = impl_->stream(handle, t);
    if (s == nullptr) return kInvalidResourceHandle;
    Captures::End end = impl_->captures.end(*s, t, Impl::all_joined, impl_.get());
    if (!end.over) return end.error;
    const bool is_kept = end.error == kSuccess && (g != nullptr || end.over->users_graph);
    if (!is_kept) impl_->graphs.destroy(end.over->graph);
    if (end.error == kSuccess && g != nullptr) *g = end.over->graph;
    return end.error;
  });
}

DeviceError SimDevice::stream_is_capturing(StreamHandle handle, CaptureStatus* status) {
  return impl_->call([&](ThreadState& t) {
    const SimStream* s = impl_->stream(handle, t);
    if (s == nullptr) return kInvalidResourceHandle;
    if (status == nullptr) return kInvalidValue;
    return impl_->capture_status(*s, status);
  });
}

DeviceError SimDevice::Impl::capture_status(const SimStream& s, CaptureStatus* status) const {
  if (s.legacy) {
    const DeviceError error = captures.query_legacy();
    if (error != kSuccess) return error;
  }
  *status = s.capture == nullptr     ? CaptureStatus::kNone
            : s.capture->invalidated ? CaptureStatus::kInvalidated
                                     : CaptureStatus::kActive;
  return kSuccess;
}

DeviceError SimDevice::stream_get_capture_info(StreamHandle handle, CaptureInfo* info) {
  return impl_->call([&](ThreadState& t) {
    const SimStream* s = impl_->stream(handle, t);
    if (s == nullptr) return kInvalidResourceHandle;
    if (info == nullptr) return kInvalidValue;
    CaptureInfo now;
    const DeviceError error = impl_->capture_status(*s, &now.status);
    if (error != kSuccess) return error;
    if (now.status == CaptureStatus::kActive) {
      now.id = s->capture->id;
      now.graph = s->capture->graph;
      now.dependencies = s->dependencies.nodes;
      now.edge_data = s->dependencies.edge_data;
    }
    *info = std::move(now);
    return kSuccess;
  });
}

DeviceError SimDevice::stream_update_capture_dependencies(StreamHandle handle,
                                                          std::span<const NodeHandle> dependencies,
                                                          std::span<const EdgeData> edge_data,
                                                          uint32_t flags) {
  return impl_->call([&](ThreadState& t) {
    SimStream* s = impl_->stream(handle, t);
    if (s == nullptr) return kInvalidResourceHandle;
    if (flags > kSetCaptureDependencies) return kInvalidValue;
    if (s->capture == nullptr) return kIllegalState;
    if (s->capture->invalidated) return kStreamCaptureInvalidated;
    DependencySet set;
    if (flags == kAddCaptureDependencies) set = s->dependencies;
    const DeviceError error = impl_->make_set(s->capture->graph, dependencies, edge_data, &set);
    if (error == kSuccess) s->dependencies = std::move(set);
    return error;
  });
}

}  // namespace shadowgraph
