// Whoever touches the page beside a room is noted, goes on, and does not fault again.
#include "fuzz/call/guard_pages.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fuzz/call/call_memory.h"

namespace shadowgraph::guard_pages_test {
namespace {

int32_t read(const std::byte* at) {
  return static_cast<int32_t>(*static_cast<const volatile std::byte*>(at));
}
void write(std::byte* at) { *static_cast<volatile std::byte*>(at) = std::byte{7}; }

TEST(GuardedRoom, NotesTheFirstAccessOfEitherPageBesideIt) {
  const GuardedRoom room(100);
  const std::span<std::byte> bytes = room.bytes();
  ASSERT_GE(bytes.size(), 100u);
  for (std::byte& b : bytes) b = std::byte{1};
  EXPECT_FALSE(room.trespass().has_value());
  std::byte* const behind = bytes.data() + bytes.size();
  read(behind + 5), write(behind + 6);
  ASSERT_TRUE(room.trespass().has_value());
  EXPECT_EQ(room.trespass()->at, behind + 5);
  EXPECT_STREQ(room.trespass()->what, "a read");
  room.close();
  EXPECT_FALSE(room.trespass().has_value());
  write(bytes.data() - 1);
  ASSERT_TRUE(room.trespass().has_value());
  EXPECT_EQ(room.trespass()->at, bytes.data() - 1);
  EXPECT_STREQ(room.trespass()->what, "a write");
}

TEST(GuardedRoom, AnotherThreadIsNotedAsWell) {
  const GuardedRoom room(1);
  std::thread([&] { read(room.bytes().data() + room.bytes().size()); }).join();
  EXPECT_TRUE(room.trespass().has_value());
}

TEST(GuardedRoom, RoomsThatAreUsedAgainAreClosed) {
  for (int i = 0; i < 100; ++i) {
    const GuardedRoom room(5000 + i);
    EXPECT_FALSE(room.trespass().has_value());
    read(room.bytes().data() - 1);
    EXPECT_TRUE(room.trespass().has_value());
  }
}

TEST(GuardedRoom, RoomsOfEverySizeLieApart) {
  std::vector<GuardedRoom> rooms;
  for (int64_t bytes = 1; bytes <= int64_t{1} << 26; bytes *= 3) rooms.emplace_back(bytes);
  for (GuardedRoom& room : rooms) write(&room.bytes().front()), write(&room.bytes().back());
  for (const GuardedRoom& room : rooms) EXPECT_FALSE(room.trespass().has_value());
}

/// A list has 3 heads: what an access of that element is called.
std::string beside(int64_t element, bool writes) {
  std::set<std::string> found;
  for (uint64_t seed = 0; seed < 32; ++seed) {  // some lie at the front of a page, some at its end
    Rng rng(seed);
    CallMemory memory;
    const std::vector<float> values = {1, 2, 3};
    auto* const sinks = reinterpret_cast<std::byte*>(memory.add_list("sinks", values, rng).data());
    memory.remember();
    std::byte* const at = sinks + 4 * element;
    writes ? write(at) : void(read(at));
    const Status status = memory.check_written({});
    if (!status.ok()) found.insert(status.findings()[0].to_string());
  }
  return found.empty() ? "" : *found.begin();
}

TEST(CallMemory, AReadOneHeadTooFarIsNamed) {
  EXPECT_EQ(beside(3, false),
            "mem.red_zone: sinks byte[12] is a read, 1 behind its last, expected no access beside "
            "its 12 bytes");
  EXPECT_EQ(beside(-1, false),
            "mem.red_zone: sinks byte[-4] is a read, 4 before its first, expected no access beside "
            "its 12 bytes");
  EXPECT_EQ(beside(2, false), "");
}

TEST(CallMemory, AWriteOneElementTooFarIsNamedWhereverTheListLies) {
  EXPECT_NE(beside(3, true), "");
  EXPECT_NE(beside(-1, true), "");
}

}  // namespace
}  // namespace shadowgraph::guard_pages_test
