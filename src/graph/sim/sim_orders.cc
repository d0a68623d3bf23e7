// SimDevice: every order of a graph's nodes.
#include <algorithm>
#include <cstring>
#include <string>

#include "graph/executor/orders.h"
#include "graph/memory/byte_range.h"
#include "graph/sim/sim_impl.h"

namespace shadowgraph {

namespace {

bool conflict(const Footprint& a, const Footprint& b) {
  return std::any_of(a.begin(), a.end(), [&](const AccessSpan& x) {
    return std::any_of(b.begin(), b.end(), [&](const AccessSpan& y) {
      const bool writes = x.access == Access::kWrite || y.access == Access::kWrite;
      return writes && byte_range(x).overlaps(byte_range(y));
    });
  });
}

/// What a graph writes, as it is now.
class Snapshot {
 public:
  explicit Snapshot(const std::vector<Footprint>& nodes) {
    for (const Footprint& spans : nodes)
      for (const AccessSpan& s : spans)
        if (s.access == Access::kWrite && s.count > 0) add(s);
  }
  void restore() const {
    for (const Piece& p : pieces_) std::memcpy(p.at, p.bytes.data(), p.bytes.size());
  }
  /// The first byte that is not as it was, or nullptr.
  const std::byte* difference() const {
    for (const Piece& p : pieces_) {
      const auto [was, is] = std::mismatch(p.bytes.begin(), p.bytes.end(), p.at);
      if (was != p.bytes.end()) return is;
    }
    return nullptr;
  }

 private:
  struct Piece {
    std::byte* at;
    std::vector<std::byte> bytes;
  };
  void add(const AccessSpan& s) {
    auto* at =
        static_cast<std::byte*>(const_cast<void*>(s.buffer)) + s.first * int64_t{s.element_bytes};
    pieces_.push_back({at, {at, at + s.count * int64_t{s.element_bytes}}});
  }
  std::vector<Piece> pieces_;
};

bool is_flat(const ExecBody& body) {
  return std::all_of(body.nodes.begin(), body.nodes.end(), [](const ExecNode& n) {
    return std::holds_alternative<KernelLaunch>(n.params) ||
           std::holds_alternative<MemcpyParams>(n.params) ||
           std::holds_alternative<MemsetParams>(n.params) ||
           std::holds_alternative<HostParams>(n.params) ||
           std::holds_alternative<EmptyParams>(n.params);
  });
}

std::string node_text(const ExecBody& body, int32_t node) {
  return std::string(body.nodes[static_cast<size_t>(node)].label) + ", node " +
         std::to_string(node);
}

}  // namespace

/// The launches of one exec in all its orders.
struct SimDevice::Impl::EveryOrder {
  EveryOrder(Impl& d, std::shared_ptr<const ExecBody> b, WorkInfo i)
      : device(d), body(std::move(b)), info(std::move(i)) {}

  uint64_t run(uint64_t max_orders) {
    // The plain order first: what the nodes access, and the bytes that all others must leave. It
    // runs twice, since only then is known what to save; the second run starts from the same bytes.
    const std::vector<std::byte> before = save_all();
    accessed = device.executor.run_in_order(body, info, body->order);
    if (device.executor.sticky() != DeviceError::kSuccess) return 0;
    if (accessed.empty()) return 1;  // a graph of nothing
    const Snapshot after(accessed);
    restore_all(before);
    const Snapshot first(accessed);
    uint64_t orders = 0;
    for_each_order(
        *body,
        [&](int32_t a, int32_t b) {
          return conflict(accessed[static_cast<size_t>(a)], accessed[static_cast<size_t>(b)]);
        },
        [&](std::span<const int32_t> order) {
          first.restore();
          if (device.executor.run_in_order(body, info, order).empty()) return false;
          if (const std::byte* at = after.difference(); at != nullptr) report(order, at);
          return ++orders < max_orders;
        });
    after.restore();
    return orders;
  }

 private:
  /// The allocations that the nodes' pointers name.
  std::vector<std::byte> save_all() {
    std::vector<std::byte> bytes;
    for_each_allocation([&](std::byte* p, size_t n) { bytes.insert(bytes.end(), p, p + n); });
    return bytes;
  }
  void restore_all(const std::vector<std::byte>& bytes) {
    size_t done = 0;
    for_each_allocation([&](std::byte* p, size_t n) {
      std::memcpy(p, bytes.data() + done, n);
      done += n;
    });
  }
  template <class Visit>
  void for_each_allocation(Visit visit) {
    for (const ExecNode& node : body->nodes) {
      for (const BakedPointer& pointer : node.pointers) {
        const DeviceMemory::Allocation* a = device.memory.find_allocation_of(pointer.address);
        if (a == nullptr) continue;
        auto* begin = static_cast<std::byte*>(const_cast<void*>(pointer.address)) - pointer.offset;
        visit(begin, a->bytes);
      }
    }
  }

  /// Two nodes that conflict and stand the other way round than in the plain order.
  void report(std::span<const int32_t> order, const std::byte* at) {
    const auto place = [](std::span<const int32_t> o, int32_t node) {
      return std::find(o.begin(), o.end(), node) - o.begin();
    };
    const auto count = static_cast<int32_t>(body->nodes.size());
    for (int32_t a = 0; a < count; ++a) {
      for (int32_t b = 0; b < count; ++b) {
        const bool turned =
            place(body->order, a) < place(body->order, b) && place(order, b) < place(order, a);
        if (!turned ||
            !conflict(accessed[static_cast<size_t>(a)], accessed[static_cast<size_t>(b)]))
          continue;
        if (!reported.insert({a, b}).second) continue;
        device.add_finding(
            "mem.race", device.memory.describe(at), "the same bytes in every order",
            "others where " + node_text(*body, b) + " runs before " + node_text(*body, a));
      }
    }
  }

  Impl& device;
  const std::shared_ptr<const ExecBody> body;
  const WorkInfo info;
  std::vector<Footprint> accessed;  // by ordinal
  std::set<std::pair<int32_t, int32_t>> reported;
};

uint64_t SimDevice::launch_every_order(ExecHandle handle, StreamHandle s, uint64_t max_orders) {
  uint64_t orders = 0;
  impl_->call([&](ThreadState& thread) {
    const Exec* exec = impl_->graphs.find_exec(handle);
    SimStream* stream = impl_->stream(s, thread);
    if (exec == nullptr || stream == nullptr || !is_flat(*exec->body))
      return DeviceError::kInvalidValue;
    const DeviceError error = impl_->captures.enter_uncapturable(*stream);
    if (error != DeviceError::kSuccess) return error;
    const WorkInfo info{stream->lane, Phase::kReplay, {}};
    orders = Impl::EveryOrder(*impl_, exec->body, info).run(max_orders);
    return impl_->executor.sticky();
  });
  return orders;
}

}  // namespace shadowgraph
