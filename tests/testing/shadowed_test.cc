// A builder's arrays: what is written around them is found, and what was not written is known.
#include <gtest/gtest.h>

#include "graph/memory/asan_guard.h"
#include "shadowgraph/testing.h"
#include "testing/broken_laws.h"
#include "testing/poison.h"

namespace shadowgraph::testing::shadowed_test {
namespace {

/// Histories, and no small batches.
Options histories() {
  Options o;
  o.small_requests = 0, o.histories = 20;
  return o;
}

/// What one write outside of an array of 4 makes a property find; AddressSanitizer stops it.
template <class T>
std::string written_at(int64_t index) {
  const auto property = [&](Steps& steps) {
    Shadowed<T> array(steps, "array", 4);
    if (steps.next() == nullptr) return;
    volatile T* data = array.data();
    data[index] = 7;
    while (steps.next() != nullptr) {
    }
  };
  if (kHasAsan) {
    EXPECT_DEATH((void)check(histories(), property), "use-after-poison");
    return "mem.red_zone: array[" + std::to_string(index) + "] is written, expected 0 <= index < 4";
  }
  Status status = check(histories(), property);
  EXPECT_EQ(status.findings().size(), 1u);
  for (Finding& f : status.findings()) f.case_id.clear();
  return status.to_string();
}

TEST(Shadowed, AWriteOutsideIsFoundOnceAndWhere) {
  for (const int64_t index : {-64, -1, 4, 67}) {
    const std::string message =
        "mem.red_zone: array[" + std::to_string(index) + "] is written, expected 0 <= index < 4";
    EXPECT_EQ(written_at<int32_t>(index), message);
    EXPECT_EQ(written_at<int64_t>(index), message);
    EXPECT_EQ(written_at<uint8_t>(index), message);
  }
}

TEST(Shadowed, AWriteOutsideIsFoundWhereAPropertyEndsEarly) {
  const auto property = [](Steps& steps) {
    Shadowed<int32_t> array(steps, "array", 4);
    if (steps.next() != nullptr) array.data()[4] = 1;
  };
  if (kHasAsan) {
    EXPECT_DEATH((void)check(histories(), property), "use-after-poison");
    return;
  }
  EXPECT_EQ(ids(check(histories(), property)), Ids{"mem.red_zone"});
}

TEST(Shadowed, WhatAStepWroteIsStaleInTheNextOnesAndOlderEachTime) {
  int64_t longest = 0;
  const Status status = check(histories(), [&](Steps& steps) {
    Shadowed<int32_t> array(steps, "array", 3);
    Shadowed<uint8_t> bytes(steps, "bytes", 2);
    for (int64_t step = 0; steps.next() != nullptr; ++step) {
      longest = std::max(longest, step);
      const auto age = static_cast<int>(step);
      EXPECT_EQ(poison_age(array.span()[0]), age);
      EXPECT_EQ(poison_age(array.span()[1]), std::min(age, 1));
      EXPECT_EQ(poison_age(array.span()[2]), 0);
      EXPECT_EQ(poison_age(bytes.span()[0]), std::min(age, 1));
      if (step == 0) array.span()[0] = 5, bytes.span()[0] = 1;
      array.span()[1] = 6;
    }
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_GT(longest, 5);
}

TEST(Shadowed, WhatIsNotWrittenEachStepStays) {
  const Status status = check(histories(), [&](Steps& steps) {
    Shadowed<int64_t> array(steps, "array", 2, Lifetime::kConstant);
    array.span()[0] = 5;
    while (steps.next() != nullptr) {
      EXPECT_EQ(array.span()[0], 5);
      EXPECT_EQ(poison_age(array.span()[1]), 0);
    }
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(Shadowed, EveryHistoryBeginsWithArraysThatNobodyWrote) {
  const Status status = check(histories(), [&](Steps& steps) {
    Shadowed<int32_t> array(steps, "array", 1);
    EXPECT_EQ(poison_age(array.span()[0]), 0);
    while (steps.next() != nullptr) array.span()[0] = 1;
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(Shadowed, APoisonIsNoLengthOffsetIdSlotOrMaskByte) {
  for (const int64_t value : {-2147483392, -2147483391, -1, 0, 1, 2147483647})
    EXPECT_EQ(poison_age(static_cast<int32_t>(value)), std::nullopt) << value;
  for (const int64_t value : {int64_t{INT32_MIN}, int64_t{-1}, int64_t{0}, INT64_MAX})
    EXPECT_EQ(poison_age(value), std::nullopt) << value;
  for (const int value : {0, 1, 255})
    EXPECT_EQ(poison_age(static_cast<uint8_t>(value)), std::nullopt) << value;
  EXPECT_EQ(poison_age(poison<int32_t>(1000)), 255);
}

}  // namespace
}  // namespace shadowgraph::testing::shadowed_test
