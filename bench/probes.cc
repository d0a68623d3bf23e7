#include "bench/probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <numeric>

#include "bench/contention.h"
#include "bench/machine.h"
#include "bench/team.h"
#include "bench/units/best.h"
#include "core/choices.h"
#include "shadowgraph/attention/attention.h"

#ifdef SG_BENCH_X86
#include <cpuid.h>
#endif

namespace shadowgraph::bench {
namespace {

constexpr int64_t kBlock = 4096;
constexpr int kDistances = 8;
constexpr int kTries = 3, kMostTries = 6;  // quiet ones wanted, and in all
constexpr double kSeconds = 0.010;         // of one run of a probe on registers

/// The result of a loop that is run for its time only.
template <class T>
void keep(T value) {
  __asm__ volatile("" : : "m"(value) : "memory");
}

#ifdef SG_BENCH_X86
bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool leaf = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0;
  const bool amx_bf16 = (d >> 22 & 1) != 0, amx_tile = (d >> 24 & 1) != 0;
  return leaf && amx_bf16 && amx_tile && enable_amx();
}

std::vector<FlopVariant> dot_variants(Probe probe) {
  if (probe == Probe::kBf16Peak && has_isa("avx512bf16"))
    return {kBf16Variants, kBf16Variants + kNumBf16Variants};
  if (probe == Probe::kAmxPeak && has_amx()) return {kAmxVariants, kAmxVariants + kNumAmxVariants};
  return {};
}

std::vector<FlopVariant> avx2_variants() {
  if (!has_isa("avx2")) return {};
  return {kAvx2Unit.fma, kAvx2Unit.fma + kAvx2Unit.num_fma};
}
#else
std::vector<FlopVariant> dot_variants(Probe) { return {}; }
std::vector<FlopVariant> avx2_variants() { return {}; }
#endif

/// So many iterations take kSeconds.
int64_t iterations_of(const FlopVariant& v) {
  int64_t iterations = 1000;
  for (;;) {
    const double seconds = time_team(1, [&](int) { keep(v.run(iterations)); });
    if (seconds > kSeconds / 10) return iterations * static_cast<int64_t>(1 + kSeconds / seconds);
    iterations *= 4;
  }
}

/// How much of [data, data + bytes) lies in 2 MiB pages: AnonHugePages of the mapping that holds
/// it.
double huge_page_share(const std::byte* data, size_t bytes) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  while (std::getline(maps, line)) {
    unsigned long begin = 0, end = 0, kib = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      const auto at = reinterpret_cast<unsigned long>(data);
      inside = begin <= at && at < end;
    } else if (inside && std::sscanf(line.c_str(), "AnonHugePages: %lu kB", &kib) == 1) {
      return std::min(1.0, static_cast<double>(kib) * 1024 / static_cast<double>(bytes));
    }
  }
  return 0;
}

/// Clocks a second of the calling thread's core, from a chain of dependent additions and rotations
/// of a register: a clock each on every x86-64 processor. 0 elsewhere.
double clock_rate() {
#ifdef SG_BENCH_X86
  constexpr int kShortTries = 50;  // of half a millisecond: one of them is not disturbed
  constexpr int64_t kRounds = 120'000;
  constexpr int kOperations = 16;
  double best = 0;
  for (int i = 0; i < kShortTries; ++i) {
    uint64_t x = 3;
    const double start = now();
    for (int64_t n = 0; n < kRounds; ++n) {
      __asm__ volatile(
          "add %0, %0; ror $7, %0; add %0, %0; ror $7, %0; add %0, %0; ror $7, %0; add %0, %0;"
          "ror $7, %0; add %0, %0; ror $7, %0; add %0, %0; ror $7, %0; add %0, %0; ror $7, %0;"
          "add %0, %0; ror $7, %0;"
          : "+r"(x)
          :
          : "cc");
    }
    best = std::max(best, kRounds * kOperations / (now() - start));
  }
  return best;
#else
  return 0;
#endif
}

}  // namespace

int64_t probe_bytes() {
  constexpr double kLeastBytes = 512.0 * (1 << 20);
  const double pages = std::max(kLeastBytes, cold_memory().bytes) / static_cast<double>(kHugePage);
  return static_cast<int64_t>(std::ceil(pages)) * static_cast<int64_t>(kHugePage);
}

Probes::Variant Probes::variant_of(const FlopVariant& v) {
  const int64_t iterations = iterations_of(v);
  const double flop = v.flop * static_cast<double>(iterations);
  return {v.name, [flop](int threads) { return flop * threads; },
          [v, iterations](int, int) { keep(v.run(iterations)); }};
}

Probes::Probes(uint64_t seed, int largest_team, int64_t bytes)
    : largest_team_(largest_team), memory_(bytes), blocks_(bytes / kBlock) {
  std::iota(blocks_.begin(), blocks_.end(), 0);
  Rng rng(seed);
  shuffle(blocks_, rng);
}

std::vector<Probes::Variant> Probes::variants_of(Probe probe) {
  const Unit& unit = best_unit();
  std::vector<Variant> variants;
  const auto bytes = static_cast<int64_t>(memory_.size());
  const auto all_bytes = [bytes](int) { return static_cast<double>(bytes); };
  const auto add_gather = [&](std::string name, GatherFn gather, int distance) {
    variants.push_back(
        {std::move(name), all_bytes, [this, gather, distance](int thread, int threads) {
           const auto blocks = static_cast<int64_t>(blocks_.size());
           const int64_t begin = blocks * thread / threads;
           const int64_t end = blocks * (thread + 1) / threads;
           keep(gather(memory_.data(), blocks_.data() + begin, end - begin, distance));
         }});
  };
  if (probe == Probe::kStreamRead) {
    for (int i = 0; i < unit.num_reads; ++i) {
      const ReadVariant& read = unit.reads[i];
      variants.push_back({read.name, all_bytes, [this, &read, bytes](int thread, int threads) {
                            const int64_t blocks = bytes / kBlock;
                            const int64_t begin = blocks * thread / threads * kBlock;
                            const int64_t end = blocks * (thread + 1) / threads * kBlock;
                            keep(read.run(memory_.data() + begin, end - begin));
                          }});
    }
  } else if (probe == Probe::kStreamUpdate) {
    for (int i = 0; i < unit.num_updates; ++i) {
      const UpdateVariant& update = unit.updates[i];
      variants.push_back({update.name, all_bytes, [this, &update, bytes](int thread, int threads) {
                            const int64_t blocks = bytes / kBlock;
                            const int64_t begin = blocks * thread / threads * kBlock;
                            const int64_t end = blocks * (thread + 1) / threads * kBlock;
                            update.run(memory_.data() + begin, end - begin);
                          }});
    }
  } else if (probe == Probe::kPageGather) {
    for (int distance = 1; distance <= kDistances; ++distance) {
      add_gather(fmt::format("distance {}, by 8 lines", distance), unit.gather_lines, distance);
      add_gather(fmt::format("distance {}, by blocks", distance), unit.gather_blocks, distance);
    }
  } else if (probe == Probe::kFmaPeak) {
    for (int i = 0; i < unit.num_fma; ++i) variants.push_back(variant_of(unit.fma[i]));
    if (&unit != &kGenericUnit)
      for (const FlopVariant& v : avx2_variants()) variants.push_back(variant_of(v));
  } else {
    for (const FlopVariant& v : dot_variants(probe)) variants.push_back(variant_of(v));
  }
  return variants;
}

double Probes::run(const Variant& variant, int threads) {
  const double seconds = time_team(threads, [&](int thread) { variant.body(thread, threads); });
  return variant.work(threads) / seconds;
}

double Probes::best_of_tries(const Variant& variant, int threads) {
  double best = 0;
  int quiet = 0;
  for (int i = 0; i < kMostTries && quiet < kTries; ++i) {
    const Contention before = contention();
    const double start = now();
    best = std::max(best, run(variant, threads));
    if (disturbance(before, contention(), now() - start).empty()) ++quiet;
  }
  return best;
}

ProbeChoice Probes::choose(Probe probe, int threads) {
  ProbeChoice choice;
  std::vector<Variant> variants = variants_of(probe);
  for (Variant& variant : variants) {
    const double figure = best_of_tries(variant, threads);
    if (figure <= choice.best) {
      choice.second = std::max(choice.second, figure);
      continue;
    }
    choice.second = std::exchange(choice.best, figure);
    choice.variant = variant.name;
    chosen_.insert_or_assign({threads, probe}, std::move(variant));
  }
  if (variants.size() == 1) choice.second = choice.best;
  if (variants.empty()) {
    choice.absent = fmt::format("this processor has no {}",
                                probe == Probe::kAmxPeak ? "AMX" : "bf16 dot product");
  }
  return choice;
}

double Probes::fma_per_clock(int threads, const ProbeChoice& fma) {
  double clock = 0;
  time_team(1, [&](int) { clock = clock_rate(); });
  const double lanes = fma.variant.starts_with("zmm") ? 16 : fma.variant.starts_with("ymm") ? 8 : 0;
  if (clock == 0 || lanes == 0) return 0;
  return best_of_tries(chosen_.at({threads, Probe::kFmaPeak}), 1) / (2 * lanes) / clock;
}

void Probes::settle(int threads) {
  facts(threads);
  ProbeFacts& facts = facts_.at(threads);
  for (const Probe probe : {Probe::kFmaPeak, Probe::kBf16Peak}) {
    ProbeChoice& choice = facts.choices[static_cast<size_t>(probe)];
    if (choice.absent.empty() && !unrolls_agree(choice)) choice = choose(probe, threads);
  }
  if (!is_whole(facts.fma_per_clock)) {
    facts.fma_per_clock =
        fma_per_clock(threads, facts.choices[static_cast<size_t>(Probe::kFmaPeak)]);
  }
}

const ProbeFacts& Probes::facts(int threads) {
  const auto known = facts_.find(threads);
  if (known != facts_.end()) return known->second;
  if (memory_.empty()) throw std::bad_alloc();
  // Every thread touches first what it reads, on its own memory node where there are several; a
  // smaller team reads what the large one touched.
  const auto bytes = static_cast<int64_t>(memory_.size());
  if (facts_.empty()) {
    time_team(largest_team_, [&](int thread) {
      const int64_t begin = bytes * thread / largest_team_;
      const int64_t end = bytes * (thread + 1) / largest_team_;
      std::fill(memory_.data() + begin, memory_.data() + end, std::byte{1});
    });
  }
  ProbeFacts facts;
  facts.threads = threads;
  facts.huge_page_share = huge_page_share(memory_.data(), memory_.size());
  // The size that calls rotate over: where that is cold, the probes' memory is too, since it is no
  // smaller.
  const ColdMemory& cold = cold_memory();
  facts.cold_share = cold.wanted > cold.bytes ? cold.bytes / cold.wanted : 1;
  for (const Probe probe : kAllProbes)
    facts.choices[static_cast<size_t>(probe)] = choose(probe, threads);
  facts.fma_per_clock = fma_per_clock(threads, facts.choices[static_cast<size_t>(Probe::kFmaPeak)]);
  return facts_.emplace(threads, std::move(facts)).first->second;
}

ProbeFigures Probes::measure(int threads) {
  facts(threads);
  ProbeFigures figures;
  for (const Probe probe : kAllProbes) {
    const auto chosen = chosen_.find({threads, probe});
    if (chosen != chosen_.end()) figures[static_cast<size_t>(probe)] = run(chosen->second, threads);
  }
  return figures;
}

}  // namespace shadowgraph::bench
