#include "check/device_calls.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "attn/validate/validate.h"
#include "core/laws.h"
#include "graph/sim/device_status.h"
#include "launch/attention_launch.h"
#include "launch/merge_launch.h"
#include "launch/ragged_launch.h"
#include "launch/store_launch.h"
#include "shadowgraph/device/graph.h"

namespace shadowgraph {
namespace {

using Bytes = std::vector<std::byte>;

// Every part of the image begins as its memory on the host does, modulo this, behind a gap as wide,
// and the image has so many bytes or a multiple: a simulated device's shadow knows whole granules.
constexpr size_t kAlignment = 256;

/// What a launch touches behind one of its pointers.
struct Part {
  int64_t begin = 0, end = 0;  // bytes from the pointer
  size_t at = 0;               // of begin, in the image
  std::vector<std::pair<int64_t, int64_t>> written;

  void add(const AccessSpan& span) {
    const int64_t size = span.element_bytes, first = span.first * size;
    const int64_t last = first + span.count * size;
    if (begin == end) begin = first, end = last;
    begin = std::min(begin, first), end = std::max(end, last);
    if (span.access == Access::kWrite) written.emplace_back(first, last);
  }
  size_t bytes() const { return static_cast<size_t>(end - begin); }
};

/// Memory of a launch as one piece, poison between its parts.
class Image {
 public:
  explicit Image(const KernelLaunch& launch) {
    Footprint spans;
    launch.kernel->footprint(LaunchFrame{launch}, &spans);
    for (size_t i = 0; i < launch.args.size(); ++i) {
      if (launch.args.kind(i) == ArgKind::kPointer) parts_[launch.args.get<std::byte*>(i)];
    }
    for (const AccessSpan& span : spans) {
      const auto it = parts_.find(static_cast<const std::byte*>(span.buffer));
      if (it != parts_.end() && span.count > 0) it->second.add(span);
    }
    size_t size = 0;
    for (auto& [pointer, part] : parts_) {
      const auto offset = reinterpret_cast<uintptr_t>(pointer + part.begin) % kAlignment;
      part.at = (size / kAlignment + 2) * kAlignment + offset;
      size = part.at + part.bytes();
    }
    before.assign((size / kAlignment + 2) * kAlignment, std::byte{0xff});
    for (const auto& [pointer, part] : parts_) {
      if (part.bytes() > 0) std::memcpy(&before[part.at], pointer + part.begin, part.bytes());
    }
  }

  /// The launch over the image at base.
  KernelLaunch moved(const KernelLaunch& launch, std::byte* base) const {
    KernelLaunch to = launch;
    to.args = {};
    for (size_t i = 0; i < launch.args.size(); ++i) {
      const auto bytes = launch.args.bytes(i);
      if (launch.args.kind(i) != ArgKind::kPointer) {
        to.args.add(launch.args.kind(i), bytes.data(), bytes.size());
        continue;
      }
      const Part& part = parts_.at(launch.args.get<std::byte*>(i));
      to.args.pointer(part.bytes() == 0 ? nullptr
                                        : base + static_cast<int64_t>(part.at) - part.begin);
    }
    return to;
  }

  /// num.write_set where other bytes than those that are written changed.
  Status check(const Bytes& after) const {
    std::vector<bool> may_change(before.size());
    for (const auto& [pointer, part] : parts_) {
      for (const auto& [first, last] : part.written) {
        const auto at = static_cast<int64_t>(part.at) - part.begin;
        std::fill(may_change.begin() + at + first, may_change.begin() + at + last, true);
      }
    }
    Status status;
    judged("num.write_set");
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i] == after[i] || may_change[i]) continue;
      status.add(make_finding("num.write_set", at("device byte", static_cast<int64_t>(i)),
                              "unchanged", "changed by the launch"));
      break;
    }
    return status;
  }

  void copy_back(const Bytes& after) const {
    for (const auto& [pointer, part] : parts_) {
      for (const auto& [first, last] : part.written) {
        std::memcpy(const_cast<std::byte*>(pointer) + first,
                    &after[static_cast<size_t>(static_cast<int64_t>(part.at) - part.begin + first)],
                    static_cast<size_t>(last - first));
      }
    }
  }

  Bytes before;

 private:
  std::map<const std::byte*, Part> parts_;
};

Status same_bytes(const Bytes& eager, const Bytes& replayed) {
  Status status;
  judged("num.bits");
  const auto [a, b] = std::ranges::mismatch(eager, replayed);
  if (a != eager.end()) {
    status.add(make_finding("num.bits", at("device byte", a - eager.begin()),
                            "what the launch left", "another byte, left by its replay"));
  }
  return status;
}

}  // namespace

/// A stream and memory of the device, of one launch at a time.
class DeviceCalls::Room {
 public:
  explicit Room(DeviceApi& api) : api_(api), stream_(api) {}
  ~Room() {
    if (memory_ != nullptr) api_.free(memory_);
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  Status reserve(size_t bytes) {
    if (bytes <= size_) return {};
    if (memory_ != nullptr) api_.free(std::exchange(memory_, nullptr));
    size_ = 0;
    Status status = device_status("cudaMalloc", api_.malloc(2 * bytes, &memory_));
    if (status.ok()) size_ = 2 * bytes;
    return status;
  }
  std::byte* memory() const { return static_cast<std::byte*>(memory_); }

  /// body works on the image.
  template <class Body>
  Status run(const Bytes& image, Bytes* after, const Body& body) {
    after->resize(image.size());
    stream_.copy(memory_, image.data(), image.size());
    body(stream_);
    stream_.copy(after->data(), memory_, image.size());
    stream_.synchronize();
    return stream_.take_status();
  }
  Status replayed(const KernelLaunch& launch, GraphExec* exec) {
    Graph graph;
    Status status = Graph::record(
        stream_, [&](Stream& s) { s.launch(launch); }, &graph);
    if (status.ok()) status = GraphExec::instantiate(graph, exec);
    return status;
  }

 private:
  DeviceApi& api_;
  Stream stream_;
  void* memory_ = nullptr;
  size_t size_ = 0;
};

struct DeviceCalls::Rooms {
  std::mutex mutex;
  std::vector<std::unique_ptr<Room>> free;
};

DeviceCalls::DeviceCalls(DeviceApi& device) : api_(device), rooms_(std::make_unique<Rooms>()) {}
DeviceCalls::~DeviceCalls() = default;

std::unique_ptr<DeviceCalls::Room> DeviceCalls::take_room() {
  const std::scoped_lock lock(rooms_->mutex);
  if (rooms_->free.empty()) return std::make_unique<Room>(api_);
  std::unique_ptr<Room> room = std::move(rooms_->free.back());
  rooms_->free.pop_back();
  return room;
}

void DeviceCalls::give_back(std::unique_ptr<Room> room) {
  const std::scoped_lock lock(rooms_->mutex);
  rooms_->free.push_back(std::move(room));
}

Status DeviceCalls::run(const KernelLaunch& launch) {
  const Image image(launch);
  std::unique_ptr<Room> room = take_room();
  Status status = room->reserve(image.before.size());
  if (!status.ok()) return status;
  const KernelLaunch moved = image.moved(launch, room->memory());
  Bytes eager, replayed;
  status = room->run(image.before, &eager, [&](Stream& s) { s.launch(moved); });
  GraphExec exec;
  if (status.ok()) status = room->replayed(moved, &exec);
  if (status.ok()) status = room->run(image.before, &replayed, [&](Stream& s) { exec.replay(s); });
  exec = {};
  give_back(std::move(room));
  if (status.ok()) status = image.check(eager);
  if (status.ok()) status = same_bytes(eager, replayed);
  if (status.ok()) image.copy_back(eager);
  return status;
}

Status DeviceCalls::run(const PagedAttention& call) {
  Status status = validate(call);
  return status.ok() ? run(attention_launch(call)) : status;
}
Status DeviceCalls::run(const RaggedAttention& call) {
  Status status = validate(call);
  return status.ok() ? run(ragged_launch(call)) : status;
}
Status DeviceCalls::run(const MergeState<LseBase::kNatural>& call) {
  Status status = validate(call);
  return status.ok() ? run(merge_launch(call)) : status;
}
/// A launch leaves page 0 to padding; a call says where it begins.
Status DeviceCalls::run(const StoreKv& call) {
  Status status = validate(call);
  if (!status.ok()) return status;
  return run(launch_of(kStoreKv, call, {.a_request = 0}, std::ssize(call.out_cache_loc)));
}

}  // namespace shadowgraph
