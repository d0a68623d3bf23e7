#include "bench/machine.h"

#include <gtest/gtest.h>

namespace shadowgraph::bench {
namespace {

constexpr double kMiB = 1 << 20, kGiB = 1 << 30;

TEST(Cold, IsEightTimesTheLastLevelCachesAsFarAsThereIsMemory) {
  const struct {
    double caches, available, bytes;
  } table[] = {{32 * kMiB, 8 * kGiB, 256 * kMiB},  // eight times as much
               {0, 8 * kGiB, 256 * kMiB},          // not told, or small: 256 MiB
               {300 * kMiB, 128 * kGiB, 2400 * kMiB},
               {300 * kMiB, 16 * kGiB, 1 * kGiB},  // a 16th of what is available
               {300 * kMiB, 1 * kGiB, 256 * kMiB}};
  for (const auto& [caches, available, bytes] : table) {
    const ColdMemory cold = cold_memory(caches, available);
    EXPECT_EQ(cold.wanted, 8 * caches);
    EXPECT_EQ(cold.bytes, bytes) << caches;
  }
}

TEST(Cold, ThisMachineHasSome) {
  EXPECT_GE(cold_memory().bytes, 256 * kMiB);
  EXPECT_GE(cold_memory().wanted, 0);
}

TEST(Machine, SizesAreReadAsLinuxWritesThem) {
  EXPECT_EQ(bytes_of("32768K"), 32 * kMiB);
  EXPECT_EQ(bytes_of("1M"), kMiB);
  EXPECT_EQ(bytes_of("16270952 kB"), 16270952.0 * 1024);
  EXPECT_EQ(bytes_of("2G"), 2 * kGiB);
  EXPECT_EQ(bytes_of("7"), 7);
  EXPECT_EQ(bytes_of(""), 0);
  EXPECT_EQ(bytes_of("max"), 0);
}

TEST(Machine, SaysWhatItIs) {
  for (const auto& [what, value] : describe_machine()) {
    if (what != "caches" && what != "huge_pages") {
      EXPECT_FALSE(value.empty()) << what;
    }
  }
}

}  // namespace
}  // namespace shadowgraph::bench
