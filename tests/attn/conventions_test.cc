// Two conventions never meet unnoticed: conversions are exact, have names, and there are no others.
#include "shadowgraph/attention/conventions.h"

#include <gtest/gtest.h>

#include <array>
#include <climits>
#include <functional>
#include <type_traits>
#include <vector>

#include "attn/mask.h"
#include "shadowgraph/attention/attention.h"

namespace shadowgraph::conventions_test {
namespace {

/// Neither becomes the other, nor a number, without a name; and no number becomes one of them.
template <class A, class B, class Number>
constexpr bool kApart = !std::is_convertible_v<A, B> && !std::is_convertible_v<B, A> &&
                        !std::is_constructible_v<A, B> && !std::is_constructible_v<B, A> &&
                        !std::is_assignable_v<A&, B> && !std::is_assignable_v<B&, A> &&
                        !std::is_convertible_v<Number, A> && !std::is_convertible_v<Number, B> &&
                        !std::is_convertible_v<A, Number> && !std::is_convertible_v<B, Number> &&
                        std::is_constructible_v<A, Number> && std::is_constructible_v<B, Number>;

static_assert(kApart<WindowLeft, WindowCount, int32_t>);
static_assert(kApart<Slot, PageId, int32_t>);
static_assert(kApart<Indptr, InclusiveEnds, std::span<const int32_t>>);
static_assert(kApart<NaturalLse, Log2Lse, TensorView>);
static_assert(!std::is_constructible_v<WindowLeft, Slot> &&
              !std::is_constructible_v<PageId, WindowCount>);

static_assert(std::is_invocable_v<decltype(to_page), Slot, int32_t>);
static_assert(!std::is_invocable_v<decltype(to_page), PageId, int32_t>);
static_assert(!std::is_invocable_v<decltype(to_page), int32_t, int32_t>);
static_assert(!std::is_invocable_v<decltype(first_slot), Slot, int32_t>);
static_assert(!std::is_invocable_v<decltype(to_count), WindowCount>);
static_assert(!std::is_invocable_v<decltype(to_left), WindowLeft>);
static_assert(!std::is_invocable_v<decltype(to_ends), InclusiveEnds>);
static_assert(!std::is_invocable_v<decltype(to_indptr), Indptr, std::span<int32_t>>);
static_assert(
    !std::is_invocable_v<decltype(to_indptr), std::span<const int32_t>, std::span<int32_t>>);
// Slots and pages, a radius and a count, are not compared either.
static_assert(!std::is_invocable_v<std::equal_to<>, Slot, PageId>);
static_assert(!std::is_invocable_v<std::equal_to<>, WindowLeft, WindowCount>);

/// A merge to one base takes no LSE of the other.
template <LseBase Base, class Lse>
constexpr bool kMergesInto = std::is_assignable_v<decltype(MergeState<Base>::lse)&, Lse>&&
    std::is_assignable_v<decltype(MergeStates<Base>::lse)&, Lse>;
static_assert(kMergesInto<LseBase::kNatural, NaturalLse> && kMergesInto<LseBase::kLog2, Log2Lse>);
static_assert(!kMergesInto<LseBase::kNatural, Log2Lse> && !kMergesInto<LseBase::kLog2, NaturalLse>);
static_assert(!std::is_convertible_v<MergeState<LseBase::kLog2>, MergeState<LseBase::kNatural>>);

TEST(Conventions, AWindowOfFourKeysIsARadiusOfThree) {
  EXPECT_EQ(to_left(WindowCount(4)), WindowLeft(3));
  EXPECT_EQ(to_count(WindowLeft(3)), WindowCount(4));
  EXPECT_EQ(to_left(WindowCount(1)), WindowLeft(0));  // itself alone
  EXPECT_EQ(to_left(WindowCount()), WindowLeft());    // no window
  EXPECT_EQ(to_left(WindowCount(int64_t{1} << 31)), WindowLeft(INT_MAX));
  for (const int32_t radius : {-1, 0, 1, 4095, INT_MAX}) {
    EXPECT_EQ(to_left(to_count(WindowLeft(radius))), WindowLeft(radius));
  }
}

TEST(Conventions, AQueryBehindItsWindowSeesAsManyKeysAsTheCountSays) {
  for (int32_t radius = 0; radius <= 5; ++radius) {
    const MaskShape decode{1, 9, true, WindowLeft(radius).keys};
    EXPECT_EQ(kv_range(decode, 0).size(), to_count(WindowLeft(radius)).keys);
  }
}

TEST(Conventions, APageHoldsItsSlots) {
  EXPECT_EQ(to_page(Slot(0), 1), PageId(0));
  for (const int32_t page_size : {1, 2, 16, 128}) {
    for (const int32_t page : {0, 1, 7, 1000}) {
      const Slot first = first_slot(PageId(page), page_size);
      EXPECT_EQ(first.value, page * page_size);
      EXPECT_EQ(to_page(first, page_size), PageId(page));
      EXPECT_EQ(to_page(Slot(first.value + page_size - 1), page_size), PageId(page));
    }
    EXPECT_EQ(to_page(Slot(), page_size), PageId());  // none is none
  }
}

TEST(Conventions, EndsAreTheOffsetsWithoutTheirFirst) {
  const std::array<int32_t, 4> offsets = {0, 4, 4, 9};
  const InclusiveEnds ends = to_ends(Indptr(offsets));
  EXPECT_EQ(std::vector(ends.ends.begin(), ends.ends.end()), (std::vector<int32_t>{4, 4, 9}));
  std::array<int32_t, 4> again = {7, 7, 7, 7};
  EXPECT_EQ(to_indptr(ends, again).offsets.data(), again.data());
  EXPECT_EQ(again, offsets);
  // No parts have one offset, and no end.
  EXPECT_TRUE(to_ends(Indptr(std::span(offsets).first(1))).ends.empty());
  std::array<int32_t, 1> none = {7};
  to_indptr(InclusiveEnds(), none);
  EXPECT_EQ(none[0], 0);
}

}  // namespace
}  // namespace shadowgraph::conventions_test
