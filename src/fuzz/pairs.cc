#include "fuzz/pairs.h"

namespace shadowgraph {
namespace {

constexpr std::string_view kHistories = "histories ", kCalls = "calls ";

std::string kind_of(const Backend& backend) {
  return std::string(kHistories) + std::string(backend.info().name);
}
std::string kind_of(size_t call_kind) { return std::string(kCalls) + name_of_call_kind(call_kind); }

void count(const std::string& kind, const Covering& covering, std::span<const Level> levels,
           PairCounts* counts) {
  PairSet& met = (*counts)[kind];
  met.resize(covering.pairs());
  covering.add(levels, &met);
}

}  // namespace

PairCounts all_pairs(std::span<const Backend* const> backends, bool kernels) {
  PairCounts counts;
  for (const Backend* b : backends)
    if (is_covered(*b)) counts[kind_of(*b)];
  for (size_t kind = 0; kernels && kind < num_call_kinds(); ++kind) counts[kind_of(kind)];
  return counts;
}

const Covering* covering_of_kind(std::string_view kind) {
  if (kind.starts_with(kHistories)) {
    const Backend* backend = find_backend(kind.substr(kHistories.size()));
    return backend == nullptr ? nullptr : covering_of(*backend);
  }
  for (size_t call = 0; call < num_call_kinds(); ++call)
    if (kind_of(call) == kind) return &covering_of_call(call);
  return nullptr;
}

void count_pairs(const Backend& backend, std::span<const Level> levels, PairCounts* counts) {
  if (const Covering* covering = covering_of(backend))
    count(kind_of(backend), *covering, levels, counts);
}

void count_pairs(const Case& x, std::span<const Level> levels, PairCounts* counts) {
  const size_t kind = call_kind_of(x);
  count(kind_of(kind), covering_of_call(kind), levels, counts);
}

void add_pairs(const PairCounts& from, PairCounts* to) {
  for (const auto& [kind, met] : from) {
    PairSet& all = (*to)[kind];
    all.resize(met.size());
    for (size_t i = 0; i < met.size(); ++i)
      if (met[i]) all[i] = true;
  }
}

}  // namespace shadowgraph
