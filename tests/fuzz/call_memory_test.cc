// Guarded memory: every byte that a call may not have written is looked at, and footprints are held
// against what was laid down and what is written.
#include "fuzz/call/call_memory.h"

#include <gtest/gtest.h>

#include "attn/validate/shared_bytes.h"
#include "core/float_formats.h"

namespace shadowgraph::call_memory_test {
namespace {

TEST(GuardedBuffer, NamesTheFirstByteThatDiffers) {
  GuardedBuffer a(10, 68);
  GuardedBuffer b = a;
  EXPECT_FALSE(a.first_difference(b).has_value());
  for (int64_t i : {73, 9, 0, -5, -64}) {
    b.data()[i] = std::byte{1};
    EXPECT_EQ(a.first_difference(b), i);
  }
  EXPECT_EQ(a.first_difference(b, {{0, 1}}), -64);
  b.poison();
  b.data()[3] = std::byte{1};
  EXPECT_EQ(a.first_difference(b, {{0, 3}, {4, 10}}), 3);
  EXPECT_FALSE(a.first_difference(b, {{2, 5}}).has_value());
}

TEST(GuardedBuffer, NoticesAnyByteBesideIt) {
  for (int64_t skew : {0, 4, 7}) {
    GuardedBuffer b(10, 64 + skew);
    EXPECT_EQ((reinterpret_cast<uintptr_t>(b.data()) - static_cast<uintptr_t>(skew)) % 64, 0u);
    for (int64_t i = 0; i < 10; ++i) b.data()[i] = std::byte{0};
    EXPECT_FALSE(b.first_beside().has_value());
    for (int64_t i : {-64, -1, 10, 73}) {
      b.data()[i] = std::byte{0xfe};
      EXPECT_EQ(b.first_beside(), i);
      b.data()[i] = kPoison;
    }
  }
}

TEST(BufferRanges, MergedHaveTheSameBytes) {
  EXPECT_EQ(merged({{5, 7}, {0, 2}, {1, 3}, {3, 4}, {9, 9}}), (BufferRanges{{0, 4}, {5, 7}}));
}

TEST(CallMemory, FarTensorsLieBehindReservedMemoryThatReadsAsZero) {
  ASSERT_TRUE(far_memory_is_free());
  const int64_t pages = int64_t{1} << 29;
  CallMemory memory({.dense = true, .poison = kHugePoison});
  const TensorView t = memory.add_far("t", DType::kF32, {pages + 2, 8}, pages);
  EXPECT_EQ(t.offset(pages, 0), int64_t{1} << 32);
  EXPECT_EQ(*t.at(pages + 1, 7), kHugePoison);
  EXPECT_EQ(load_float(t.data, DType::kF32, 3), 0) << "the place that 32 bits lead to";
  store_float(t.at(pages, 0), DType::kF32, 0, 1);
  memory.remember();
  EXPECT_TRUE(memory.check_written({}).ok());
  store_float(t.at(pages, 0), DType::kF32, 9, 1);
  EXPECT_EQ(memory.check_written({}).to_string(),
            "num.write_set: t[536870913, 1] is other, expected as before the call: it belongs "
            "to no row that is written");
}

TEST(GuardedBuffer, ThatIsFarHasPoisonAndAMarginBehindWhatIsReserved) {
  ASSERT_TRUE(far_memory_is_free());
  const int64_t first = int64_t{1} << 33;
  GuardedBuffer b = GuardedBuffer::far(first, first + 10, kPoison);
  EXPECT_EQ(b.data()[first - 1], std::byte{0});
  EXPECT_EQ(b.data()[first + 9], kPoison);
  const GuardedBuffer before = b;
  EXPECT_FALSE(b.first_difference(before).has_value());
  b.data()[first + 3] = std::byte{1};
  EXPECT_EQ(b.first_difference(before), first + 3);
  EXPECT_FALSE(b.first_difference(before, {{first + 3, first + 4}}).has_value());
  EXPECT_FALSE(b.first_beside().has_value());
  b.data()[first + 10] = std::byte{1};
  EXPECT_EQ(b.first_beside(), first + 10);
  b.poison_except({{first + 3, first + 4}});
  EXPECT_EQ(b.data()[first + 3], std::byte{1});
  EXPECT_EQ(b.data()[first + 4], kPoison);
}

TEST(CallMemory, WhatWasInAFarTensorBeforeTheCallIsRemembered) {
  ASSERT_TRUE(far_memory_is_free());
  const int64_t rows = int64_t{1} << 30;
  CallMemory memory;
  const TensorView t = memory.add_far("t", DType::kF32, {rows + 1, 4}, rows);
  store_float(t.at(rows), DType::kF32, 0, 3);
  memory.remember();
  store_float(t.at(rows), DType::kF32, 0, 5);
  const ConstTensorView was = memory.before(t);
  EXPECT_EQ(load_float(was.at(rows), DType::kF32, 0), 3);
  EXPECT_TRUE(memory.check_written({{ConstTensorView(t.at(rows), DType::kF32, {1})}}).ok());
}

TEST(CallMemory, AByteThatChangedIsNamedByItsElement) {
  Rng rng(3);
  CallMemory memory({.dense = true});
  const TensorView t = memory.add("t", DType::kF32, {3, 2, 4}, rng);
  memory.remember();
  const auto place = [&](std::byte* byte) {
    const std::byte was = *byte;
    *byte ^= std::byte{1};
    const Status status = memory.check_written({});
    *byte = was;
    const Where& where = status.findings()[0].where;
    return where.field + where.index();
  };
  EXPECT_EQ(place(t.at(2, 1, 3)), "t[2, 1, 3]");
  EXPECT_EQ(place(t.at(1, 0, 2) + 3), "t[1, 0, 2]");
  EXPECT_EQ(place(t.data - 1), "t byte[-1]");
  EXPECT_EQ(place(t.at(2, 1, 3) + 4), "t byte[96]");
}

TEST(CallMemory, OutputsHoldAPoisonOfTheirOwn) {
  Rng rng(3);
  CallMemory memory({.dense = true, .outputs = kUnwritten});
  const TensorView out =
      memory.add_output("out", DType::kF32, std::vector<int64_t>{3, 2}, rng, AxisOrder::kAsNamed);
  const TensorView q = memory.add("q", DType::kF32, {3, 2}, rng, AxisOrder::kAny);
  EXPECT_EQ(out.data[-1], kUnwritten);
  EXPECT_EQ(out.data[3], kUnwritten);
  EXPECT_EQ(q.data[3], kPoison);
  EXPECT_EQ(q.stride[0], 2) << "dense";
  EXPECT_EQ(reinterpret_cast<uintptr_t>(q.data) % 64, 0u);
}

TEST(CallMemory, OnlyTheElementsOfAViewMayBeWritten) {
  Rng rng(3);
  for (int i = 0; i < 100; ++i) {
    CallMemory memory;
    const AxisOrder order = i % 2 ? AxisOrder::kAny : AxisOrder::kAsNamed;
    const TensorView t = memory.add("t", DType::kF16, {3, 2, 5}, rng, order);
    memory.remember();
    const ConstTensorView written[] = {t};
    std::vector<const std::byte*> own;
    for_each_run(ConstTensorView(t), [&](const std::byte* at, size_t bytes) {
      for (size_t b = 0; b < bytes; ++b) own.push_back(at + b);
    });
    for (int64_t byte = -64; byte < 120; ++byte) {
      std::byte* const at = t.data + byte;
      if (byte >= 2 * t.stride[0] * 2) break;
      *at ^= std::byte{1};
      EXPECT_EQ(memory.check_written(written).ok(), std::ranges::find(own, at) != own.end());
      EXPECT_FALSE(memory.check_written({}).ok());
      *at ^= std::byte{1};
      memory.remember();  // and the closed pages are closed again
    }
  }
}

TEST(CallMemory, SeesAFootprintThatIsNotWhatIsWritten) {
  Rng rng(5);
  CallMemory memory;
  const TensorView t = memory.add("t", DType::kF16, {4, 6}, rng);
  scatter(std::vector<std::byte>(48), t);
  memory.remember();
  const ConstTensorView all[] = {t};
  const auto check = [&](const Footprint& said, std::span<const ConstTensorView> written) {
    return memory.check_footprint(said, written, [](int32_t) { return false; });
  };
  Footprint spans;
  for (int64_t row = 0; row < 4; ++row)
    spans.push_back({t.data, t.offset(row), 6, 2, Access::kWrite, 0});
  EXPECT_TRUE(check(spans, all).ok());
  for (size_t i = 0; i < spans.size(); ++i) {
    Footprint other = spans;
    other[i].access = Access::kRead;
    EXPECT_FALSE(check(other, all).ok());
    other = spans, other[i].count = 5;
    EXPECT_FALSE(check(other, all).ok());
    EXPECT_FALSE(check(spans, {}).ok());
  }
}

TEST(CallMemory, PoisonsWhatIsNotRead) {
  Rng rng(5);
  CallMemory memory;
  const TensorView t = memory.add("t", DType::kF32, {2, 3}, rng);
  for (int64_t i = 0; i < 6; ++i) store_float(t.at(i / 3, i % 3), t.dtype, 0, 1);
  memory.poison_unread(
      {{t.data, t.offset(1), 2, 4, Access::kRead, 0}, {t.data, 0, 3, 4, Access::kWrite, 0}});
  for (int64_t i = 0; i < 6; ++i)
    EXPECT_EQ(load_float(t.at(i / 3, i % 3), t.dtype, 0) == 1, i == 3 || i == 4) << i;
}

TEST(CallMemory, SeesAFootprintThatReadsWhatNobodyLaidDownOrLeavesTheTensor) {
  Rng rng(5);
  CallMemory memory;
  const TensorView t = memory.add("t", DType::kBF16, {2, 4}, rng);
  for (int64_t d = 0; d < 4; ++d) store_float(t.at(0, d), t.dtype, 0, 1);
  memory.remember();
  const auto found = [&](AccessSpan span, bool idle) {
    const Status status = memory.check_footprint({span}, {}, [&](int32_t) { return idle; });
    return status.ok() ? "" : status.findings()[0].id;
  };
  EXPECT_EQ(found({t.data, 0, 4, 2, Access::kRead, 0}, false), "");
  EXPECT_EQ(found({t.data, t.offset(1), 4, 2, Access::kRead, 0}, false), "mem.uninit_read");
  EXPECT_EQ(found({t.data, t.offset(1), 4, 2, Access::kRead, 0}, true), "");
  EXPECT_EQ(found({t.data, t.offset(1), 4, 2, Access::kTouch, 0}, false), "");
  EXPECT_EQ(found({t.data, t.offset(1), 64, 2, Access::kTouch, 0}, false), "mem.out_of_bounds");
  EXPECT_EQ(found({t.data, -1, 1, 2, Access::kTouch, 0}, false), "mem.out_of_bounds");
}

TEST(CallMemory, AListHasExactlyItsSize) {
  Rng rng(5);
  CallMemory memory;
  const std::span<int32_t> list = memory.add_list("list", std::vector<int32_t>{3, 4}, rng);
  memory.remember();
  EXPECT_EQ(list.size(), 2u);
  list.data()[2] = 0;
  EXPECT_FALSE(memory.check_written({}).ok());
}

TEST(CallMemory, FieldsOfRecordsLieBetweenEachOtherAndShareNoByte) {
  Rng rng(5);
  for (int i = 0; i < 100; ++i) {
    CallMemory memory;
    const size_t shared = 1 + rng.below(2);
    const std::vector<TensorView> t = memory.add_records(
        "t", shared, {{DType::kI8, {3, 2, 5}}, {DType::kF32, {3, 2}}, {DType::kF16, {3, 2, 4}}},
        rng);
    for (size_t a = 0; a < t.size(); ++a) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(t[a].data) % size_of(t[a].dtype), 0u);
      for (size_t b = 0; b < a; ++b) EXPECT_EQ(shares_bytes(t[a], t[b]), SharedBytes::kNone);
    }
    EXPECT_LT(t[1].at(0, 0), t[0].at(1, 0));
    memory.remember();
    const ConstTensorView written[] = {t[1]};
    *t[1].at(2, 1) = std::byte{0};
    EXPECT_TRUE(memory.check_written(written).ok());
    *t[0].at(1, 1, 2) = std::byte{0};
    EXPECT_FALSE(memory.check_written(written).ok()) << "of a field beside it";
  }
}

}  // namespace
}  // namespace shadowgraph::call_memory_test
