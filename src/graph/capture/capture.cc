#include "graph/capture/capture.h"

#include <algorithm>

namespace shadowgraph {

using enum DeviceError;

void DependencySet::join(NodeHandle node, EdgeData data) {
  if (std::find(nodes.begin(), nodes.end(), node) != nodes.end()) return;
  nodes.push_back(node);
  edge_data.push_back(data);
}

void DependencySet::join(std::span<const NodeHandle> others) {
  for (const NodeHandle node : others) join(node, EdgeData{});
}

void Captures::invalidate(Capture* c) { c->invalidated = true; }

Capture* Captures::find(uint64_t id) const {
  for (const auto& c : open_)
    if (c->id == id) return c.get();
  return nullptr;
}

const Capture* Captures::active(const SimEvent& e) const {
  if (e.state != SimEvent::State::kCaptured) return nullptr;
  const Capture* c = find(e.capture_id);
  return c != nullptr && !c->invalidated ? c : nullptr;
}

bool Captures::is_stale(const SimEvent& e) const {
  return e.state == SimEvent::State::kCaptured && active(e) == nullptr;
}

bool Captures::blocking_capture() const {
  return std::any_of(open_.begin(), open_.end(), [](const auto& c) {
    return std::any_of(c->participants.begin(), c->participants.end(),
                       [](const SimStream* s) { return s->blocking; });
  });
}

DeviceError Captures::query_legacy() const {
  return blocking_capture() ? kStreamCaptureImplicit : kSuccess;
}

DeviceError Captures::enter_legacy() {
  if (!blocking_capture()) return kSuccess;
  for (const auto& c : open_) {
    if (std::any_of(c->participants.begin(), c->participants.end(),
                    [](const SimStream* s) { return s->blocking; }))
      invalidate(c.get());
  }
  return kStreamCaptureImplicit;
}

DeviceError Captures::enter_synchronize(const SimStream& s, const ThreadState& thread) {
  if (s.legacy && blocking_capture()) return enter_legacy();
  if (s.capture != nullptr) {
    invalidate(s.capture);
    return kStreamCaptureUnsupported;
  }
  return enter_unsafe(thread);
}

DeviceError Captures::enter_device_synchronize() {
  if (open_.empty()) return kSuccess;
  for (const auto& c : open_) invalidate(c.get());
  return kStreamCaptureUnsupported;
}

DeviceError Captures::enter_event(const SimEvent& e, const ThreadState& thread) {
  if (active(e) != nullptr) {
    invalidate(find(e.capture_id));
    return kCapturedEvent;
  }
  return is_stale(e) ? kInvalidValue : enter_unsafe(thread);
}

/// A capture forbids unsafe calls to its own thread unless it is relaxed, and to every other thread
/// if it is global; a thread opts out of the second with mode thread_local, of both with relaxed.
bool Captures::forbids(const Capture& c, const ThreadState& thread) {
  if (thread.mode == CaptureMode::kRelaxed) return false;
  if (c.thread == thread.id) return c.mode != CaptureMode::kRelaxed;
  return thread.mode == CaptureMode::kGlobal && c.mode == CaptureMode::kGlobal;
}

DeviceError Captures::enter_unsafe(const ThreadState& thread) {
  DeviceError error = kSuccess;
  for (const auto& c : open_) {
    if (!forbids(*c, thread)) continue;
    invalidate(c.get());
    error = kStreamCaptureUnsupported;
  }
  return error;
}

DeviceError Captures::enter_uncapturable(const SimStream& s) {
  if (s.legacy) return enter_legacy();
  if (s.capture == nullptr) return kSuccess;
  invalidate(s.capture);
  return kStreamCaptureUnsupported;
}

DeviceError Captures::enter_enqueue(const SimStream& s, bool* captures) {
  *captures = false;
  if (s.legacy) return enter_legacy();
  if (s.capture == nullptr) return kSuccess;
  *captures = true;
  return s.capture->invalidated ? kStreamCaptureInvalidated : kSuccess;
}

bool Captures::captures_into(GraphHandle graph) const {
  return std::any_of(open_.begin(), open_.end(), [&](const auto& c) { return c->graph == graph; });
}

void Captures::begin(SimStream& s, CaptureMode mode, const ThreadState& thread, GraphHandle graph,
                     DependencySet dependencies) {
  auto capture = std::make_unique<Capture>();
  capture->id = ++last_id_;
  capture->origin = &s;
  capture->thread = thread.id;
  capture->mode = mode;
  capture->graph = graph;
  capture->participants = {&s};
  s.capture = capture.get();
  s.dependencies = std::move(dependencies);
  open_.push_back(std::move(capture));
}

std::unique_ptr<Capture> Captures::take(Capture* c) {
  for (SimStream* s : c->participants) {
    s->capture = nullptr;
    s->dependencies = {};
  }
  const auto at =
      std::find_if(open_.begin(), open_.end(), [c](const auto& o) { return o.get() == c; });
  std::unique_ptr<Capture> taken = std::move(*at);
  open_.erase(at);
  return taken;
}

Captures::End Captures::end(SimStream& s, const ThreadState& thread, IsJoined is_joined,
                            void* context) {
  Capture* c = s.capture;
  if (c == nullptr) return {kIllegalState, nullptr};
  if (c->origin != &s) {
    invalidate(c);
    return {kStreamCaptureUnmatched, nullptr};
  }
  DeviceError error = kSuccess;
  if (c->invalidated) {
    error = kStreamCaptureInvalidated;
  } else if (c->thread != thread.id && c->mode != CaptureMode::kRelaxed) {
    error = kStreamCaptureWrongThread;
  } else if (!is_joined(context, *c)) {
    error = kStreamCaptureUnjoined;
  }
  return {error, take(c)};
}

DeviceError Captures::wait(SimStream& s, const SimEvent& e, bool external, bool* add_node,
                           bool* eager) {
  *add_node = *eager = false;
  if (s.capture != nullptr && s.capture->invalidated) return kStreamCaptureInvalidated;
  if (is_stale(e)) {
    if (s.capture != nullptr) invalidate(s.capture);
    return kInvalidValue;
  }
  if (active(e) != nullptr) {
    Capture* c = find(e.capture_id);
    if (s.legacy) {
      invalidate(c);
      return kStreamCaptureImplicit;
    }
    if (s.capture == nullptr) {
      s.capture = c;
      c->participants.push_back(&s);
    } else if (s.capture != c) {
      invalidate(c);
      invalidate(s.capture);
      return kStreamCaptureMerge;
    }
    s.dependencies.join(e.nodes);
    return kSuccess;
  }
  if (s.capture == nullptr) {
    *eager = true;
    return kSuccess;
  }
  *add_node = external;
  if (external || e.state == SimEvent::State::kNever) return kSuccess;
  invalidate(s.capture);
  return kStreamCaptureIsolation;
}

bool Captures::destroy(SimStream& s, std::unique_ptr<Capture>* over) {
  Capture* c = s.capture;
  if (c == nullptr) return false;
  if (c->origin == &s) {
    *over = take(c);
    return true;
  }
  c->left_behind.push_back(std::move(s.dependencies));
  std::erase(c->participants, &s);
  return false;
}

}  // namespace shadowgraph
