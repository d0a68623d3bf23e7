#include "conformance/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace shadowgraph::compare_test {
namespace {

GraphDump diamond() {
  return {"g",
          false,
          {"kernel:fill:1", "kernel:add:2", "memcpy", "kernel:struct"},
          {{0, 1}, {0, 2}, {1, 3}, {2, 3}},
          {}};
}

Record small_record() {
  Record r;
  r.id = "G01", r.variant = "n.global";
  r.steps = {{"cudaStreamBeginCapture", false, 0, ""},
             {"cudaStreamEndCapture", false, 901, "graph=null"}};
  r.capture_status = {"s=invalidated@1"};
  r.graphs = {diamond()};
  r.buffers["A"] = {1, 2, 3};
  r.buffer_errors["B"] = 700;
  r.facts["same"] = true;
  r.host_calls = 1;
  return r;
}

std::vector<std::string> differences(const std::function<void(Record&)>& change) {
  Record got = small_record();
  change(got);
  std::vector<std::string> texts;
  for (const Difference& d : compare(got, small_record())) texts.push_back(d.to_string());
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Compare, EqualRecordsHaveNoDifference) {
  EXPECT_EQ(differences([](Record&) {}), Texts());
}

TEST(Compare, EachFieldIsTold) {
  EXPECT_EQ(differences([](Record& r) { r.steps[1].ret = 0; }),
            Texts{"step 2 cudaStreamEndCapture ret: 0, recorded 901"});
  EXPECT_EQ(differences([](Record& r) { r.steps[1].ret = std::nullopt; }),
            Texts{"step 2 cudaStreamEndCapture ret: none, recorded 901"});
  EXPECT_EQ(differences([](Record& r) { r.steps[1].out = "untouched"; }),
            Texts{"step 2 cudaStreamEndCapture out: untouched, recorded graph=null"});
  EXPECT_EQ(differences([](Record& r) { r.steps[0].thread_b = true; }),
            Texts{"step 1 cudaStreamBeginCapture thread: B, recorded A"});
  EXPECT_EQ(differences([](Record& r) { r.capture_status[0] = "s=active@1"; }),
            Texts{"status 1: s=active@1, recorded s=invalidated@1"});
  EXPECT_EQ(differences([](Record& r) { r.capture_status.clear(); }),
            Texts{"status 1: none, recorded s=invalidated@1"});
  EXPECT_EQ(differences([](Record& r) { r.buffers["A"][1] = 9; }),
            Texts{"buffer A[1]: 9, recorded 2"});
  EXPECT_EQ(differences([](Record& r) { r.buffers["A"].pop_back(); }),
            Texts{"buffer A: [1, 2], recorded [1, 2, 3]"});
  EXPECT_EQ(differences([](Record& r) { r.buffers.clear(); }),
            Texts{"buffer A: none, recorded [1, 2, 3]"});
  EXPECT_EQ(differences([](Record& r) { r.buffers["C"] = {7}; }),
            Texts{"buffer C: [7], recorded none"});
  EXPECT_EQ(differences([](Record& r) { r.buffer_errors["B"] = 1; }),
            Texts{"buffer error B: 1, recorded 700"});
  EXPECT_EQ(differences([](Record& r) { r.facts["same"] = int64_t{1}; }),
            Texts{"fact same: 1, recorded true"});
  EXPECT_EQ(differences([](Record& r) { r.facts["new"] = "x"; }),
            Texts{"fact new: x, recorded none"});
  EXPECT_EQ(differences([](Record& r) { r.facts.clear(); }),
            Texts{"fact same: none, recorded true"});
  EXPECT_EQ(differences([](Record& r) { r.host_calls = 0; }), Texts{"host_calls: 0, recorded 1"});
  EXPECT_EQ(differences([](Record& r) { r.complete = false; }),
            Texts{"complete: false, recorded true"});
  EXPECT_EQ(differences([](Record& r) { r.graphs[0].label = "h"; }),
            Texts{"dump 1 label: h, recorded g"});
  EXPECT_EQ(differences([](Record& r) {
              r.graphs[0] = {"g", true, {}, {}, {}};
            }),
            Texts{"graph g: null, recorded [kernel:fill:1, kernel:add:2, memcpy, kernel:struct] "
                  "0->1 0->2 1->3 2->3"});
  EXPECT_EQ(differences([](Record& r) { r.graphs.clear(); }).size(), 1u);
}

TEST(Compare, AnUncleanContextCountsHoweverItWasFound) {
  Record clean, unclean, also;
  unclean.facts["unclean_cudaDeviceSynchronize"] = int64_t{900};
  also.facts["unclean_after"] = true;
  EXPECT_TRUE(compare(unclean, also).empty());
  EXPECT_EQ(compare(unclean, clean).size(), 1);
  EXPECT_EQ(compare(clean, unclean).size(), 1);
}

TEST(Compare, AnotherCallEndsTheComparisonOfSteps) {
  EXPECT_EQ(differences([](Record& r) {
              r.steps[0] = {"cudaStreamQuery", true, 900, ""};
            }),
            Texts{"step 1: cudaStreamQuery, recorded cudaStreamBeginCapture"});
  EXPECT_EQ(differences([](Record& r) { r.steps.pop_back(); }), Texts{"steps: 1, recorded 2"});
}

TEST(Compare, InsertionOrderCountsOnlyWhereItIsAskedFor) {
  const GraphDump chain{"g", false, {"memset", "memcpy"}, {{0, 1}}, {}};
  const GraphDump swapped{"g", false, {"memcpy", "memset"}, {{1, 0}}, {}};
  Record got, recorded;
  got.graphs = {swapped}, recorded.graphs = {chain};
  EXPECT_TRUE(compare(got, recorded).empty());
  got.id = recorded.id = "Q04";
  EXPECT_EQ(compare(got, recorded).size(), 1u);
  got.graphs = {chain};
  EXPECT_TRUE(compare(got, recorded).empty());
}

/// The same graph with its nodes in another order: node i becomes node to[i].
GraphDump permuted(const GraphDump& g, const std::vector<int32_t>& to) {
  GraphDump p = g;
  for (size_t i = 0; i < to.size(); ++i) p.order[to[i]] = g.order[i];
  for (auto& [from, into] : p.edges) from = to[from], into = to[into];
  return p;
}

TEST(Isomorphism, EveryOrderOfNodesIsTheSameGraph) {
  std::vector<int32_t> to = {0, 1, 2, 3};
  do {
    EXPECT_TRUE(is_isomorphic(permuted(diamond(), to), diamond()));
    const bool identity = to == std::vector<int32_t>{0, 1, 2, 3};
    EXPECT_EQ(is_identical(permuted(diamond(), to), diamond()), identity);
  } while (std::next_permutation(to.begin(), to.end()));
}

TEST(Isomorphism, AnEdgeThatIsTurnedMovedOrMissingIsAnotherGraph) {
  GraphDump g = diamond();
  g.edges[0] = {1, 0};
  EXPECT_FALSE(is_isomorphic(g, diamond()));
  g = diamond(), g.edges[2] = {1, 2};
  EXPECT_FALSE(is_isomorphic(g, diamond()));
  g = diamond(), g.edges.pop_back();
  EXPECT_FALSE(is_isomorphic(g, diamond()));
}

TEST(Isomorphism, AnEdgeToItselfIsAnEdgeOfThatNode) {
  const auto loop_at = [](int32_t node) {
    return GraphDump{"g", false, {"memset", "memcpy"}, {{node, node}}, {}};
  };
  EXPECT_TRUE(is_isomorphic(loop_at(0), loop_at(0)));
  EXPECT_FALSE(is_isomorphic(loop_at(0), loop_at(1)));
}

TEST(Isomorphism, EqualCountsOfEverythingAreNotEnough) {
  // Every node of both has degree 2: one ring of six, two of three.
  const std::vector<std::string> nodes(6, "empty");
  const GraphDump ring{"g", false, nodes, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 0}}, {}};
  const GraphDump rings{"g", false, nodes, {{0, 1}, {1, 2}, {2, 0}, {3, 4}, {4, 5}, {5, 3}}, {}};
  EXPECT_FALSE(is_isomorphic(ring, rings));
  EXPECT_TRUE(is_isomorphic(rings, permuted(rings, {5, 3, 1, 0, 2, 4})));
  EXPECT_TRUE(is_isomorphic(ring, permuted(ring, {5, 3, 1, 0, 2, 4})));
}

TEST(Isomorphism, LabelsAgreeByNameAndByValueWhereBothStateOne) {
  const auto one = [](const char* label) { return GraphDump{"g", false, {label}, {}, {}}; };
  EXPECT_TRUE(is_isomorphic(one("kernel:fill:7"), one("kernel:fill:7")));
  EXPECT_TRUE(is_isomorphic(one("kernel:fill:7"), one("kernel:fill")));
  EXPECT_TRUE(is_isomorphic(one("kernel:fill"), one("kernel:fill:7")));
  EXPECT_FALSE(is_isomorphic(one("kernel:fill:7"), one("kernel:fill:8")));
  EXPECT_FALSE(is_isomorphic(one("kernel:fill:7"), one("kernel:add:7")));
  EXPECT_FALSE(is_isomorphic(one("memcpy"), one("memset")));
}

TEST(Isomorphism, EdgeDataBelongToTheirEdge) {
  GraphDump a = diamond(), b = diamond();
  a.edge_data = {{0, 1, 0, 1}};
  EXPECT_FALSE(is_isomorphic(a, b));
  b.edge_data = {{1, 1, 0, 1}};
  EXPECT_FALSE(is_isomorphic(a, b));
  b.edge_data = {{0, 1, 0, 1}};
  EXPECT_TRUE(is_isomorphic(a, b));
}

}  // namespace
}  // namespace shadowgraph::compare_test
