#include "backends/fill/features.h"

#include <gtest/gtest.h>

#include <map>

#include "backends/fill/rows.h"

namespace shadowgraph::features_test {
namespace {

using Ask = void (*)(Limits&);

const std::map<std::string_view, Ask> kAsks = {
    {"topk", [](Limits& l) { l.model.topk = 2; }},
    {"max_items_len", [](Limits& l) { l.max_items_len = 3; }},
    {"in_graph_tables", [](Limits& l) { l.model.in_graph_tables = true; }},
    {"prefix_chunk_tokens", [](Limits& l) { l.model.prefix_chunk_tokens = 4; }},
    {"max_encoder_len", [](Limits& l) { l.model.max_encoder_len = 5; }},
    {"dcp_size", [](Limits& l) { l.model.dcp_size = 2; }},
    {"swa_pool", [](Limits& l) { l.model.swa_pool = true; }},
    {"sinks",
     [](Limits& l) {
       static const float values[] = {1};
       l.model.layers = {LayerKind{}, LayerKind{}};
       l.model.layers[1].params.sinks = values;
     }},
    {"track_states", [](Limits& l) { l.model.track_states = true; }},
};

int64_t refusals(const BackendInfo& info, const Limits& limits, std::string_view member) {
  const Status status = serves(info, limits);
  return std::ranges::count(status.findings(), member,
                            [](const Finding& f) { return std::string_view(f.where.field); });
}

TEST(Features, AreRefusedWhereTheyAreNotServedAndOnlyThere) {
  ASSERT_EQ(kAsks.size(), std::size(kFeatures));
  for (const Backend* backend : all_backends()) {
    const BackendInfo& info = backend->info();
    for (const Feature& f : kFeatures) {
      SCOPED_TRACE(std::string(info.name) + " " + f.member);
      Limits limits;
      limits.mode = ForwardMode::kExtend;
      EXPECT_EQ(f.asked(limits), "");
      EXPECT_EQ(refusals(info, limits, f.member), 0);
      kAsks.at(f.member)(limits);
      EXPECT_NE(f.asked(limits), "");
      EXPECT_EQ(refusals(info, limits, f.member), info.*f.served ? 0 : 1);
    }
  }
}

TEST(Features, ItemsAreOfExtends) {
  Limits limits = Limits::bucket(ForwardMode::kMixed, 2, 3, {});
  limits.max_items_len = 3;
  EXPECT_EQ(refusals(find_backend("flashinfer")->info(), limits, "max_items_len"), 1);
}

}  // namespace
}  // namespace shadowgraph::features_test
