#include "fuzz/call/call_pairs.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "attn/cases/case_names.h"
#include "fuzz/call/call_sizes.h"
#include "fuzz/call/generate.h"
#include "fuzz/call/recurrent_generate.h"

namespace shadowgraph {
namespace {

struct CallKind {
  CaseKernel kernel;
  int32_t call;   // of a recurrent or sparse case
  size_t places;  // in a round
};
using enum CaseKernel;
constexpr CallKind kKinds[] = {
    {kDecodePaged, 0, 18}, {kPrefillPaged, 0, 18}, {kPrefillRagged, 0, 6}, {kMergeStates, 0, 6},
    {kLinear, 0, 9},       {kLinear, 1, 6},        {kLinear, 2, 3},        {kSparse, 0, 4},
    {kSparse, 1, 1},       {kSparse, 2, 1},        {kSparse, 3, 1},        {kSparse, 4, 1},
    {kSparse, 5, 3},       {kSparse, 6, 1},        {kSparse, 7, 1},        {kSparse, 8, 1},
    {kSparse, 9, 2},       {kSparse, 10, 1},       {kSparse, 11, 1}};
static_assert(std::size(kSparseCallNames) == 12 && std::size(kRecurrentCallNames) == 3);

std::vector<Level> levels_of(const CallKind& kind) {
  std::vector<Level> levels = {{kKernelFactor, static_cast<int64_t>(kind.kernel)}};
  if (kind.kernel == kLinear || kind.kernel == kSparse) levels.push_back({kCallFactor, kind.call});
  levels.push_back({kCallSizesFactor, static_cast<int64_t>(CallSizes::kSmall)});
  return levels;
}

}  // namespace

size_t num_call_kinds() { return std::size(kKinds); }

std::string name_of_call_kind(size_t kind) {
  const auto& [kernel, call, places] = kKinds[kind];
  std::string name(word(kCaseKernelNames, kernel));
  if (kernel == kLinear) name += " " + std::string(kRecurrentCallNames[call]);
  if (kernel == kSparse) name += " " + std::string(kSparseCallNames[call]);
  return name;
}

size_t call_kind_of(const Case& x) {
  int32_t call = 0;
  if (const auto* recurrent = x.as<RecurrentCase>()) call = static_cast<int32_t>(recurrent->call);
  if (const auto* sparse = x.as<SparseCase>()) call = static_cast<int32_t>(sparse->call);
  const auto* const at = std::ranges::find_if(
      kKinds, [&](const CallKind& kind) { return kind.kernel == x.kernel() && kind.call == call; });
  return static_cast<size_t>(at - std::begin(kKinds));
}

const Covering& covering_of_call(size_t kind) {
  struct Entry {
    std::once_flag once;
    std::unique_ptr<Covering> covering;
  };
  static Entry entries[std::size(kKinds)];
  std::call_once(entries[kind].once, [kind] {
    const auto draw = [](Choices& choices) {
      (void)generate(choices);
      return choices.levels();
    };
    const auto in_full = [](std::string_view) { return true; };  // a kernel has code for sizes
    entries[kind].covering = std::make_unique<Covering>(draw, levels_of(kKinds[kind]), in_full);
  });
  return *entries[kind].covering;
}

Choices case_choices(uint64_t seed, uint64_t number) {
  static const std::vector<size_t> kPlaces = [] {
    std::vector<size_t> places;
    for (size_t kind = 0; kind < std::size(kKinds); ++kind)
      places.insert(places.end(), kKinds[kind].places, kind);
    return places;
  }();
  const RoundPlace place = place_in_rounds(kPlaces, seed, number);
  const OtherLevels large = {.factor = kCallSizesFactor,
                             .levels = kLargeCallKinds,
                             .every = kLargeCallEvery,
                             .at = kLargeCallEvery - 1};
  return Choices(Rng::stream(seed, number),
                 covering_of_call(place.kind).wishes(seed, place.visit, large));
}

}  // namespace shadowgraph
