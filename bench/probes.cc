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
#include "bench/rounds.h"
#include "bench/team.h"
#include "bench/units/best.h"
#include "core/choices.h"
#include "shadowgraph/attention/attention.h"

namespace shadowgraph::bench {
namespace {

constexpr int64_t kBlock = 4096;
constexpr int kDistances = 8;
constexpr int kTries = 3, kMostTries = 6;  // quiet ones wanted, and in all
constexpr int kClockTries = 9;
constexpr size_t kFinalists = 8;  // variants that are tried more than once

/// How a thread reads its part of the memory: so many streams, each in order, a run of each in
/// turn. Decode has K and V of one head or of several, in runs of a page's tokens.
struct ReadOrder {
  int streams;
  int64_t run;  // bytes, a multiple of kBlock
};
constexpr ReadOrder kReadOrders[] = {{1, 32768}, {2, 4096},  {2, 8192}, {2, 32768},
                                     {4, 4096},  {4, 16384}, {8, 4096}, {16, 4096}};
constexpr int64_t kAheads[] = {1024, 4096, 16384};  // bytes
constexpr double kSeconds = 0.010;                  // of one run of a probe on registers

/// The result of a loop that is run for its time only.
template <class T>
void keep(T value) {
  __asm__ volatile("" : : "m"(value) : "memory");
}

#ifdef SG_BENCH_X86
std::vector<FlopVariant> dot_variants(Probe probe) {
  if (probe == Probe::kBf16Peak && has_isa("avx512bf16"))
    return {kBf16Variants, kBf16Variants + kNumBf16Variants};
  if (probe == Probe::kAmxPeak && has_isa("amx"))
    return {kAmxVariants, kAmxVariants + kNumAmxVariants};
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

/// Reads the blocks [begin, end) of a memory in this order.
uint64_t read_streams(const ReadVariant& read, const ReadOrder& order, int64_t ahead,
                      const std::byte* data, int64_t begin, int64_t end) {
  uint64_t any = 0;
  const int64_t a_run = order.run / kBlock, count = end - begin;
  const int64_t longest = (count + order.streams - 1) / order.streams;
  for (int64_t at = 0; at < longest; at += a_run) {
    for (int s = 0; s < order.streams; ++s) {
      const int64_t first = begin + count * s / order.streams + at;
      const int64_t last = std::min(first + a_run, begin + count * (s + 1) / order.streams);
      if (first < last) any |= read.run(data + first * kBlock, (last - first) * kBlock, ahead);
    }
  }
  return any;
}

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
/// of a register: a clock each on every x86-64 processor. 0 elsewhere. It takes a quarter of a
/// millisecond: so long some processors keep the lower clock that wide vectors have.
double clock_rate() {
#ifdef SG_BENCH_X86
  constexpr int64_t kRounds = 60'000;
  constexpr int kOperations = 16;
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
  return kRounds * kOperations / (now() - start);
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
    const auto add_read = [&](const ReadVariant& read, const ReadOrder& order, int64_t ahead) {
      std::string name = read.name;
      if (ahead > 0) name += fmt::format(" {} KiB ahead", ahead / 1024);
      if (order.streams > 1)
        name += fmt::format(", {} streams in runs of {} KiB", order.streams, order.run / 1024);
      variants.push_back(
          {std::move(name), all_bytes, [this, &read, order, ahead, bytes](int thread, int threads) {
             const int64_t blocks = bytes / kBlock;
             keep(read_streams(read, order, ahead, memory_.data(), blocks * thread / threads,
                               blocks * (thread + 1) / threads));
           }});
    };
    for (const ReadVariant& read : std::span(unit.reads, static_cast<size_t>(unit.num_reads))) {
      for (const ReadOrder& order : kReadOrders) {
        if (!read.prefetches) add_read(read, order, 0);
        for (const int64_t ahead : kAheads)
          if (read.prefetches) add_read(read, order, ahead);
      }
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

void Probes::keep_finalists(int threads, std::vector<Variant>* variants) {
  std::vector<std::pair<double, size_t>> tried;  // a figure, and whose
  for (size_t i = 0; i < variants->size(); ++i) tried.emplace_back(run((*variants)[i], threads), i);
  std::sort(tried.rbegin(), tried.rend());
  std::vector<Variant> best;
  for (size_t i = 0; i < kFinalists; ++i) best.push_back(std::move((*variants)[tried[i].second]));
  *variants = std::move(best);
}

ProbeChoice Probes::choose(Probe probe, int threads) {
  ProbeChoice choice;
  std::vector<Variant> variants = variants_of(probe);
  if (variants.size() > kFinalists) keep_finalists(threads, &variants);
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

double Probes::per_clock(int threads, Probe probe) {
  const auto variant = chosen_.find({threads, probe});
  if (variant == chosen_.end()) return 0;
  const std::string& name = variant->second.name;
  const double lanes = name.starts_with("zmm") ? 16 : name.starts_with("ymm") ? 8 : 0;
  const double flop = (probe == Probe::kBf16Peak ? 4 : 2) * lanes;  // of one operation
  // One after the other, so that both have the same clock; most tries are not disturbed.
  std::vector<double> tries;
  for (int i = 0; i < kClockTries; ++i) {
    const double figure = run(variant->second, 1);
    double clock = 0;
    time_team(1, [&](int) { clock = clock_rate(); });
    if (clock == 0 || lanes == 0) return 0;
    tries.push_back(figure / flop / clock);
  }
  return median(std::move(tries));
}

void Probes::settle(int threads) {
  facts(threads);
  ProbeFacts& facts = facts_.at(threads);
  for (const Probe probe : {Probe::kFmaPeak, Probe::kBf16Peak}) {
    ProbeChoice& choice = facts.choices[static_cast<size_t>(probe)];
    if (choice.absent.empty() && !unrolls_agree(choice)) choice = choose(probe, threads);
  }
  if (!is_whole(facts.fma_per_clock)) facts.fma_per_clock = per_clock(threads, Probe::kFmaPeak);
  if (!is_whole(2 * facts.dot_per_clock))
    facts.dot_per_clock = per_clock(threads, Probe::kBf16Peak);
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
  // Calls rotate over as much as cold_memory() says.
  const ColdMemory& cold = cold_memory();
  const double read = std::min(cold.bytes, static_cast<double>(memory_.size()));
  facts.cold_share = cold.wanted > read ? read / cold.wanted : 1;
  for (const Probe probe : kAllProbes)
    facts.choices[static_cast<size_t>(probe)] = choose(probe, threads);
  facts.fma_per_clock = per_clock(threads, Probe::kFmaPeak);
  facts.dot_per_clock = per_clock(threads, Probe::kBf16Peak);
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
