#include "faults/faults.h"

#include <algorithm>
#include <charconv>
#include <ranges>
#include <tuple>

#include "faults/buffers.h"

namespace shadowgraph {
namespace {

/// Where it stands in the catalogue.
std::tuple<size_t, int, std::string_view> place_of(const Fault& fault) {
  constexpr std::string_view kFamilies[] = {"K", "DC", "M", "DS", "DV", "L"};
  const size_t digits = fault.id.find_first_of("0123456789");
  int number = 0;
  const char* end = fault.id.data() + fault.id.size();
  const char* letter = std::from_chars(fault.id.data() + digits, end, number).ptr;
  const auto family = std::ranges::find(kFamilies, fault.id.substr(0, digits));
  return {static_cast<size_t>(family - kFamilies), number, std::string_view(letter, end)};
}

}  // namespace

std::span<const Fault> all_faults() {
  static const std::vector<Fault> kFaults = [] {
    std::vector<Fault> all;
    for (const std::span<const Fault> theme : {
#define SG_THEME(name) themes::name(),
#include "faults/themes.inc"
#undef SG_THEME
         })
      all.insert(all.end(), theme.begin(), theme.end());
    std::ranges::sort(all, {}, place_of);
    return all;
  }();
  return kFaults;
}

namespace {

constexpr std::string_view kVerdictNames[] = {"found", "missed", "inert", "never acted"};

}  // namespace

std::string_view name_of(PlantVerdict verdict) {
  return kVerdictNames[static_cast<size_t>(verdict)];
}

std::optional<PlantVerdict> plant_verdict_of(std::string_view name) {
  const auto it = std::ranges::find(kVerdictNames, name);
  if (it == std::end(kVerdictNames)) return std::nullopt;
  return static_cast<PlantVerdict>(it - std::begin(kVerdictNames));
}

const Fault* find_fault(std::string_view id) {
  const auto all = all_faults();
  const auto it = std::ranges::find(all, id, &Fault::id);
  return it == all.end() ? nullptr : &*it;
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
void Taps::metadata_key(GraphKey& key, bool capturing) {
  each([&](Tap& tap) { tap.metadata_key(key, capturing); });
}
Status Taps::filled(const ForwardBatch& batch, Meta& meta) {
  Status status;
  each([&](Tap& tap) { status.add(tap.filled(batch, meta)); });
  return status;
}
void Taps::baked(Meta& meta, bool capturing) {
  each([&](Tap& tap) { tap.baked(meta, capturing); });
}
bool Taps::waits(StreamWait wait) {
  bool all = true;
  each([&](Tap& tap) { all &= tap.waits(wait); });
  return all;
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
  std::unique_ptr<SimDevice> device;
  for (const auto& tap : taps_) {
    if (auto substitute = tap->device(options)) device = std::move(substitute);
  }
  return device;
}

void Taps::parts(const RuntimeConfig& config, SchedulerParts& parts) {
  each([&](Tap& tap) { tap.parts(config, parts); });
}

int64_t Taps::acted() const {
  int64_t acted = 0;
  for (const auto& tap : taps_) acted += tap->acted();
  return acted;
}

Planted::Planted(std::vector<const Fault*> faults)
    : faults_(std::move(faults)), counts_(std::make_shared<Taps::Counts>(faults_.size())) {}

std::vector<std::string> Planted::refs() const {
  std::vector<std::string> all;
  for (const Fault* fault : faults_) {
    all.emplace_back(fault->id);
    for (std::string_view refs = fault->refs; !refs.empty();) {
      const size_t end = std::min(refs.find(' '), refs.size());
      all.emplace_back(refs.substr(0, end));
      refs.remove_prefix(std::min(end + 1, refs.size()));
    }
  }
  return all;
}

MakeTap Planted::tap() const {
  if (faults_.empty()) return {};
  return [faults = faults_, counts = counts_] {
    std::vector<std::unique_ptr<Tap>> taps;
    for (const Fault* fault : faults) taps.push_back(fault->tap());
    return std::make_unique<Taps>(std::move(taps), counts);
  };
}

}  // namespace shadowgraph
