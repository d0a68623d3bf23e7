// What a second recording has to have in common with the one that is kept.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "patterns_fixture.h"

namespace shadowgraph::audit_test {
namespace {

using Body = std::function<void(Stream&)>;

class Audit : public ::testing::Test {
 protected:
  Audit() : a_(rig_.bind("a", 8)), b_(rig_.bind("b", 8)), host_(8) {}

  Graph record(const Body& body) {
    Graph graph;
    const Status status = Graph::record(rig_.stream, body, &graph);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return graph;
  }
  /// All that differs.
  std::string audit(const Body& kept, const Body& again) {
    return same_launches(record(kept), record(again)).to_string();
  }
  Body copies(const Buffer& to, const int32_t* from, size_t bytes) {
    return [=](Stream& s) { s.copy(to.data, from, bytes); };
  }
  Body fills(const Buffer& to, uint32_t byte, size_t bytes) {
    return [=](Stream& s) { s.fill(to.data, byte, bytes); };
  }
  template <class... Values>
  Body launches(const Kernel& kernel, const Values&... values) {
    return [=, &kernel](Stream& s) { launch(s, kernel, values...); };
  }

  Rig rig_;
  Buffer a_, b_;
  Ints host_;
};

TEST_F(Audit, TheSameRecordingHasNothingThatDiffers) {
  const Body all = [&](Stream& s) {
    copies(a_, host_.data(), 32)(s);
    fills(b_, 3, 32)(s);
    launches(k::add, ints(a_), 1, 8)(s);
  };
  EXPECT_EQ(audit(all, all), "ok");
  EXPECT_EQ(audit([](Stream&) {}, [](Stream&) {}), "ok");
}

TEST_F(Audit, CopiesKeepTheirSidesAndBytes) {
  const Body kept = copies(a_, host_.data(), 16);
  EXPECT_EQ(audit(kept, copies(b_, host_.data(), 16)),
            "graph.address_changed: memcpy dst[0] is another address, expected an address");
  EXPECT_NE(audit(kept, copies(a_, host_.data() + 1, 16)).find("memcpy src[0]"), std::string::npos);
  EXPECT_NE(audit(kept, copies(a_, host_.data(), 20)).find("graph.baked_scalar: memcpy bytes[0]"),
            std::string::npos);
}

TEST_F(Audit, AddressesAreNamedByWhoKnowsThem) {
  const PlaceOf place_of = [this](const void* p) { return rig_.arena.place_of(p); };
  const auto told = [&](const Body& kept, const Body& again) {
    return same_launches(record(kept), record(again), place_of).to_string();
  };
  EXPECT_EQ(told(fills(a_, 3, 16), fills(b_, 3, 16)),
            "graph.address_changed: memset dst[0] is a, expected b");
  EXPECT_EQ(told(launches(k::sys, ints(a_), 1), launches(k::sys, ints(a_) + 1, 1)),
            "graph.address_changed: sys argument 0[0] is a, expected a + 4 B");
  EXPECT_EQ(rig_.arena.place_of(host_.data()), "no bound buffer");
}

TEST_F(Audit, FillsKeepTheirPlaceValueAndBytes) {
  const Body kept = fills(a_, 3, 16);
  EXPECT_NE(audit(kept, fills(b_, 3, 16)).find("graph.address_changed: memset dst[0]"),
            std::string::npos);
  EXPECT_NE(audit(kept, fills(a_, 4, 16)).find("graph.baked_scalar: memset value[0]"),
            std::string::npos);
  EXPECT_NE(audit(kept, fills(a_, 3, 8)).find("graph.baked_scalar: memset bytes[0]"),
            std::string::npos);
}

TEST_F(Audit, NodesKeepTheirNumberTypeKernelAndEdges) {
  const Body kept = launches(k::add, ints(a_), 1, 8);
  const auto changed = [&](const Body& again, const std::string& what) {
    const std::string found = audit(kept, again);
    EXPECT_EQ(found.find("graph.topology_changed: " + what), 0u) << found;
  };
  changed(fills(a_, 3, 16), "node type[0]");
  changed(launches(k::fill, ints(a_), 1, 8), "kernel[0]");
  changed(launches(k::add, ints(a_), 1), "kernel[0]");
  changed([](Stream&) {}, "nodes");
  const auto two = [&](bool in_a_row) {
    return [&, in_a_row](Stream& s) {
      Stream side(rig_.device);
      side.wait_for(s);
      launches(k::add, ints(a_), 1, 1)(s);
      launches(k::add, ints(b_), 1, 1)(in_a_row ? s : side);
      s.wait_for(side);
    };
  };
  const std::string edges = audit(two(true), two(false));
  EXPECT_EQ(edges.find("graph.topology_changed: edges is others"), 0u) << edges;
  EXPECT_EQ(audit(two(false), two(false)), "ok");
}

TEST_F(Audit, ArgumentsThatDifferAreToldByKind) {
  struct Three {
    int32_t v[3];
  };
  const Three one{{1, 2, 3}}, other{{1, 9, 3}};
  const k::S4 longer{{1, 2, 3, 4}};
  const auto changed = [&](const Body& kept, const Body& again, const std::string& what) {
    const std::string found = audit(kept, again);
    EXPECT_EQ(found.find(what), 0u) << found;
  };
  int32_t* a = ints(a_);
  changed(launches(k::sys, a, 1), launches(k::sys, a + 1, 1),
          "graph.address_changed: sys argument 0[0] is an address, expected an address");
  changed(launches(k::sys, a, 1), launches(k::sys, a, 2),
          "graph.baked_scalar: sys argument 1[0] is 1, expected 2");
  changed(launches(k::sys, a, 1, int64_t{1} << 40), launches(k::sys, a, 1, int64_t{7}),
          "graph.baked_scalar: sys argument 2[0] is 1099511627776, expected 7");
  changed(launches(k::sys, a, 1, one), launches(k::sys, a, 1, other),
          "graph.baked_scalar: sys argument 2[0] is 2 in its word 1, expected 9 in its word 1");
  changed(launches(k::sys, a, 1, one), launches(k::sys, a, 1, longer),
          "graph.baked_scalar: sys argument 2[0] is 12 bytes, expected 4 in its word 3");
  // An address in place of a number of the same bytes.
  const auto number = reinterpret_cast<uintptr_t>(a);
  changed(launches(k::sys, a, 1, number), launches(k::sys, a, 1, a),
          "graph.baked_scalar: sys argument 2[0]");
}

TEST_F(Audit, ShapesOfLaunchesAreScalars) {
  const auto shaped = [&](const std::function<void(KernelLaunch&)>& change) {
    KernelLaunch l;
    l.kernel = &k::add, l.block.x = 32, l.args = k::args(ints(a_), 1, 1);
    const KernelLaunch kept = l;
    change(l);
    return audit([=](Stream& s) { s.launch(kept); }, [=](Stream& s) { s.launch(l); });
  };
  const std::pair<const char*, std::function<void(KernelLaunch&)>> changes[] = {
      {"add grid.x", [](KernelLaunch& l) { l.grid.x = 2; }},
      {"add grid.y", [](KernelLaunch& l) { l.grid.y = 2; }},
      {"add grid.z", [](KernelLaunch& l) { l.grid.z = 2; }},
      {"add block.x", [](KernelLaunch& l) { l.block.x = 64; }},
      {"add block.y", [](KernelLaunch& l) { l.block.y = 2; }},
      {"add block.z", [](KernelLaunch& l) { l.block.z = 2; }},
      {"add shared_bytes", [](KernelLaunch& l) { l.shared_bytes = 64; }}};
  for (const auto& [what, change] : changes)
    EXPECT_EQ(shaped(change).find("graph.baked_scalar: " + std::string(what)), 0u) << what;
}

}  // namespace
}  // namespace shadowgraph::audit_test
