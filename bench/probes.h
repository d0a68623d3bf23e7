// What this machine can do at most: the denominators of the bench. A probe's figure is that of its
// best variant (unrolls, vector width, prefetch distance), chosen once per number of threads. Each
// has a floor, below which it measured something else and no row may divide by it.
// Tested by tests/bench/probes_test.cc.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shadowgraph/huge_memory.h"

namespace shadowgraph::bench {

struct FlopVariant;

enum class Probe : uint8_t {
  kStreamRead,  // bytes/s: memory in 2 MiB pages, every thread its own part, in order or in runs of
                // several streams in turn, as decode has keys and values of several heads
  kPageGather,  // bytes/s: the same memory in blocks of 4 KiB at random, prefetched
  kStreamUpdate,  // bytes/s: the same memory in order, scaled in place, each byte counted once
  kFmaPeak,       // flop/s: f32 fused multiply-add on registers
  kBf16Peak,      // flop/s: vdpbf16ps on registers
  kAmxPeak,       // flop/s: tdpbf16ps on tiles
};
inline constexpr int kProbes = 6;
inline constexpr Probe kAllProbes[kProbes] = {Probe::kStreamRead,   Probe::kPageGather,
                                              Probe::kStreamUpdate, Probe::kFmaPeak,
                                              Probe::kBf16Peak,     Probe::kAmxPeak};

/// "stream_read", "page_gather", "stream_update", "fma_peak", "bf16_peak", "amx_peak".
std::string_view name_of(Probe probe);
constexpr bool counts_bytes(Probe probe) { return probe <= Probe::kStreamUpdate; }

/// Figures of all probes at one moment; empty: this machine has none.
using ProbeFigures = std::array<std::optional<double>, kProbes>;

/// How a probe is run, and what that was found by.
struct ProbeChoice {
  std::string variant;          // of the best: "zmm, 12 sums"; "distance 4"
  double best = 0, second = 0;  // bytes/s or flop/s, the best and the second best variant
  std::string absent;           // why there is no such probe here; then nothing else is set
};

/// What the floors look at beside figures.
struct ProbeFacts {
  int threads = 1;
  double huge_page_share = 0;  // of the memory that is read
  double cold_share = 1;       // of the bytes that cold_memory() wants, what is read; at most 1
  // Vector operations a clock of one thread's best variant; 0: unknown
  double fma_per_clock = 0, dot_per_clock = 0;
  std::array<ProbeChoice, kProbes> choices;
};

/// The floors. Empty, or why this probe's figure is no denominator:
///   all of bytes  8 times the last-level caches are read: fewer come from cache
///   stream_read  in 2 MiB pages (0.9 of them)
///   page_gather  0.80 of stream_read; on one thread 0.50 (one core cannot keep as much in flight)
///   stream_update  in 2 MiB pages
///   both peaks   the two best unrolls agree within 5 %; in these rounds 0.9 of the best
///   fma_peak     one thread issues a whole number of vector operations a clock (to 5 %: the clock
///                itself is measured to 2 %)
///   bf16_peak    one thread issues a whole number of them in two clocks: some processors have half
///                the rate of multiply-add
/// figures: medians of what the row's rounds measured.
std::string below_floor(Probe probe, const ProbeFigures& figures, const ProbeFacts& facts);

/// The probes whose best figure is the limit of a row over `probe`: memory is read as fast as the
/// better of streams and gathers; fast arithmetic is as fast as the best that Arith::kFast may use.
std::span<const Probe> probes_of_limit(Probe probe);
/// That best figure; empty: this machine has none of them.
std::optional<double> limit_of(Probe probe, const ProbeFigures& figures);
/// Empty, or why that figure is no denominator: `probe`, or the one that is the best, is below its
/// floor.
std::string limit_below_floor(Probe probe, const ProbeFigures& figures, const ProbeFacts& facts);

/// The parts of these floors that a disturbed calibration misses, and another one may reach.
bool unrolls_agree(const ProbeChoice& choice);
bool is_whole(double operations);

/// What the memory probes read: 512 MiB, or cold_memory().bytes if that is more. Whole 2 MiB.
int64_t probe_bytes();

/// The probes and their memory.
class Probes {
 public:
  /// largest_team: threads of the largest team that is common, which touches the memory first.
  /// bytes: a multiple of 2 MiB.
  Probes(uint64_t seed, int largest_team, int64_t bytes);

  /// Facts of so many threads; tries every variant at the first call.
  const ProbeFacts& facts(int threads);
  /// Before a row: tries again what the floors say was not measured well.
  void settle(int threads);
  /// Runs every probe's best variant once, about 10 ms each.
  ProbeFigures measure(int threads);

 private:
  /// One way to run a probe: body does its thread's share of `work` bytes or flop.
  struct Variant {
    std::string name;
    std::function<double(int threads)> work;
    std::function<void(int thread, int threads)> body;
  };
  static Variant variant_of(const FlopVariant& v);
  std::vector<Variant> variants_of(Probe probe);
  ProbeChoice choose(Probe probe, int threads);
  /// Tries each variant once and leaves the best few.
  void keep_finalists(int threads, std::vector<Variant>* variants);
  double per_clock(int threads, Probe probe);
  double run(const Variant& variant, int threads);
  double best_of_tries(const Variant& variant, int threads);

  int largest_team_;
  HugeMemory memory_;
  std::vector<int32_t> blocks_;  // of 4 KiB, shuffled
  std::map<int, ProbeFacts> facts_;
  std::map<std::pair<int, Probe>, Variant> chosen_;
};

}  // namespace shadowgraph::bench
