#include "check/twin_device.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "core/laws.h"
#include "graph/memory/memory.h"

namespace shadowgraph {
namespace {

/// One word of memory, for a finding.
uint32_t word_at(const std::byte* p) {
  uint32_t word = 0;
  std::memcpy(&word, p, sizeof word);
  return word;
}

bool is_nan32(uint32_t w) { return (w & 0x7fffffffu) > 0x7f800000u; }
bool is_nan16(uint32_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  return magnitude > 0x7f80u || (magnitude > 0x7c00u && magnitude < 0x7f80u);
}

/// The same, or NaN of the same place: which NaN an operation gives is the device's own.
bool is_same_word(uint32_t a, uint32_t b) {
  if (a == b || (is_nan32(a) && is_nan32(b))) return true;
  const auto same = [&](int shift) {
    const uint32_t x = a >> shift & 0xffffu, y = b >> shift & 0xffffu;
    return x == y || (is_nan16(x) && is_nan16(y));
  };
  return same(0) && same(16);
}

std::string to_hex(uint32_t word) {
  std::string s = "0x";
  for (int shift = 28; shift >= 0; shift -= 4) s += "0123456789abcdef"[word >> shift & 15u];
  return s;
}

/// The CPU's body of a launch, in the other device's order.
void run_on_host(void* data) {
  LaunchFrame frame{.launch = *static_cast<const KernelLaunch*>(data), .stalled = true};
  (void)frame.launch.kernel->body(frame);
}

}  // namespace

TwinDevice::TwinDevice(const SimOptions& options, DeviceApi& device, HasKernel has_kernel)
    : SimDevice(options), device_(device), has_kernel_(std::move(has_kernel)) {}

TwinDevice::~TwinDevice() {
  synchronize_streams();
  for (const auto& [mine, exec] : execs_) device_.graph_exec_destroy(exec);
  for (const auto& [mine, graph] : graphs_) device_.graph_destroy(graph);
  for (const auto& [mine, event] : events_) device_.event_destroy(event);
  for (const auto& [mine, stream] : streams_) device_.stream_destroy(stream);
  for (const auto& [mine, block] : blocks_) device_.free(block.allocated);
}

Status TwinDevice::take_findings() {
  Status status = SimDevice::take_findings();
  status.add(std::exchange(differences_, {}));
  return status;
}

template <class Call>
DeviceError TwinDevice::beside(const char* name, DeviceError here, const Call& call) {
  if (here == DeviceError::kIllegalAddress || here == DeviceError::kLaunchFailure) apart_ = true;
  if (apart_) return here;
  judged("device.twin");
  const DeviceError there = call();
  if (there == here) return here;
  apart_ = true;
  differences_.add(make_finding("device.twin", at(name),
                                std::string(name_of(here)) + " of the simulated device",
                                std::string(name_of(there))));
  return here;
}

template <class H, class Destroy>
DeviceError TwinDevice::end(const char* name, std::map<H, H>* pairs, H mine, DeviceError here,
                            const Destroy& destroy) {
  const auto it = pairs->find(mine);
  if (it == pairs->end()) return here;
  const H other = it->second;
  pairs->erase(it);
  if (!apart_) return beside(name, here, [&] { return destroy(other); });
  destroy(other);
  return here;
}

// Memory.

TwinDevice::Blocks::iterator TwinDevice::block_of(const void* p) {
  const auto* address = static_cast<const std::byte*>(p);
  auto it = blocks_.upper_bound(address);
  if (it == blocks_.begin()) return blocks_.end();
  --it;
  return address <= it->first + it->second.bytes ? it : blocks_.end();
}

template <class T>
T* TwinDevice::there(T* p) {
  const auto it = block_of(p);
  if (p == nullptr || it == blocks_.end()) return p;  // the host's
  return reinterpret_cast<T*>(it->second.there +
                              (reinterpret_cast<const std::byte*>(p) - it->first));
}

KernelLaunch TwinDevice::there(const KernelLaunch& launch) {
  KernelLaunch other = launch;
  other.args = {};
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const auto bytes = launch.args.bytes(i);
    if (launch.args.kind(i) == ArgKind::kPointer)
      other.args.pointer(there(launch.args.get<std::byte*>(i)));
    else
      other.args.add(launch.args.kind(i), bytes.data(), bytes.size());
  }
  return other;
}

void TwinDevice::bring(const void* p, size_t bytes) {
  const auto it = block_of(p);
  if (apart_ || it == blocks_.end() || bytes == 0) return;
  const auto from = static_cast<size_t>(static_cast<const std::byte*>(p) - it->first);
  const size_t count = std::min(bytes, it->second.bytes - from);
  std::memcpy(it->second.there + from, p, count);
}

// Managed memory: the host compares it, and runs there what has no body of the device's own.
DeviceError TwinDevice::malloc(size_t bytes, void** p) {
  const DeviceError here = SimDevice::malloc(bytes, p);
  Block block{.bytes = bytes};
  beside("cudaMalloc", here, [&] { return device_.malloc_managed(3 * bytes, &block.allocated); });
  if (here != DeviceError::kSuccess || block.allocated == nullptr) return here;
  block.there = static_cast<std::byte*>(block.allocated) + bytes;
  blocks_[static_cast<const std::byte*>(*p)] = block;
  return here;
}

DeviceError TwinDevice::free(void* p) {
  const DeviceError here = SimDevice::free(p);
  const auto it = blocks_.find(static_cast<const std::byte*>(p));
  if (it == blocks_.end()) return here;
  void* const allocated = it->second.allocated;
  blocks_.erase(it);
  if (apart_) device_.free(allocated);
  return beside("cudaFree", here, [&] { return device_.free(allocated); });
}

void TwinDevice::declare_buffer(const BufferDecl& buffer) {
  SimDevice::declare_buffer(buffer);
  const auto it = block_of(buffer.address);
  if (it == blocks_.end()) return;
  buffers_[buffer.address] = buffer;
  Block& block = it->second;
  const auto begin = static_cast<size_t>(static_cast<const std::byte*>(buffer.address) - it->first);
  const size_t end = std::min(begin + buffer.bytes + kRedZone, block.bytes);
  if (end > block.used) bring(it->first + block.used, end - block.used);
  block.used = std::max(block.used, end);
}

void TwinDevice::undeclare_buffer(const void* address) {
  SimDevice::undeclare_buffer(address);
  buffers_.erase(address);
}

// What is retired is poison here.
void TwinDevice::retire(const void* p, size_t bytes) {
  SimDevice::retire(p, bytes);
  bring(p, bytes);
}

std::optional<size_t> TwinDevice::first_difference(const std::byte* here, const Block& block) {
  constexpr size_t kPiece = 4096;
  for (size_t at = 0; at < block.used; at += kPiece) {
    const size_t end = std::min(at + kPiece, block.used);
    if (std::memcmp(here + at, block.there + at, end - at) == 0) continue;
    for (size_t i = at; i + 4 <= end; i += 4)
      if (!is_same_word(word_at(here + i), word_at(block.there + i))) return i;
  }
  return std::nullopt;
}

std::optional<Finding> TwinDevice::find_difference() {
  for (const auto& [here, block] : blocks_) {
    const std::optional<size_t> offset = first_difference(here, block);
    if (!offset) continue;
    const std::byte* const p = here + *offset;
    Where where = at("between buffers");
    auto it = buffers_.upper_bound(p);
    if (it != buffers_.begin()) {
      const BufferDecl& b = (--it)->second;
      const auto in = static_cast<size_t>(p - static_cast<const std::byte*>(b.address));
      if (in < b.bytes) where = at(b.name, static_cast<int64_t>(in / b.granule_bytes));
      if (in >= b.bytes) where = at("red zone behind " + b.name);
    }
    return make_finding("device.twin", std::move(where),
                        to_hex(word_at(p)) + " of the simulated device",
                        to_hex(word_at(block.there + *offset)));
  }
  return std::nullopt;
}

DeviceError TwinDevice::synchronize_streams() {
  DeviceError first = DeviceError::kSuccess;
  for (const auto& [mine, stream] : streams_) {
    const DeviceError error = device_.stream_synchronize(stream);
    if (first == DeviceError::kSuccess) first = error;
  }
  return first;
}

/// Work of other streams may not have ended on both: a difference is one that is there when all
/// has.
DeviceError TwinDevice::compared(DeviceError synchronized) {
  if (apart_ || synchronized != DeviceError::kSuccess || !find_difference()) return synchronized;
  const DeviceError here = SimDevice::device_synchronize();
  beside("cudaStreamSynchronize", here, [&] { return synchronize_streams(); });
  if (apart_ || here != DeviceError::kSuccess) return synchronized;
  if (std::optional<Finding> difference = find_difference()) {
    differences_.add(*std::move(difference));
    apart_ = true;
  }
  return synchronized;
}

// Work.

DeviceError TwinDevice::memcpy_async(const MemcpyParams& copy, StreamHandle s) {
  return beside("cudaMemcpyAsync", SimDevice::memcpy_async(copy, s), [&] {
    MemcpyParams other = copy;
    other.dst = there(copy.dst), other.src = there(copy.src);
    return device_.memcpy_async(other, pair_of(streams_, s));
  });
}

DeviceError TwinDevice::memset_async(const MemsetParams& set, StreamHandle s) {
  return beside("cudaMemsetAsync", SimDevice::memset_async(set, s), [&] {
    MemsetParams other = set;
    other.dst = there(set.dst);
    return device_.memset_async(other, pair_of(streams_, s));
  });
}

DeviceError TwinDevice::launch_kernel(const KernelLaunch& launch, StreamHandle s) {
  return beside("cudaLaunchKernel", SimDevice::launch_kernel(launch, s), [&] {
    KernelLaunch other = there(launch);
    const StreamHandle stream = pair_of(streams_, s);
    if (has_kernel_(*launch.kernel)) return device_.launch_kernel(other, stream);
    on_host_.push_back(std::move(other));
    return device_.launch_host_func(stream, run_on_host, &on_host_.back());
  });
}

DeviceError TwinDevice::settle() {
  return compared(
      beside("cudaStreamSynchronize", SimDevice::settle(), [&] { return synchronize_streams(); }));
}

DeviceError TwinDevice::device_synchronize() {
  return compared(beside("cudaDeviceSynchronize", SimDevice::device_synchronize(),
                         [&] { return device_.device_synchronize(); }));
}

// Streams and events.

DeviceError TwinDevice::stream_create_with_priority(uint32_t flags, int32_t priority,
                                                    StreamHandle* s) {
  const DeviceError here = SimDevice::stream_create_with_priority(flags, priority, s);
  return beside("cudaStreamCreateWithPriority", here, [&] {
    StreamHandle other;
    const DeviceError error = device_.stream_create_with_priority(flags, priority, &other);
    if (error == DeviceError::kSuccess && error == here) streams_[*s] = other;
    return error;
  });
}

DeviceError TwinDevice::stream_destroy(StreamHandle s) {
  return end("cudaStreamDestroy", &streams_, s, SimDevice::stream_destroy(s),
             [&](StreamHandle other) {
               device_.stream_synchronize(other);  // its host functions read what stands here
               return device_.stream_destroy(other);
             });
}

DeviceError TwinDevice::stream_synchronize(StreamHandle s) {
  return compared(beside("cudaStreamSynchronize", SimDevice::stream_synchronize(s),
                         [&] { return device_.stream_synchronize(pair_of(streams_, s)); }));
}

DeviceError TwinDevice::stream_wait_event(StreamHandle s, EventHandle e, uint32_t flags) {
  return beside("cudaStreamWaitEvent", SimDevice::stream_wait_event(s, e, flags), [&] {
    return device_.stream_wait_event(pair_of(streams_, s), pair_of(events_, e), flags);
  });
}

DeviceError TwinDevice::event_create_with_flags(uint32_t flags, EventHandle* e) {
  const DeviceError here = SimDevice::event_create_with_flags(flags, e);
  return beside("cudaEventCreateWithFlags", here, [&] {
    EventHandle other;
    const DeviceError error = device_.event_create_with_flags(flags, &other);
    if (error == DeviceError::kSuccess && error == here) events_[*e] = other;
    return error;
  });
}

DeviceError TwinDevice::event_destroy(EventHandle e) {
  return end("cudaEventDestroy", &events_, e, SimDevice::event_destroy(e),
             [&](EventHandle other) { return device_.event_destroy(other); });
}

DeviceError TwinDevice::event_record_with_flags(EventHandle e, StreamHandle s, uint32_t flags) {
  return beside("cudaEventRecord", SimDevice::event_record_with_flags(e, s, flags), [&] {
    return device_.event_record_with_flags(pair_of(events_, e), pair_of(streams_, s), flags);
  });
}

DeviceError TwinDevice::event_synchronize(EventHandle e) {
  return beside("cudaEventSynchronize", SimDevice::event_synchronize(e),
                [&] { return device_.event_synchronize(pair_of(events_, e)); });
}

// Captures and graphs.

DeviceError TwinDevice::stream_begin_capture(StreamHandle s, CaptureMode mode) {
  return beside("cudaStreamBeginCapture", SimDevice::stream_begin_capture(s, mode),
                [&] { return device_.stream_begin_capture(pair_of(streams_, s), mode); });
}

DeviceError TwinDevice::stream_end_capture(StreamHandle s, GraphHandle* g) {
  const DeviceError here = SimDevice::stream_end_capture(s, g);
  return beside("cudaStreamEndCapture", here, [&] {
    GraphHandle other;
    const DeviceError error = device_.stream_end_capture(pair_of(streams_, s), &other);
    if (error == DeviceError::kSuccess && error == here) graphs_[*g] = other;
    return error;
  });
}

DeviceError TwinDevice::graph_destroy(GraphHandle g) {
  return end("cudaGraphDestroy", &graphs_, g, SimDevice::graph_destroy(g),
             [&](GraphHandle other) { return device_.graph_destroy(other); });
}

DeviceError TwinDevice::graph_instantiate(GraphHandle g, uint64_t flags, ExecHandle* exec) {
  const DeviceError here = SimDevice::graph_instantiate(g, flags, exec);
  return beside("cudaGraphInstantiate", here, [&] {
    ExecHandle other;
    const DeviceError error = device_.graph_instantiate(pair_of(graphs_, g), flags, &other);
    if (error == DeviceError::kSuccess && error == here) execs_[*exec] = other;
    return error;
  });
}

DeviceError TwinDevice::graph_exec_destroy(ExecHandle exec) {
  return end("cudaGraphExecDestroy", &execs_, exec, SimDevice::graph_exec_destroy(exec),
             [&](ExecHandle other) { return device_.graph_exec_destroy(other); });
}

DeviceError TwinDevice::graph_exec_update(ExecHandle exec, GraphHandle g, UpdateInfo* info) {
  return beside("cudaGraphExecUpdate", SimDevice::graph_exec_update(exec, g, info), [&] {
    UpdateInfo other;
    return device_.graph_exec_update(pair_of(execs_, exec), pair_of(graphs_, g), &other);
  });
}

DeviceError TwinDevice::graph_launch(ExecHandle exec, StreamHandle s) {
  return beside("cudaGraphLaunch", SimDevice::graph_launch(exec, s),
                [&] { return device_.graph_launch(pair_of(execs_, exec), pair_of(streams_, s)); });
}

}  // namespace shadowgraph
