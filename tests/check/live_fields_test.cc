// Every element that a fill writes matters: where a replay leaves a buffer as it was, or a fill
// writes a wrong value at either end or in the middle of it, something notices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "backends/fill/buffer_rows.h"
#include "core/parallel.h"
#include "faults/buffers.h"
#include "fuzz/history/history.h"

namespace shadowgraph::live_fields_test {
namespace {

/// A buffer of a backend in a mode, eager or in a replay.
struct Cell {
  std::string backend, mode, buffer;
  bool replay = false;
  bool operator==(const Cell&) const = default;
  bool operator<(const Cell& o) const {
    return std::tie(backend, mode, buffer, replay) <
           std::tie(o.backend, o.mode, o.buffer, o.replay);
  }

  std::string to_string() const {
    return backend + ' ' + mode + ' ' + buffer + (replay ? " replay" : " eager");
  }
};

Cell cell_of(const Meta& m, const Buffer& b, const ForwardBatch& batch) {
  return {std::string(m.backend->info().name), std::string(name_of(m.limits.mode)),
          std::string(own_name(b)), m.limits.is_bucket() && batch.size() > 0};
}

/// fn(meta, buffer) for what this step's fill wrote of per-step buffers.
template <class Fn>
void for_filled(Meta& meta, const ForwardBatch& batch, Fn fn) {
  if (meta.limits.is_bucket() && batch.size() == 0) return;  // a capture
  for_metas(meta, [&](Meta& m) {
    for (const Buffer& b : m.buffers) {
      if (b.data == nullptr || b.lifetime != Lifetime::kPerStep) continue;
      if (!m.arena.filled(b).empty()) fn(m, b);
    }
  });
}

/// What a step's fill wrote, and which of it its launches are given.
struct Sees final : Tap {
  explicit Sees(std::map<Cell, bool>* cells) : cells_(*cells) {}
  Status filled(const ForwardBatch& batch, Meta& meta) override {
    now_.clear();
    for_filled(meta, batch, [&](const Meta& m, const Buffer& b) {
      const Cell cell = cell_of(m, b, batch);
      cells_.try_emplace(cell, false);
      now_.emplace_back(cell, b);
    });
    return {};
  }
  void launches(std::vector<TappedLaunch>& all, const Meta& /*meta*/, bool /*capturing*/) override {
    for (const TappedLaunch& one : all) {
      const KernelArgs& args = one.launch.args;
      for (size_t i = 0; i < args.size() && args.kind(i) == ArgKind::kPointer; ++i)
        give(args.get<const std::byte*>(i));
    }
  }

 private:
  void give(const std::byte* p) {
    for (const auto& [cell, b] : now_)
      if (p >= b.data && p < b.data + b.bytes()) cells_[cell] = true;
  }

  std::map<Cell, bool>& cells_;
  std::vector<std::pair<Cell, Buffer>> now_;
};

/// A replay leaves the buffer as it was; or an element is one more than it should be, or far above
/// or below: what is a bound, or padding, may have many values.
enum class Slip : uint8_t { kStale, kFirst, kMiddle, kLast };
constexpr const char* kSlips[] = {"stale", "first", "middle", "last"};

struct Probe final : Tap {
  Probe(const Cell& cell, Slip slip, int32_t off) : cell_(cell), slip_(slip), off_(off) {}
  Status filled(const ForwardBatch& batch, Meta& meta) override {
    for_filled(meta, batch, [&](Meta& m, const Buffer& b) {
      if (cell_of(m, b, batch) != cell_) return;
      if (slip_ == Slip::kStale)
        keep(m, b);
      else
        change(m, b);
    });
    return {};
  }

 private:
  void keep(Meta& m, const Buffer& b) {
    const size_t size = size_of(b.dtype);
    for (const Elements& range : m.arena.filled(b)) {
      const size_t first = static_cast<size_t>(range.first) * size;
      if (std::memcmp(m.arena.staged(b) + first, b.data + first,
                      static_cast<size_t>(range.count) * size) == 0)
        continue;
      m.arena.discard(b);
      act();
      return;
    }
  }
  void change(Meta& m, const Buffer& b) {
    std::vector<int64_t> all;
    for (const Elements& range : m.arena.filled(b))
      for (int64_t i = range.first; i < range.first + range.count; ++i) all.push_back(i);
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    if (all.empty()) return;
    const size_t at = slip_ == Slip::kFirst  ? 0
                      : slip_ == Slip::kLast ? all.size() - 1
                                             : all.size() / 2;
    const Elements one{all[at], 1};
    if (b.dtype == DType::kU8)
      staged<uint8_t>(m, b, one)[0] ^= 1;
    else if (b.dtype == DType::kF32)
      staged<float>(m, b, one)[0] += static_cast<float>(off_);
    else if (b.dtype == DType::kI64)
      staged<int64_t>(m, b, one)[0] += off_;
    else
      staged<int32_t>(m, b, one)[0] += off_;
    act();
  }

  const Cell cell_;
  const Slip slip_;
  const int32_t off_;
};

struct Outcome {
  int64_t acted = 0;
  std::string law;  // that noticed
};

Choices choices_of(uint64_t number) { return Choices(Rng::stream(7, number)); }

Outcome play(const Backend* backend, uint64_t number, const MakeTap& tap, int64_t* acted) {
  Choices choices = choices_of(number);
  const History history = generate_history(choices, {&backend, 1});
  const HistoryResult result = run_history(history, choices, tap);
  Outcome outcome{*acted, ""};
  if (!result.findings.ok()) outcome.law = result.findings.findings()[0].id;
  return outcome;
}

/// Hands a tap's count out when the run ends.
struct Counted final : Tap {
  Counted(const Cell& cell, Slip slip, int32_t off, int64_t* acted)
      : probe_(cell, slip, off), acted_(*acted) {}
  ~Counted() override { acted_ += probe_.acted(); }
  Status filled(const ForwardBatch& batch, Meta& meta) override {
    return probe_.filled(batch, meta);
  }
  int64_t acted() const override { return probe_.acted(); }
  Probe probe_;
  int64_t& acted_;
};

using Place = std::pair<const Backend*, uint64_t>;  // a history of a backend
struct Filled {
  std::vector<Place> places;
  bool given = false;  // to a launch, somewhere
};

constexpr uint64_t kSeeds = 60;  // histories of each backend

std::map<Cell, Filled> all_filled() {
  std::vector<const Backend*> backends;
  for (const Backend* b : all_backends())
    if (!b->info().buffers.empty()) backends.push_back(b);
  std::map<Cell, Filled> all;
  std::mutex mutex;
  const auto count = static_cast<int64_t>(backends.size() * kSeeds);
  parallel_for(count, 0, [&](int64_t i, int) {
    const SerialScope serial;
    const Place place{backends[static_cast<size_t>(i) % backends.size()],
                      static_cast<uint64_t>(i) / backends.size()};
    std::map<Cell, bool> cells;
    int64_t acted = 0;
    (void)play(
        place.first, place.second, [&] { return std::make_unique<Sees>(&cells); }, &acted);
    const std::lock_guard lock(mutex);
    for (const auto& [cell, given] : cells) {
      all[cell].places.push_back(place);
      all[cell].given |= given;
    }
  });
  for (auto& [cell, filled] : all)
    std::ranges::sort(filled.places, {}, [](const Place& p) { return p.second; });
  return all;
}

/// The probe of one cell, over the histories that fill it, until something notices.
Outcome probe(const Cell& cell, Slip slip, const std::vector<Place>& places) {
  Outcome outcome;
  for (const int32_t off : {1, 1000003, -1000003}) {
    int64_t tries = 0;
    for (const auto& [backend, number] : places) {
      int64_t acted = 0;
      const Outcome one = play(
          backend, number, [&] { return std::make_unique<Counted>(cell, slip, off, &acted); },
          &acted);
      outcome.acted += acted;
      outcome.law = one.law;
      if (!one.law.empty()) return outcome;
      if (acted > 0 && ++tries == 8) break;
    }
    if (slip == Slip::kStale) break;
  }
  return outcome;
}

/// Probes one cell of so many; `dev test --full` says 1.
size_t sparsely() {
  const char* every = std::getenv("SHADOWGRAPH_LIVE_EVERY");
  return every != nullptr ? std::strtoull(every, nullptr, 10) : 31;
}

TEST(LiveFields, WhatAFillWritesMattersToSomebody) {
  const std::map<Cell, Filled> all = all_filled();
  std::vector<std::pair<Cell, Slip>> probes;
  size_t number = 0;
  for (const auto& [cell, filled] : all) {
    if (number++ % sparsely() != 0) continue;
    for (const Slip slip : {Slip::kStale, Slip::kFirst, Slip::kMiddle, Slip::kLast})
      if (slip != Slip::kStale || cell.replay) probes.emplace_back(cell, slip);
  }
  std::vector<Outcome> outcomes(probes.size());
  parallel_for(std::ssize(probes), 0, [&](int64_t i, int) {
    const SerialScope serial;
    const auto at = static_cast<size_t>(i);
    outcomes[at] = probe(probes[at].first, probes[at].second, all.at(probes[at].first).places);
  });
  std::map<std::string, std::string> silent;
  int64_t noticed = 0, never = 0;
  for (size_t i = 0; i < probes.size(); ++i) {
    noticed += !outcomes[i].law.empty(), never += outcomes[i].acted == 0;
    if (outcomes[i].acted > 0 && outcomes[i].law.empty())
      silent[probes[i].first.to_string()] +=
          std::string(" ") + kSlips[static_cast<size_t>(probes[i].second)];
  }
  std::cout << all.size() << " cells, " << probes.size() << " probes: " << noticed << " noticed, "
            << never << " never acted, " << silent.size() << " silent cells\n";
  for (const auto& [cell, slips] : silent) ADD_FAILURE() << cell << ':' << slips;
}

ForwardMode mode_of(const Cell& cell) {
  for (int m = 0; m < kNumForwardModes; ++m)
    if (const auto mode = static_cast<ForwardMode>(m); name_of(mode) == cell.mode) return mode;
  return {};
}

/// The row that says why no kernel reads a buffer in a mode; nullptr: none does.
const BufferInfo* dead_row(const Cell& cell, const BackendInfo& info, int buffer) {
  for (const BufferInfo& r : info.buffers)
    if (r.buffer == buffer && !is_scalar(r.role) && is_dead_in(r, mode_of(cell))) return &r;
  return nullptr;
}

/// Numbers of buffers by name, as one backend has them.
struct Numbers final : Tap {
  explicit Numbers(std::map<std::string, int>* numbers) : numbers_(*numbers) {}
  Status filled(const ForwardBatch& /*batch*/, Meta& meta) override {
    for_metas(meta, [&](const Meta& m) {
      for (size_t i = 0; i < m.buffers.size(); ++i)
        if (m.has(i))
          numbers_[std::string(m.backend->info().name) + ' ' + std::string(own_name(m[i]))] =
              static_cast<int>(i);
    });
    return {};
  }
  std::map<std::string, int>& numbers_;
};

TEST(LiveFields, ABufferIsGivenToALaunchOrItsRowSaysWhyNot) {
  std::map<Cell, Filled> all;  // by mode: eager or not
  // Modes of one kernel launch alike, and few histories need a buffer in each of them.
  const auto of_kernel = [](const Cell& cell) {
    const bool decode = std::ranges::find(kDecodeModes, mode_of(cell)) != kDecodeModes.end();
    return cell.backend + ' ' + cell.buffer + (decode ? " decode" : "");
  };
  std::set<std::string> given;
  std::map<std::string, int> numbers;
  for (auto& [cell, filled] : all_filled()) {
    Cell of_mode = cell;
    of_mode.replay = false;
    Filled& both = all[of_mode];
    both.given |= filled.given;
    if (filled.given) given.insert(of_kernel(cell));
    both.places.insert(both.places.end(), filled.places.begin(), filled.places.end());
  }
  std::map<std::string, std::string> dead;
  for (const auto& [cell, filled] : all) {
    const std::string name = cell.backend + ' ' + cell.buffer;
    int64_t acted = 0;
    if (!numbers.contains(name))
      (void)play(
          filled.places[0].first, filled.places[0].second,
          [&] { return std::make_unique<Numbers>(&numbers); }, &acted);
    const BufferInfo* row = dead_row(cell, find_backend(cell.backend)->info(), numbers.at(name));
    if (!given.contains(of_kernel(cell)) && row == nullptr)
      ADD_FAILURE() << cell.backend << ' ' << cell.mode << ' ' << cell.buffer << ": no launch";
    if (filled.given && row != nullptr)
      ADD_FAILURE() << cell.backend << ' ' << cell.mode << ' ' << cell.buffer << ": not dead";
    if (row != nullptr) dead[name] = row->dead;
  }
  std::cout << all.size() << " buffers of modes; dead, in some mode: " << dead.size() << '\n';
  for (const auto& [name, why] : dead) std::cout << "  " << name << ": " << why << '\n';
}

}  // namespace
}  // namespace shadowgraph::live_fields_test
