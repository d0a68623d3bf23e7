// What a convolution's footprint says is what it does: nothing else that it could read changes a
// bit, and what it writes is what it says that it writes.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

#include "kernels/any_conv.h"
#include "kernels/footprint_elements.h"
#include "kernels/recurrent/causal_conv1d.h"

namespace shadowgraph::conv_footprint_test {
namespace {

using Bytes = SmallConv::Bytes;

/// 0xff where not in `kept`: NaN of every type.
void poison_others(Bytes* buffer, DType type, const std::set<int64_t>& kept) {
  const size_t size = size_of(type);
  for (size_t i = 0; i < buffer->size(); ++i)
    if (!kept.contains(static_cast<int64_t>(i / size))) (*buffer)[i] = std::byte{0xff};
}

/// Elements where the two differ.
std::set<int64_t> differences(const Bytes& a, const Bytes& b, DType type) {
  std::set<int64_t> all;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) all.insert(static_cast<int64_t>(i / size_of(type)));
  return all;
}

RC_GTEST_PROP(ConvFootprint, WhatItDoesNotReadHasNoInfluence, ()) {
  SmallConv s = any_conv();
  s.fill_random(*rc::gen::arbitrary<uint64_t>());
  const Footprint spans = causal_conv1d_footprint(s.call());
  SmallConv poisoned = s;
  for (Bytes SmallConv::*buffer : {&SmallConv::x, &SmallConv::weight, &SmallConv::bias,
                                   &SmallConv::states, &SmallConv::windows, &SmallConv::out})
    poison_others(&(poisoned.*buffer), s.type, elements(spans, s.*buffer, Access::kRead));
  RC_ASSERT(s.run() == "ok");
  RC_ASSERT(poisoned.run() == "ok");
  const auto written = elements(spans, s.states, Access::kWrite);
  for (const int64_t i : differences(s.states, poisoned.states, s.type))
    RC_ASSERT(!written.contains(i));
  for (Bytes SmallConv::*buffer : {&SmallConv::windows, &SmallConv::out}) {
    // Marks against poison: all that was not written, and nothing else.
    const auto wrote = elements(spans, s.*buffer, Access::kWrite);
    const auto differ = differences(s.*buffer, poisoned.*buffer, s.type);
    RC_ASSERT(wrote.size() + differ.size() == (s.*buffer).size() / size_of(s.type));
    for (const int64_t i : differ) RC_ASSERT(!wrote.contains(i));
  }
}

RC_GTEST_PROP(ConvFootprint, WhatItDoesNotWriteStays, ()) {
  SmallConv s = any_conv();
  s.fill_random(*rc::gen::arbitrary<uint64_t>());
  const SmallConv before = s;
  const Footprint spans = causal_conv1d_footprint(s.call());
  RC_ASSERT(s.run() == "ok");
  const auto written = elements(spans, s.states, Access::kWrite);
  for (const int64_t i : differences(s.states, before.states, s.type))
    RC_ASSERT(written.contains(i));
}

/// Every row's spans are its own, and lists are nobody's.
TEST(ConvFootprint, SpansBelongToTheirRows) {
  SmallConv s;
  s.dim = 2, s.width = 3, s.slots = 4;
  s.add_row(2, 3), s.add_row(1, -1), s.add_row(1, 0, 0), s.add_row(0, 1);
  s.places = 3, s.steps = 2, s.draft_indices = {2, 1, 0, 1}, s.windows_of_padding = false;
  s.pad = PadRow::kFromZero;
  s.fill_integers(1);
  const auto says = [&](const Bytes& buffer, Access access) {
    std::map<int32_t, std::set<int64_t>> rows;
    for (const AccessSpan& span : causal_conv1d_footprint(s.call())) {
      EXPECT_EQ(span.element_bytes == 4, span.buffer != s.has.data());
      if (span.buffer != buffer.data() || span.access != access) continue;
      for (int64_t i = 0; i < span.count; ++i) rows[span.row].insert(span.first + i);
    }
    return rows;
  };
  const auto range = [](int64_t from, int64_t to) {
    std::set<int64_t> all;
    for (; from < to; ++from) all.insert(from);
    return all;
  };
  using Rows = std::map<int32_t, std::set<int64_t>>;
  EXPECT_EQ(says(s.x, Access::kRead), (Rows{{0, range(0, 4)}, {1, range(4, 6)}, {2, range(6, 8)}}));
  EXPECT_EQ(says(s.out, Access::kWrite),
            (Rows{{0, range(0, 4)}, {1, range(4, 6)}, {2, range(6, 8)}}));
  EXPECT_EQ(says(s.weight, Access::kRead), (Rows{{-1, range(0, 6)}}));
  EXPECT_EQ(says(s.bias, Access::kRead), (Rows{{-1, range(0, 2)}}));
  EXPECT_EQ(says(s.states, Access::kRead), (Rows{{0, range(12, 16)}}));
  EXPECT_EQ(says(s.states, Access::kWrite), (Rows{{0, range(12, 16)}, {2, range(0, 4)}}));
  EXPECT_EQ(says(s.windows, Access::kWrite), (Rows{{0, range(16, 24)}, {2, range(0, 4)}}));
  using Lists = std::set<const void*>;
  const auto lists = [&] {
    Lists all;
    for (const AccessSpan& span : causal_conv1d_footprint(s.call()))
      if (span.row == -1) all.insert(span.buffer);
    return all;
  };
  Lists expected = {s.cu.data(),     s.slot_of.data(), s.has.data(), s.draft_indices.data(),
                    s.weight.data(), s.bias.data()};
  EXPECT_EQ(lists(), expected);
  s.places = 0, s.parents = {0, 0, 0, 0};
  expected.erase(s.draft_indices.data()), expected.insert(s.parents.data());
  EXPECT_EQ(lists(), expected);
}

}  // namespace
}  // namespace shadowgraph::conv_footprint_test
