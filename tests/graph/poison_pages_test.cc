#include "graph/memory/poison_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>

namespace shadowgraph::poison_pages_test {
namespace {

constexpr std::byte kFilled{kPoison};

/// Zeroed pages, of which a part is poisoned.
class PoisonPages : public ::testing::TestWithParam<size_t> {
 protected:
  static constexpr size_t kBytes = size_t{12} << 20;

  PoisonPages()
      : memory_(static_cast<std::byte*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
                kBytes) {}
  ~PoisonPages() override { munmap(memory_.data(), kBytes); }

  static bool is_all(std::span<const std::byte> bytes, std::byte value) {
    return std::ranges::all_of(bytes, [=](std::byte b) { return b == value; });
  }

  std::span<std::byte> memory_;
};

TEST_P(PoisonPages, EachByteAndNoOther) {
  for (const size_t first : {size_t{0}, size_t{1}, size_t{256}, size_t{4096}, size_t{8191}}) {
    poison(&memory_[first], GetParam());
    EXPECT_TRUE(is_all(memory_.first(first), std::byte{0})) << first;
    EXPECT_TRUE(is_all(memory_.subspan(first, GetParam()), kFilled)) << first;
    EXPECT_TRUE(is_all(memory_.subspan(first + GetParam()), std::byte{0})) << first;
    std::ranges::fill(memory_, std::byte{0});
  }
}

TEST_P(PoisonPages, WhatIsWrittenStaysItsOwnUntilItIsPoisonedAgain) {
  poison(memory_.data(), GetParam());
  for (size_t i = 0; i < GetParam(); i += 64) memory_[i] = std::byte{7};
  poison(&memory_[6 << 20], GetParam());  // from the same file
  EXPECT_TRUE(is_all(memory_.subspan(6 << 20, GetParam()), kFilled));
  for (size_t i = 0; i < GetParam(); ++i)
    ASSERT_EQ(memory_[i], i % 64 == 0 ? std::byte{7} : kFilled) << i;
  poison(memory_.data(), GetParam());
  EXPECT_TRUE(is_all(memory_.first(GetParam()), kFilled));
}

INSTANTIATE_TEST_SUITE_P(Bytes, PoisonPages,
                         ::testing::Values(1, 4095, kPoisonMapFrom - 1, kPoisonMapFrom,
                                           (size_t{5} << 20) + 77));

TEST(PoisonPagesOfMuch, AreNotTouched) {
  constexpr size_t kMuch = size_t{64} << 20;
  auto* p = static_cast<std::byte*>(
      mmap(nullptr, kMuch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(p), MAP_FAILED);
  const auto faults = [] {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  poison(p, size_t{4} << 20);  // makes the file
  const long before = faults();
  poison(p, kMuch);
  EXPECT_LT(faults() - before, 100);
  EXPECT_EQ(p[kMuch - 1], kFilled);
  munmap(p, kMuch);
}

/// The descriptor of this process that is a poisoned file; -1: none.
int poisoned_file() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string to = std::filesystem::read_symlink(entry.path(), error).string();
    if (!error && to.find("memfd:poison") != std::string::npos)
      return std::stoi(entry.path().filename().string());
  }
  return -1;
}

TEST(PoisonPagesOfMuch, AreWrittenWhereAnotherFileHasTheirDescriptor) {
  constexpr size_t kMuch = size_t{4} << 20;
  auto* p = static_cast<std::byte*>(
      mmap(nullptr, kMuch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(p), MAP_FAILED);
  poison(p, kMuch);  // makes the file
  const int file = poisoned_file();
  ASSERT_GT(file, STDERR_FILENO);
  const int kept = dup(file), other = open("/dev/zero", O_RDWR | O_CLOEXEC);
  ASSERT_EQ(dup2(other, file), file);
  std::fill_n(p, kMuch, std::byte{1});
  poison(p, kMuch);
  EXPECT_TRUE(std::all_of(p, p + kMuch, [](std::byte b) { return b == kFilled; }));
  dup2(kept, file);
  close(kept), close(other);
  munmap(p, kMuch);
}

}  // namespace
}  // namespace shadowgraph::poison_pages_test
