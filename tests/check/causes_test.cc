#include "check/causes.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "core/laws.h"

namespace shadowgraph::causes_test {
namespace {

struct Found {
  LawId law;
  const char* field;
};

/// The order in which findings are told.
std::string told(std::initializer_list<Found> findings) {
  Status status;
  for (const auto& [law, field] : findings) status.add(make_finding(law, at(field), "", ""));
  causes_first(&status);
  std::string text;
  for (const Finding& f : status.findings()) text += (text.empty() ? "" : " ") + f.id;
  return text;
}

TEST(Causes, WhatDoesNotFitComesBeforeTheSplitThatFollows) {
  EXPECT_EQ(told({{"plan.split", "kv_chunk_size"}, {"plan.capacity", "request_indices"}}),
            "plan.capacity plan.split");
}

TEST(Causes, ABufferIsUnwrittenBeforeItsValuesAreWrong) {
  EXPECT_EQ(told({{"len.kv_extent", "kv_lens"}, {"mem.uninit_read", "kv_lens"}}),
            "mem.uninit_read len.kv_extent");
  EXPECT_EQ(told({{"table.slot", "page_table"},
                  {"len.kv_extent", "kv_lens"},
                  {"mem.stale_input", "kv_lens"},
                  {"num.exact", "out"}}),
            "table.slot mem.stale_input len.kv_extent num.exact");
  // A wrong table leads to slots that nobody wrote.
  EXPECT_EQ(told({{"table.slot", "page_table"}, {"mem.uninit_read", "k_cache"}}),
            "table.slot mem.uninit_read");
}

TEST(Causes, TheDevicesErrorComesLast) {
  EXPECT_EQ(told({{"graph.device_error", "cudaStreamSynchronize"},
                  {"mem.out_of_bounds", "page_table"},
                  {"mem.red_zone", "kv_lens"}}),
            "mem.out_of_bounds mem.red_zone graph.device_error");
}

}  // namespace
}  // namespace shadowgraph::causes_test
