// same_launches: what a kept recording would have to be, held against another one.
#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "core/laws.h"
#include "shadowgraph/device/graph.h"

namespace shadowgraph {

namespace {

class Audit {
 public:
  explicit Audit(const PlaceOf& place_of) : place_of_(place_of) {}

  Status run(const Graph& kept, const Graph& again) {
    const auto a = kept.nodes(), b = again.nodes();
    judged("graph.topology_changed");
    const bool same_edges = std::equal(kept.edges().begin(), kept.edges().end(),
                                       again.edges().begin(), again.edges().end());
    if (a.size() != b.size()) {
      differ("graph.topology_changed", "nodes", std::to_string(b.size()), std::to_string(a.size()));
    } else if (!same_edges) {
      differ("graph.topology_changed", "edges", "the same dependencies", "others");
    }
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      node_ = static_cast<int64_t>(i);
      compare(a[i], b[i]);
    }
    return std::move(status_);
  }

 private:
  void compare(const NodeParams& kept, const NodeParams& again) {
    if (kept.index() != again.index()) {
      differ("graph.topology_changed", "node type", type_name(again), type_name(kept));
    } else if (const auto* k = std::get_if<KernelLaunch>(&kept)) {
      compare(*k, std::get<KernelLaunch>(again));
    } else if (const auto* c = std::get_if<MemcpyParams>(&kept)) {
      const auto& d = std::get<MemcpyParams>(again);
      address("memcpy dst", c->dst, d.dst);
      address("memcpy src", c->src, d.src);
      scalar("memcpy bytes", c->width * c->height, d.width * d.height);
    } else {
      // A stream launches, copies and fills, and nothing else.
      const auto &s = std::get<MemsetParams>(kept), &t = std::get<MemsetParams>(again);
      address("memset dst", s.dst, t.dst);
      scalar("memset value", s.value, t.value);
      scalar("memset bytes", s.width * s.height, t.width * t.height);
    }
  }

  void compare(const KernelLaunch& kept, const KernelLaunch& again) {
    if (kept.kernel != again.kernel || kept.args.size() != again.args.size()) {
      differ("graph.topology_changed", "kernel", again.kernel->name, kept.kernel->name);
      return;
    }
    const std::string name(kept.kernel->name);
    const auto shape = [&](const char* what, const Dim3& a, const Dim3& b) {
      scalar(name + ' ' + what + ".x", a.x, b.x);
      scalar(name + ' ' + what + ".y", a.y, b.y);
      scalar(name + ' ' + what + ".z", a.z, b.z);
    };
    shape("grid", kept.grid, again.grid);
    shape("block", kept.block, again.block);
    scalar(name + " shared_bytes", kept.shared_bytes, again.shared_bytes);
    for (size_t i = 0; i < kept.args.size(); ++i) {
      const auto a = kept.args.bytes(i), b = again.args.bytes(i);
      const bool is_address = kept.args.kind(i) == ArgKind::kPointer;
      const LawId law = is_address ? LawId("graph.address_changed") : LawId("graph.baked_scalar");
      judged(law);
      const bool same = kept.args.kind(i) == again.args.kind(i) &&
                        std::equal(a.begin(), a.end(), b.begin(), b.end());
      if (same) continue;
      const size_t word = first_difference(a, b);
      differ(law, name + " argument " + std::to_string(i), text(again.args, i, is_address, word),
             text(kept.args, i, is_address, word));
    }
  }

  /// In words of 4 bytes.
  static size_t first_difference(std::span<const std::byte> a, std::span<const std::byte> b) {
    const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
    return static_cast<size_t>(at - a.begin()) / sizeof(int32_t);
  }

  /// Integers as such; addresses by where they are; of a struct the word that differs.
  std::string text(const KernelArgs& args, size_t i, bool is_address, size_t word) const {
    if (is_address && args.kind(i) == ArgKind::kPointer)
      return text(args.get<const void*>(i), "an address");
    if (args.bytes(i).size() == 4) return std::to_string(args.get<int32_t>(i));
    if (args.bytes(i).size() == 8) return std::to_string(args.get<int64_t>(i));
    const auto bytes = args.bytes(i);
    if ((word + 1) * sizeof(int32_t) > bytes.size()) return std::to_string(bytes.size()) + " bytes";
    int32_t value = 0;
    std::memcpy(&value, bytes.data() + word * sizeof value, sizeof value);
    return std::to_string(value) + " in its word " + std::to_string(word);
  }

  std::string text(const void* p, const char* unnamed) const {
    return place_of_ ? place_of_(p) : unnamed;
  }

  void address(const char* what, const void* kept, const void* again) {
    judged("graph.address_changed");
    if (kept != again)
      differ("graph.address_changed", what, text(again, "an address"),
             text(kept, "another address"));
  }
  void scalar(const std::string& what, uint64_t kept, uint64_t again) {
    judged("graph.baked_scalar");
    if (kept != again)
      differ("graph.baked_scalar", what, std::to_string(again), std::to_string(kept));
  }
  void differ(LawId law, std::string_view what, std::string_view again, std::string_view kept) {
    Finding f =
        make_finding(law, at(std::string(what), node_ < 0 ? std::nullopt : std::optional(node_)),
                     std::string(again), std::string(kept));
    f.where.phase = "replay";
    status_.add(std::move(f));
  }

  const PlaceOf& place_of_;
  int64_t node_ = -1;
  Status status_;
};

}  // namespace

Status same_launches(const Graph& kept, const Graph& again, const PlaceOf& place_of) {
  return Audit(place_of).run(kept, again);
}

}  // namespace shadowgraph
