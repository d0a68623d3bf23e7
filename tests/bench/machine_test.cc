#include "bench/machine.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "shadowgraph/attention/attention.h"

namespace shadowgraph::bench::machine_test {
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

/// The files in which Linux describes a machine.
class Sys {
 public:
  explicit Sys(const std::string& name)
      : root_(std::filesystem::path(::testing::TempDir()) / ("shadowgraph_sys_" + name)) {
    std::filesystem::remove_all(root_);
  }
  Sys(const Sys&) = delete;
  Sys& operator=(const Sys&) = delete;
  ~Sys() { std::filesystem::remove_all(root_); }

  const std::filesystem::path& root() const { return root_; }
  void add(int cpu, int socket, int node, const std::string& siblings, const std::string& l3) {
    const std::filesystem::path folder = root_ / "cpu" / ("cpu" + std::to_string(cpu));
    write(folder / "topology/physical_package_id", std::to_string(socket));
    write(folder / "topology/thread_siblings_list", siblings);
    std::filesystem::create_directories(folder / ("node" + std::to_string(node)));
    add_cache(folder / "cache/index0", "1", "Data", "32K", siblings);
    add_cache(folder / "cache/index3", "3", "Unified", "1024K", l3);
  }

 private:
  static void write(const std::filesystem::path& path, const std::string& line) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << line << '\n';
  }
  static void add_cache(const std::filesystem::path& folder, const std::string& level,
                        const std::string& type, const std::string& size,
                        const std::string& shared_by) {
    write(folder / "level", level), write(folder / "type", type);
    write(folder / "size", size), write(folder / "shared_cpu_list", shared_by);
  }
  std::filesystem::path root_;
};

TEST(Topology, OfTwoSocketsWithTwoThreadsACore) {
  Sys two("two_sockets");
  for (int cpu = 0; cpu < 8; ++cpu) {
    const int core = cpu % 4, socket = core / 2;
    two.add(cpu, socket, socket, std::to_string(core) + "," + std::to_string(core + 4),
            socket == 0 ? "0-1,4-5" : "2-3,6-7");
  }
  Topology t = read_topology(two.root(), {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(t.sockets, 2);
  EXPECT_EQ(t.numa_nodes, 2);
  EXPECT_EQ(t.cores, 4);
  EXPECT_EQ(t.most_threads_a_core, 2);
  EXPECT_EQ(t.last_level, (std::vector<std::string>{"1024K", "1024K"}));
  // A process that has one thread of one core only.
  t = read_topology(two.root(), {2});
  EXPECT_EQ(t.sockets, 1);
  EXPECT_EQ(t.cores, 1);
  EXPECT_EQ(t.most_threads_a_core, 1);
  EXPECT_EQ(t.last_level.size(), 1u);
}

TEST(Topology, WhatIsNotToldIsNone) {
  const Topology t = read_topology("/nowhere", {0, 1});
  EXPECT_EQ(t.sockets + t.numa_nodes + t.cores + t.most_threads_a_core, 0);
  EXPECT_TRUE(t.last_level.empty());
}

TEST(Isas, AUnitIsOfThisMachineOrMissing) {
  std::multiset<std::string, std::less<>> all;
  for (const std::string_view isa : available_isas()) all.emplace(isa);
  for (const std::string& isa : missing_isas()) all.insert(isa);
  EXPECT_EQ(all,
            (std::multiset<std::string, std::less<>>(built_isas().begin(), built_isas().end())));
  EXPECT_EQ(all.count("generic"), 1u);
}

TEST(Machine, SaysWhatItIs) {
  for (const auto& [what, value] : describe_machine()) {
    if (what != "caches" && what != "huge_pages") {
      EXPECT_FALSE(value.empty()) << what;
    }
  }
}

}  // namespace
}  // namespace shadowgraph::bench::machine_test
