#include "fuzz/history/history_pairs.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>

#include "backends/fill/rows.h"

namespace shadowgraph {
namespace {

/// Can the scheduler make such a step? (runtime/scheduler_steps.cc)
bool may_step(const RuntimeConfig& r, ForwardMode mode) {
  const bool drafts = r.draft.num_steps > 0, denoises = r.dllm_block > 0;
  switch (mode) {
    case ForwardMode::kExtend:
    case ForwardMode::kSplitPrefill: return !r.prebuilt;
    case ForwardMode::kMixed: return !r.prebuilt && !drafts && !denoises && r.max_requests > 1;
    case ForwardMode::kDecode: return !drafts && !denoises;
    case ForwardMode::kDllmExtend: return denoises;
    case ForwardMode::kDraftDecode: return r.draft.num_steps > 1;
    case ForwardMode::kTargetVerify:
    case ForwardMode::kDraftExtend:
    case ForwardMode::kDraftExtendV2: return drafts;
    case ForwardMode::kIdle: return true;
    case ForwardMode::kPrebuilt: return false;  // no backend runs it
  }
  return false;
}

/// Histories in a round, by how many rows a covering has: layers with keys and values of their own
/// have a third more features than others.
size_t places_of(const BackendInfo& info) {
  return info.dense && info.heads && !info.dual_chunk && info.recurrent.empty() ? 4 : 3;
}

}  // namespace

Level run_level(ForwardMode mode, bool replay) {
  return {"runs", 2 * static_cast<int64_t>(mode) + (replay ? 1 : 0), [](int64_t value) {
            return std::string(name_of(static_cast<ForwardMode>(value / 2))) +
                   (value % 2 == 0 ? " eager" : " replay");
          }};
}

std::vector<Level> levels_of(const History& h, const Choices& choices) {
  std::vector<Level> levels = choices.levels();
  for (const ForwardMode mode : h.backend->info().modes) {
    if (!may_step(h.runtime, mode)) continue;
    if (h.backend->info().halves && mode == ForwardMode::kIdle) continue;  // nothing to halve
    levels.push_back(run_level(mode, false));
    if (is_captured(mode)) levels.push_back(run_level(mode, true));
  }
  return levels;
}

bool is_covered(const Backend& backend) {
  const std::span<const Backend* const> all = all_backends();
  return std::ranges::find(all, &backend) != all.end();
}

const Covering* covering_of(const Backend& backend) {
  struct Entry {
    std::once_flag once;
    std::unique_ptr<Covering> covering;
  };
  const std::span<const Backend* const> all = all_backends();
  static std::vector<Entry> entries(all.size());
  if (!is_covered(backend)) return nullptr;
  const auto at = std::ranges::find(all, &backend);
  Entry& entry = entries[static_cast<size_t>(at - all.begin())];
  std::call_once(entry.once, [&] {
    const auto draw = [&](Choices& choices) {
      return levels_of(generate_history(choices, {at, 1}), choices);
    };
    const auto in_full = [](std::string_view factor) { return factor == "page_size"; };
    entry.covering = std::make_unique<Covering>(
        draw, std::vector<Level>{{kBackendFactor}, {kSizesFactor}}, in_full);
  });
  return entry.covering.get();
}

Choices history_choices(uint64_t seed, uint64_t number, std::span<const Backend* const> backends) {
  std::vector<size_t> kinds;
  for (size_t b = 0; b < backends.size(); ++b)
    kinds.insert(kinds.end(), places_of(backends[b]->info()), b);
  const RoundPlace place = place_in_rounds(kinds, seed, number);
  const Covering* covering = covering_of(*backends[place.kind]);
  // Rows of a covering are small histories, which differ most for their time; the large sizes come
  // in turn, the first one soon.
  Wishes wishes =
      covering == nullptr
          ? Wishes{}
          : covering->wishes(seed, place.visit,
                             {.factor = kSizesFactor, .levels = 3, .every = kLargeEvery, .at = 1});
  wishes.levels.insert(wishes.levels.begin(), {kBackendFactor, static_cast<int64_t>(place.kind)});
  return Choices(Rng::stream(~seed, number), std::move(wishes));
}

}  // namespace shadowgraph
