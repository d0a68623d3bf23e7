#include "faults/faults.h"

#include <algorithm>
#include <ranges>

#include "faults/addresses.h"
#include "faults/buffers.h"
#include "faults/dual_chunks.h"
#include "faults/empties.h"
#include "faults/extents.h"
#include "faults/graphs.h"
#include "faults/heads_and_rows.h"
#include "faults/kernel_masks.h"
#include "faults/latents.h"
#include "faults/masks.h"
#include "faults/merges.h"
#include "faults/orders.h"
#include "faults/paddings.h"
#include "faults/parameters.h"
#include "faults/plans.h"
#include "faults/pools.h"
#include "faults/races.h"
#include "faults/replays.h"
#include "faults/rooms.h"
#include "faults/schedules.h"
#include "faults/slots.h"
#include "faults/sparse_layers.h"
#include "faults/states.h"
#include "faults/tiles.h"

namespace shadowgraph {
namespace {

template <class T>
std::unique_ptr<Tap> make() {
  return std::make_unique<T>();
}

constexpr Fault kFaults[] = {
#define SG_FAULT(id, group, type, title, refs, mistakes) \
  {#id, #group, title, refs, make<type>, {}, mistakes},
#define SG_UNPLANTED(id, group, title, refs, why) {#id, #group, title, refs, nullptr, why, {}},
#include "faults/faults.inc"
#undef SG_UNPLANTED
#undef SG_FAULT
};

}  // namespace

std::span<const Fault> all_faults() { return kFaults; }

const Fault* find_fault(std::string_view id) {
  const auto it = std::ranges::find_if(kFaults, [&](const Fault& f) { return f.id == id; });
  return it == std::end(kFaults) ? nullptr : it;
}

bool Fault::is_memory_safe() const {
  constexpr std::string_view kOthers[] = {"OOBR", "OOBW", "INTOVF", "RACE"};
  return std::ranges::find(kOthers, group) == std::end(kOthers);
}

bool Fault::is_seen_as(std::string_view mistake) const {
  for (size_t at = 0; at < mistakes.size();) {
    const size_t end = std::min(mistakes.find(' ', at), mistakes.size());
    if (mistakes.substr(at, end - at) == mistake) return true;
    at = end + 1;
  }
  return false;
}

Taps::~Taps() {
  for (size_t i = 0; counts_ != nullptr && i < taps_.size(); ++i)
    (*counts_)[i] += taps_[i]->acted();
}

template <class Fn>
void Taps::each(Fn fn) {
  for (const auto& tap : taps_) {
    try {
      fn(*tap);
    } catch (PlantError& e) {
      refused_.add(std::move(e.finding));
    }
  }
}

void Taps::runtime(RuntimeConfig& config) {
  each([&](Tap& tap) { tap.runtime(config); });
}
void Taps::step(Step& step, const PoolState& pools) {
  each([&](Tap& tap) { tap.step(step, pools); });
}
void Taps::batch(ForwardBatch& batch) {
  each([&](Tap& tap) { tap.batch(batch); });
}
void Taps::limits(Limits& limits) {
  each([&](Tap& tap) { tap.limits(limits); });
}
void Taps::bound(Meta& meta, bool capturing) {
  each([&](Tap& tap) { tap.bound(meta, capturing); });
}
Status Taps::filled(const ForwardBatch& batch, Meta& meta) {
  Status status;
  each([&](Tap& tap) { status.add(tap.filled(batch, meta)); });
  return status;
}
void Taps::baked(Meta& meta, bool capturing) {
  each([&](Tap& tap) { tap.baked(meta, capturing); });
}
void Taps::launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) {
  each([&](Tap& tap) { tap.launches(all, meta, capturing); });
}
void Taps::ran(const Meta& meta) {
  each([&](Tap& tap) { tap.ran(meta); });
}

const Backend& Taps::backend(const Backend& clean) {
  const Backend* backend = &clean;
  for (const auto& tap : taps_) backend = &tap->backend(*backend);
  return *backend;
}

std::unique_ptr<SimDevice> Taps::device(const SimOptions& options) {
  std::unique_ptr<SimDevice> device = Tap::device(options);
  for (const auto& tap : taps_) device = tap->device(options);
  return device;
}

SchedulerParts Taps::parts(const RuntimeConfig& config) {
  SchedulerParts parts(config);
  for (const auto& tap : taps_) parts = tap->parts(config);
  return parts;
}

int64_t Taps::acted() const {
  int64_t acted = 0;
  for (const auto& tap : taps_) acted += tap->acted();
  return acted;
}

Planted::Planted(std::vector<const Fault*> faults)
    : faults_(std::move(faults)), counts_(std::make_shared<Taps::Counts>(faults_.size())) {}

MakeTap Planted::tap() const {
  if (faults_.empty()) return {};
  return [faults = faults_, counts = counts_] {
    std::vector<std::unique_ptr<Tap>> taps;
    for (const Fault* fault : faults) taps.push_back(fault->tap());
    return std::make_unique<Taps>(std::move(taps), counts);
  };
}

}  // namespace shadowgraph
