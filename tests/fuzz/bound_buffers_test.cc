// A buffer is described as its backend binds it, and as launches are given it.
#include "fuzz/history/bound_buffers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace shadowgraph::bound_buffers_test {
namespace {

TEST(BoundBuffers, HaveTheirModesLifetimeAndReaders) {
  const Backend* const backends[] = {find_backend("flashattention"), find_backend("dual_chunk")};
  const std::vector<BoundBuffer> all = bound_buffers(backends);
  EXPECT_TRUE(std::ranges::is_sorted(all, {}, &BoundBuffer::name));
  const auto find = [&](std::string_view name, const Backend* backend) {
    const auto it = std::ranges::find_if(
        all, [&](const BoundBuffer& b) { return b.name == name && b.backend == backend; });
    EXPECT_NE(it, all.end()) << name;
    return it == all.end() ? BoundBuffer{} : *it;
  };
  const BoundBuffer table = find("page_table", backends[0]);
  EXPECT_EQ(table.lifetimes,
            (std::set{Lifetime::kPerStep, Lifetime::kScratch}));  // in_graph_tables
  EXPECT_TRUE(table.modes.contains(ForwardMode::kDecode));
  EXPECT_TRUE(table.modes.contains(ForwardMode::kExtend));
  EXPECT_FALSE(table.kernels.empty());
  EXPECT_FALSE(table.rows.empty());
  EXPECT_EQ(find("scheduler_metadata", backends[0]).modes.contains(ForwardMode::kExtend), false);
  EXPECT_TRUE(find("seq_start_loc", backends[1]).kernels.empty());  // dead: docs/metadata.md
  EXPECT_EQ(std::ranges::count(all, "scheduler_metadata", &BoundBuffer::name), 1);
}

TEST(BoundBuffers, AComposedBackendHasNoneOfItsOwn) {
  const Backend* const composed[] = {find_backend("flashattention_two_batch")};
  EXPECT_TRUE(bound_buffers(composed).empty());
}

}  // namespace
}  // namespace shadowgraph::bound_buffers_test
