// SimDevice: kernels, host functions, and how work reaches the executor.
#include <algorithm>

#include "graph/capture/check_params.h"
#include "graph/sim/sim_impl.h"

namespace shadowgraph {

using enum DeviceError;

std::vector<Marker> SimDevice::Impl::work_of(const SimStream& s) const {
  std::vector<Marker> work = s.waits;
  work.push_back(s.last);
  if (s.legacy) {
    for (const auto& [handle, other] : streams)
      if (other->blocking) work.push_back(other->last);
    for (const auto& [id, thread] : threads)
      if (thread.stream) work.push_back(thread.stream->last);
  }
  return work;
}

std::vector<Marker> SimDevice::Impl::stands_behind(const SimStream& s) const {
  std::vector<Marker> work = work_of(s);
  if (s.blocking && !s.legacy) work.push_back(legacy.last);
  return work;
}

Marker SimDevice::Impl::enqueue(SimStream& s, std::shared_ptr<const ExecBody> body, Phase phase,
                                std::vector<Marker> after) {
  const std::vector<Marker> before = stands_behind(s);
  s.waits.clear();
  after.insert(after.end(), before.begin(), before.end());
  const WorkInfo info{s.lane, phase, std::move(after)};
  s.last = {executor.enqueue(std::move(body), info), {}};
  return s.last;
}

Marker SimDevice::Impl::enqueue(SimStream& s, NodeParams params) {
  std::vector<BakedPointer> pointers = bake_pointers(memory, host_block, params);
  return enqueue(s, single_node_body(std::move(params), std::move(pointers)), Phase::kEager, {});
}

DeviceError SimDevice::Impl::append(SimStream& s, NodeParams& params) {
  const auto* launch = std::get_if<KernelLaunch>(&params);
  if (launch != nullptr && launch->programmatic) {
    // A programmatic edge from every kernel that it depends on (port 1, type 1).
    for (size_t i = 0; i < s.dependencies.nodes.size(); ++i) {
      NodeParams before;
      if (graphs.get_params(s.dependencies.nodes[i], &before) == kSuccess &&
          std::holds_alternative<KernelLaunch>(before))
        s.dependencies.edge_data[i] = {1, 0, 1};
    }
  }
  NodeHandle node;
  const DeviceError error = graphs.add_node(s.capture->graph, s.dependencies.nodes,
                                            s.dependencies.edge_data, params, s.priority, &node);
  if (error == kSuccess) s.dependencies.become(node);
  return error;
}

DeviceError SimDevice::Impl::submit(SimStream& s, NodeParams params) {
  bool captures_it = false;
  const DeviceError error = captures.enter_enqueue(s, &captures_it);
  if (error != kSuccess) return error;
  if (captures_it) return append(s, params);
  enqueue(s, std::move(params));
  return kSuccess;
}

DeviceError SimDevice::launch_kernel(const KernelLaunch& launch, StreamHandle handle) {
  return impl_->call([&](ThreadState& t) {
    SimStream* s = impl_->stream(handle, t);
    if (s == nullptr) return kInvalidResourceHandle;
    const DeviceError valid = check_launch(launch);
    if (valid == kInvalidDeviceFunction) return valid;
    if (valid != kSuccess) {
      if (s->capture == nullptr) return kInvalidConfiguration;
      const DeviceError error = s->capture->invalidated ? kStreamCaptureInvalidated : kInvalidValue;
      Captures::invalidate(s->capture);
      return error;
    }
    return impl_->submit(*s, launch);
  });
}

DeviceError SimDevice::func_get_attributes(const Kernel* kernel) {
  return impl_->call(
      [&](ThreadState&) { return kernel == nullptr ? kInvalidDeviceFunction : kSuccess; });
}

DeviceError SimDevice::launch_host_func(StreamHandle handle, HostFn fn, void* user_data) {
  return impl_->call([&](ThreadState& t) {
    SimStream* s = impl_->stream(handle, t);
    if (s == nullptr) return kInvalidResourceHandle;
    return fn == nullptr ? kInvalidValue : impl_->submit(*s, HostParams{fn, user_data});
  });
}

DeviceError SimDevice::stream_add_callback(StreamHandle handle, HostFn fn, void* user_data) {
  return impl_->call([&](ThreadState& t) {
    SimStream* s = impl_->stream(handle, t);
    if (s == nullptr) return kInvalidResourceHandle;
    const DeviceError error = impl_->captures.enter_uncapturable(*s);
    if (error != kSuccess) return error;
    if (fn == nullptr) return kInvalidValue;
    impl_->enqueue(*s, HostParams{fn, user_data});
    return kSuccess;
  });
}

}  // namespace shadowgraph
