#include "shadowgraph/device/sim_device.h"

#include <algorithm>

#include "graph/sim/sim_impl.h"

namespace shadowgraph {

using enum DeviceError;

namespace {

Choose make_chooser(const SimOptions& options, Rng* rng) {
  if (options.choose) return options.choose;
  if (options.seed == 0) return [](uint32_t) { return 0u; };
  return [rng](uint32_t bound) { return rng->below(bound); };
}

}  // namespace

uint64_t thread_id() {
  static std::atomic<uint64_t> last = 0;
  thread_local const uint64_t id = ++last;
  return id;
}

SimDevice::Impl::Impl(const SimOptions& o)
    : options(o),
      rng(o.seed),
      memory({.capacity = o.memory_bytes, .quarantine = o.quarantine_bytes, .checked = o.checked}),
      choose(make_chooser(o, &rng)),
      freedom(choose),
      host_block([this](const void* p) { return executor.host_block_of(p); }),
      graphs(memory, freedom, host_block),
      executor(memory, choose, o.seed == 0 && !o.choose,
               {.marker_of =
                    [this](EventHandle e) {
                      const SimEvent* ev = event(e);
                      return ev != nullptr && ev->state == SimEvent::State::kRecorded ? ev->marker
                                                                                      : Marker{};
                    },
                .host_function =
                    [this](bool inside) { host_function_thread = inside ? thread_id() : 0; },
                .watch = o.watch,
                .proves_footprints = o.proves_footprints},
               &findings) {
  legacy.handle = kLegacyStream;
  legacy.legacy = true;
  legacy.lane = executor.add_lane();
}

DeviceError SimDevice::Impl::refuse_in_host_function() {
  // The thread that runs a host function holds the lock already.
  add_finding("graph.host_callback", "host function", "no device call", "a device call");
  return kNotPermitted;
}

ThreadState& SimDevice::Impl::this_thread() {
  const uint64_t id = thread_id();
  ThreadState& thread = threads[id];
  thread.id = id;
  return thread;
}

SimStream* SimDevice::Impl::stream(StreamHandle s, ThreadState& thread) {
  if (s == kNullStream || s == kLegacyStream) return &legacy;
  if (s == kPerThreadStream) {
    if (!thread.stream) {
      thread.stream = std::make_unique<SimStream>();
      thread.stream->handle = s;
      thread.stream->lane = executor.add_lane();
    }
    return thread.stream.get();
  }
  const auto found = streams.find(s);
  return found == streams.end() ? nullptr : found->second.get();
}

SimEvent* SimDevice::Impl::event(EventHandle e) {
  const auto found = events.find(e);
  return found == events.end() ? nullptr : &found->second;
}

void SimDevice::Impl::add_finding(LawId law, std::string field, std::string expected,
                                  std::string got) {
  findings.add(make_finding(law, at(std::move(field)), std::move(expected), std::move(got)));
}

SimDevice::SimDevice(const SimOptions& options) : impl_(std::make_unique<Impl>(options)) {}
SimDevice::~SimDevice() = default;

Status SimDevice::take_findings() {
  if (impl_->in_host_function()) return {};
  const std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->findings, {});
}

void SimDevice::check_leaks() {
  impl_->note([&] {
    impl_->executor.wait_all();
    impl_->memory.judge_leaks(&impl_->findings);
  });
}

SimDevice::ShadowCost SimDevice::shadow_cost(const void* p) const {
  if (impl_->in_host_function()) return {};
  const std::lock_guard lock(impl_->mutex);
  const DeviceMemory::Cost cost = impl_->memory.cost_of(p);
  return {cost.arena_bytes, cost.shadow_bytes};
}

void SimDevice::poll() {
  impl_->note([&] { impl_->executor.advance(); });
}

DeviceError SimDevice::settle() {
  return impl_->call([&](ThreadState&) {
    impl_->executor.settle();
    return impl_->executor.sticky();
  });
}

// Errors.

DeviceError SimDevice::get_last_error() {
  if (impl_->in_host_function()) return kSuccess;
  const std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->this_thread().last_error, kSuccess);
}

DeviceError SimDevice::peek_at_last_error() {
  if (impl_->in_host_function()) return kSuccess;
  const std::lock_guard lock(impl_->mutex);
  return impl_->this_thread().last_error;
}

DeviceError SimDevice::device_synchronize() {
  return impl_->call([&](ThreadState&) {
    const DeviceError error = impl_->captures.enter_device_synchronize();
    if (error != kSuccess) return error;
    impl_->executor.wait_all();
    return impl_->executor.sticky();
  });
}

namespace {

enum class When : uint8_t { kAlways, kUnsafe, kNeedsContext };

constexpr When kWhen[] = {
#define SG_OTHER_CALL(name, when) When::when,
#include "shadowgraph/device/device_calls.inc"
#undef SG_OTHER_CALL
};

}  // namespace

DeviceError SimDevice::other_call(OtherCall c) {
  const When when = kWhen[static_cast<size_t>(c)];
  bool had_context = false;
  if (!impl_->in_host_function()) {
    const std::lock_guard lock(impl_->mutex);
    had_context = impl_->this_thread().has_context;
  }
  return impl_->call([&](ThreadState& thread) {
    if (when == When::kUnsafe) return impl_->captures.enter_unsafe(thread);
    if (c == OtherCall::kDeviceGraphMemTrim) impl_->memory.trim_graph_memory();
    return when == When::kNeedsContext && !had_context ? kDeviceUninitialized : kSuccess;
  });
}

// Annotations.

void SimDevice::expect_graph(ExecHandle exec, GraphHandle graph) {
  impl_->note([&] { impl_->execs[exec].expected = graph; });
}
void SimDevice::declare_buffer(const BufferDecl& buffer) {
  impl_->note_of_memory([&] { impl_->memory.declare(buffer); });
}
void SimDevice::undeclare_buffer(const void* address) {
  impl_->note_of_memory([&] { impl_->memory.undeclare(address); });
}
void SimDevice::name_buffer(const void* p, std::string_view name) {
  impl_->note([&] { impl_->memory.name(p, name); });
}
void SimDevice::retire(const void* p, size_t bytes) {
  impl_->note_of_memory([&] { impl_->memory.retire(p, bytes); });
}
void SimDevice::set_owner(const void* p, size_t bytes, OwnerId owner) {
  impl_->note_of_memory([&] { impl_->memory.set_owner(p, bytes, owner); });
}
void SimDevice::add_owner(const void* p, size_t bytes, OwnerId owner) {
  impl_->note_of_memory([&] { impl_->memory.add_owner(p, bytes, owner); });
}
void SimDevice::set_row_owners(std::span<const OwnerId> owners) {
  impl_->note([&] { impl_->executor.set_row_owners(owners); });
}
void SimDevice::set_layers(std::span<const LayerBytes> tensors) {
  impl_->note_of_memory([&] { impl_->memory.set_layers(tensors); });
}
void SimDevice::begin_step() {
  impl_->note([&] { impl_->memory.begin_step(); });
}
uint64_t SimDevice::output_ticket() {
  uint64_t ticket = 0;
  impl_->note([&] { ticket = impl_->executor.last_serial(); });
  return ticket;
}
void SimDevice::expect_output(const void* p, size_t bytes, uint64_t ticket) {
  impl_->note([&] { impl_->memory.judge_output(p, bytes, ticket, &impl_->findings); });
}
void SimDevice::host_block(const void* p, size_t bytes, std::string_view name) {
  impl_->note([&] { impl_->executor.host_block(p, bytes, name); });
}
void SimDevice::host_block_ended(const void* p) {
  impl_->note([&] { impl_->executor.host_block_ended(p); });
}
void SimDevice::host_writes(const void* p, size_t bytes) {
  impl_->note([&] { impl_->executor.host_writes(p, bytes); });
}

}  // namespace shadowgraph
