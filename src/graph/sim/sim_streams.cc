// SimDevice: streams and events.
#include <algorithm>

#include "graph/sim/sim_impl.h"

namespace shadowgraph {

using enum DeviceError;

namespace {

constexpr int32_t kLeastPriority = 0, kGreatestPriority = -5;  // an H200's

}  // namespace

DeviceError SimDevice::device_get_stream_priority_range(int32_t* least, int32_t* greatest) {
  return impl_->call([&](ThreadState&) {
    if (least != nullptr) *least = kLeastPriority;
    if (greatest != nullptr) *greatest = kGreatestPriority;
    return kSuccess;
  });
}

DeviceError SimDevice::stream_create_with_priority(uint32_t flags, int32_t priority,
                                                   StreamHandle* s) {
  return impl_->call([&](ThreadState&) {
    if (s == nullptr || flags > kStreamNonBlocking) return kInvalidValue;
    auto stream = std::make_unique<SimStream>();
    stream->handle = {++impl_->last_handle};
    stream->blocking = flags == kStreamDefault;
    stream->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
    stream->lane = impl_->executor.add_lane();
    *s = stream->handle;
    impl_->streams.emplace(*s, std::move(stream));
    return kSuccess;
  });
}

DeviceError SimDevice::stream_destroy(StreamHandle handle) {
  return impl_->call([&](ThreadState&) {
    const auto found = impl_->streams.find(handle);
    if (found == impl_->streams.end()) return kInvalidResourceHandle;
    judged("graph.destroyed_in_capture");
    if (found->second->capture != nullptr) {
      impl_->add_finding("graph.destroyed_in_capture", "stream", "a stream that is not capturing",
                         "a stream of a capture that is open");
    }
    // What is pending goes on, and the legacy stream still stands behind it.
    if (found->second->blocking) impl_->legacy.waits.push_back(impl_->tail(*found->second));
    constexpr size_t kManyWaits = 64;
    if (impl_->legacy.waits.size() > kManyWaits) impl_->tail(impl_->legacy);
    std::unique_ptr<Capture> over;
    if (impl_->captures.destroy(*found->second, &over)) impl_->graphs.destroy(over->graph);
    impl_->executor.remove_lane(found->second->lane);
    impl_->streams.erase(found);
    return kSuccess;
  });
}

DeviceError SimDevice::stream_get_priority(StreamHandle handle, int32_t* priority) {
  return impl_->call([&](ThreadState& t) {
    const SimStream* s = impl_->stream(handle, t);
    if (s == nullptr) return kInvalidResourceHandle;
    if (priority == nullptr) return kInvalidValue;
    *priority = s->priority;
    return kSuccess;
  });
}

DeviceError SimDevice::stream_synchronize(StreamHandle handle) {
  return impl_->call([&](ThreadState& t) {
    SimStream* s = impl_->stream(handle, t);
    if (s == nullptr) return kInvalidResourceHandle;
    const DeviceError error = impl_->captures.enter_synchronize(*s, t);
    if (error != kSuccess) return error;
    for (const Marker& m : impl_->work_of(*s)) impl_->executor.wait(m);
    return impl_->executor.sticky();
  });
}

DeviceError SimDevice::stream_query(StreamHandle handle) {
  return impl_->call([&](ThreadState& t) {
    SimStream* s = impl_->stream(handle, t);
    if (s == nullptr) return kInvalidResourceHandle;
    const DeviceError error = impl_->captures.enter_synchronize(*s, t);
    if (error != kSuccess) return error;
    const std::vector<Marker> work = impl_->work_of(*s);
    for (const Marker& m : work)
      if (!impl_->executor.done(m)) return kNotReady;
    for (const Marker& m : work) impl_->executor.observe(m);
    return impl_->executor.sticky();
  });
}

Marker SimDevice::Impl::tail(SimStream& s) {
  // One marker for all that the stream stands behind.
  if (!s.waits.empty() || s.legacy || s.blocking) enqueue(s, EmptyParams{});
  return s.last;
}

DeviceError SimDevice::stream_wait_event(StreamHandle handle, EventHandle e, uint32_t flags) {
  return impl_->call([&](ThreadState& t) {
    SimStream* s = impl_->stream(handle, t);
    if (s == nullptr) return kInvalidResourceHandle;
    if (flags > kEventWaitExternal) return kInvalidValue;
    if (s->legacy) {
      const DeviceError error = impl_->captures.enter_legacy();
      if (error != kSuccess) return error;
    }
    const SimEvent* event = impl_->event(e);
    if (event == nullptr) {
      if (s->capture != nullptr) Captures::invalidate(s->capture);
      return kInvalidResourceHandle;
    }
    bool add_node = false, eager = false;
    const DeviceError error =
        impl_->captures.wait(*s, *event, flags == kEventWaitExternal, &add_node, &eager);
    if (error != kSuccess) return error;
    NodeParams params = EventWaitParams{e};
    if (add_node) return impl_->append(*s, params);
    if (eager && flags == kEventWaitExternal) return kIllegalState;
    if (!eager || event->state != SimEvent::State::kRecorded) return kSuccess;
    s->waits.push_back(event->marker);
    // What blocking streams do next waits for it too.
    if (s->legacy) impl_->tail(*s);
    return kSuccess;
  });
}

DeviceError SimDevice::event_create_with_flags(uint32_t flags, EventHandle* e) {
  return impl_->call([&](ThreadState&) {
    if (e == nullptr || (flags & ~(kEventBlockingSync | kEventDisableTiming)) != 0)
      return kInvalidValue;
    SimEvent event;
    event.handle = {++impl_->last_handle};
    event.timing = (flags & kEventDisableTiming) == 0;
    *e = event.handle;
    impl_->events.emplace(*e, std::move(event));
    return kSuccess;
  });
}

DeviceError SimDevice::event_destroy(EventHandle e) {
  return impl_->call(
      [&](ThreadState&) { return impl_->events.erase(e) > 0 ? kSuccess : kInvalidResourceHandle; });
}

DeviceError SimDevice::event_record_with_flags(EventHandle e, StreamHandle handle, uint32_t flags) {
  return impl_->call([&](ThreadState& t) {
    SimStream* s = impl_->stream(handle, t);
    SimEvent* event = impl_->event(e);
    if (s == nullptr || event == nullptr) return kInvalidResourceHandle;
    if (flags > kEventRecordExternal) return kInvalidValue;
    bool captures = false;
    const DeviceError error = impl_->captures.enter_enqueue(*s, &captures);
    if (error != kSuccess) return error;
    if (!captures) {
      if (flags == kEventRecordExternal) return kIllegalState;
      event->state = SimEvent::State::kRecorded;
      event->marker = impl_->tail(*s);
      return kSuccess;
    }
    NodeParams params = EventRecordParams{e};
    if (flags == kEventRecordExternal) return impl_->append(*s, params);
    event->state = SimEvent::State::kCaptured;
    event->capture_id = s->capture->id;
    event->nodes = s->dependencies.nodes;
    return kSuccess;
  });
}

DeviceError SimDevice::event_synchronize(EventHandle e) {
  return impl_->call([&](ThreadState& t) {
    const SimEvent* event = impl_->event(e);
    if (event == nullptr) return kInvalidResourceHandle;
    const DeviceError error = impl_->captures.enter_event(*event, t);
    if (error != kSuccess) return error;
    impl_->executor.wait(event->marker);
    return impl_->executor.sticky();
  });
}

DeviceError SimDevice::event_query(EventHandle e) {
  // The one query that an H200 answers inside a host function too; not to be relied on.
  if (impl_->in_host_function() && impl_->event(e) != nullptr &&
      impl_->event(e)->state == SimEvent::State::kNever) {
    impl_->refuse_in_host_function();
    return kSuccess;
  }
  return impl_->call([&](ThreadState& t) {
    const SimEvent* event = impl_->event(e);
    if (event == nullptr) return kInvalidResourceHandle;
    const DeviceError error = impl_->captures.enter_event(*event, t);
    if (error != kSuccess) return error;
    if (!impl_->executor.done(event->marker)) return kNotReady;
    impl_->executor.observe(event->marker);
    return impl_->executor.sticky();
  });
}

DeviceError SimDevice::event_elapsed_time(EventHandle start, EventHandle end, float* ms) {
  return impl_->call([&](ThreadState&) {
    const SimEvent* events[] = {impl_->event(start), impl_->event(end)};
    if (events[0] == nullptr || events[1] == nullptr) return kInvalidResourceHandle;
    if (ms == nullptr) return kInvalidValue;
    for (const SimEvent* e : events) {
      if (impl_->captures.active(*e) != nullptr) return kCapturedEvent;
      if (impl_->captures.is_stale(*e)) return kInvalidValue;
    }
    for (const SimEvent* e : events)
      if (!e->timing || e->state == SimEvent::State::kNever) return kInvalidResourceHandle;
    for (const SimEvent* e : events)
      if (!impl_->executor.done(e->marker)) return kNotReady;
    // The simulated clock counts operations.
    *ms = static_cast<float>(
        static_cast<int64_t>(events[1]->marker.serial - events[0]->marker.serial));
    return kSuccess;
  });
}

}  // namespace shadowgraph
