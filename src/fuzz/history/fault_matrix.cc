#include "fuzz/history/fault_matrix.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>

#include "backends/fill/rows.h"
#include "faults/buffers.h"
#include "fuzz/fuzz.h"

namespace shadowgraph {
namespace {

using Clock = std::chrono::steady_clock;
/// What a history had, in words: "mode decode", "graph of decode", "buffer page_table", "kernel
/// store_kv", "metadata of parts".
using Traits = std::set<std::string>;

// Histories in which a fault acted, before its budget may end; it gets so many budgets until then.
constexpr uint64_t kEnoughActing = 20;
constexpr double kMostBudgets = 12;
constexpr size_t kKept = 100;      // histories of a fault whose traits are kept
constexpr size_t kMostTraits = 3;  // that a reason names
constexpr std::string_view kEncoder = "encoder";

bool is_of_step(std::string_view trait) {
  constexpr std::string_view kKinds[] = {"mode ", "graph ", "buffer ", "kernel ", "metadata "};
  return std::ranges::any_of(kKinds,
                             [&](std::string_view kind) { return trait.starts_with(kind); });
}

/// How much a trait says of why a fault does not act: an encoder says more than the buffers for it,
/// and what a step has more than what its history has.
int rank_of(std::string_view trait) { return trait == kEncoder ? 2 : is_of_step(trait) ? 1 : 0; }

/// Without the number of a layer or a wrapper.
std::string stem_of(std::string_view name) {
  return std::string(name.substr(0, name.find_last_not_of("0123456789") + 1));
}

/// Notes what steps have, and which of them a fault changed; changes nothing.
class TraitTap final : public Tap {
 public:
  /// acting: gets the traits of the first step in which the fault acted.
  TraitTap(const Tap& fault, const Traits& of_history, Traits* all, Traits* acting)
      : fault_(fault), of_history_(of_history), all_(*all), acting_(*acting) {}

  void batch(ForwardBatch& batch) override {
    note("mode " + std::string(name_of(batch.mode)));
    keep();
  }
  void bound(Meta& meta, bool capturing) override {
    if (capturing) note("graph of " + std::string(name_of(meta.limits.mode)));
    note(meta);
  }
  Status filled(const ForwardBatch&, Meta& meta) override {
    note(meta);
    return {};
  }
  void launches(std::vector<TappedLaunch>& all, const Meta&, bool) override {
    for (const TappedLaunch& one : all) note("kernel " + std::string(one.launch.kernel->name));
    keep();
  }
  void ran(const Meta&) override {
    keep();
    over_ = !acting_.empty();
    step_.clear();
  }

 private:
  void note(const std::string& trait) {
    step_.insert(trait);
    all_.insert(trait);
  }
  void note(const Meta& meta) {
    note("mode " + std::string(name_of(meta.limits.mode)));
    for_metas(meta, [&](const Meta& m) {
      if (!m.children.empty()) note("metadata of parts");
      for (const Buffer& b : m.buffers)
        if (b.data != nullptr) note("buffer " + stem_of(own_name(b)));
    });
    keep();
  }
  /// The step may end before its launches run.
  void keep() {
    if (over_ || fault_.acted() == 0) return;
    acting_ = step_;
    acting_.insert(of_history_.begin(), of_history_.end());
  }

  const Tap& fault_;
  const Traits& of_history_;
  Traits& all_;
  Traits& acting_;
  Traits step_;
  bool over_ = false;
};

/// What a history's models and pools are: "window pool" of "swa_pool window_left 3".
Traits traits_of(const History& h) {
  Traits traits;
  const std::string text = h.to_string();
  for (size_t at = text.find(' '); at != std::string::npos;) {
    const size_t end = text.find(' ', at + 1);
    const std::string word = text.substr(at + 1, end - at - 1);
    if (word.find_first_not_of("0123456789") != std::string::npos) traits.insert(word);
    at = end;
  }
  traits.insert("engine " + std::string(h.backend->info().engine->name));
  for (const LayerKind& kind : h.model.layers) {
    if (has_window(kind)) traits.insert("window");
    if (kind.mla) traits.insert("MLA");
    if (kind.local) traits.insert("local layers");
    if (kind.params.logits_soft_cap > 0) traits.insert("soft cap");
  }
  if (is_fp8(h.runner.kv_dtype)) traits.insert("fp8");
  if (h.model.max_encoder_len > 0) traits.emplace(kEncoder);
  if (h.model.page_size > 1) traits.insert("page_size > 1");
  if (h.model.topk > 1) traits.insert("topk > 1");
  if (h.backend->info().whole_draft) traits.insert("whole drafts");
  return traits;
}

/// What has been seen of all pairs.
struct Seen {
  std::map<const Backend*, Traits> of_backends;
  std::map<std::string, int64_t> histories;               // that have a trait
  std::map<const Fault*, std::vector<Traits>> of_faults;  // where they acted
};

class Pair {
 public:
  Pair(const Fault& fault, const Backend& backend, const MatrixOptions& options)
      : options_(options), planted_({&fault}) {
    pair_.fault = &fault, pair_.backend = &backend;
    histories_.backends = {&backend};
    histories_.tap = planted_.tap();
  }

  /// alike: traits of histories in which the fault acted elsewhere. The pair has not acted in its
  /// first histories, and goes on with those that have all traits of one of them.
  MatrixPair run(const std::atomic<bool>& stop, const std::vector<Traits>& alike = {}) {
    const Clock::time_point start = Clock::now();
    const auto spent = [&] {
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      return seconds >= options_.seconds * (pair_.acted >= kEnoughActing ? 1 : kMostBudgets);
    };
    const bool again = !alike.empty();
    if (again) pair_.cases = options_.cases;
    for (uint64_t i = pair_.cases; pair_.law.empty() && !stop; ++i) {
      if (i >= options_.cases && ((pair_.acted == 0 && !again) || spent())) break;
      run_history(i, alike);
    }
    if (stop) pair_.cases = 0;  // it says nothing
    pair_.verdict = plant_verdict(!pair_.law.empty(), pair_.acted > 0, !changed_.empty());
    return std::move(pair_);
  }
  std::map<std::string, int64_t> traits;  // in how many histories
  std::vector<Traits> acting;             // of those in which it acted

 private:
  void run_history(uint64_t number, const std::vector<Traits>& alike) {
    Choices choices = history_choices(options_.seed, number, histories_.backends);
    const History h = generate_history(choices, histories_);
    const Traits of_history = traits_of(h);
    const auto has = [&](const Traits& all) { return std::ranges::includes(of_history, all); };
    if (!alike.empty() && std::ranges::none_of(alike, has)) return;
    Traits mine = of_history, changed_step;
    const HistoryResult result = shadowgraph::run_history(h, choices, [&] {
      std::vector<std::unique_ptr<Tap>> taps;
      const Tap& fault = *taps.emplace_back(histories_.tap());
      taps.push_back(std::make_unique<TraitTap>(fault, of_history, &mine, &changed_step));
      return std::make_unique<Taps>(std::move(taps));
    });
    ++pair_.cases;
    for (const std::string& trait : mine) ++traits[trait];
    const auto found = std::as_const(result.findings).findings();
    if (!found.empty()) pair_.law = found[0].id;
    if (result.acted == 0) return;
    ++pair_.acted;
    if (acting.size() < kKept)
      acting.push_back(changed_step.empty() ? std::move(mine) : std::move(changed_step));
    if (!found.empty() || changed_.empty()) pair_.choices = choices.made();
    if (found.empty() && changed_.empty()) changed_ = changed_by_plant(choices.made(), histories_);
    pair_.why = changed_.empty() ? "nothing that anything reads is changed" : changed_;
  }

  const MatrixOptions& options_;
  const Planted planted_;
  HistoryOptions histories_;
  MatrixPair pair_;
  std::string changed_;
};

/// Histories in which a pair's fault acted whose traits its backend has, too, each by another
/// history: what they are, without what their steps have.
std::vector<Traits> alike(const Seen& seen, const MatrixPair& pair) {
  const auto of_fault = seen.of_faults.find(pair.fault);
  if (of_fault == seen.of_faults.end()) return {};
  std::set<Traits> all;
  for (const Traits& traits : of_fault->second) {
    if (!std::ranges::includes(seen.of_backends.at(pair.backend), traits)) continue;
    Traits of_history = traits;
    std::erase_if(of_history, is_of_step);
    all.insert(std::move(of_history));
  }
  return {all.begin(), all.end()};
}

/// Why a fault never acts on a backend that has these traits: in every history in which it acted
/// there is one of a few that the backend has not.
std::string reason_of(const Seen& seen, const MatrixPair& pair) {
  const auto of_fault = seen.of_faults.find(pair.fault);
  if (of_fault == seen.of_faults.end() || of_fault->second.empty())
    return "it acted on none of these backends";
  const Traits& of_backend = seen.of_backends.at(pair.backend);
  std::vector<Traits> missing;  // of each of the histories
  for (const Traits& traits : of_fault->second) {
    Traits& rest = missing.emplace_back();
    std::ranges::set_difference(traits, of_backend, std::inserter(rest, rest.end()));
    if (rest.empty()) return "not together what it needs";
  }
  std::string why;
  for (size_t named = 0; !missing.empty(); ++named) {
    if (named == kMostTraits) return why + " ...";
    std::map<std::string, size_t> counts;
    for (const Traits& rest : missing)
      for (const std::string& trait : rest) ++counts[trait];
    // Among equals what says most, and what the fewest histories have.
    const auto most = std::ranges::max_element(counts, {}, [&](const auto& trait_count) {
      const auto& [trait, count] = trait_count;
      return std::tuple(count, rank_of(trait), -seen.histories.at(trait));
    });
    why += (why.empty() ? "no " : ", ") + most->first;
    std::erase_if(missing, [&](const Traits& rest) { return rest.contains(most->first); });
  }
  return why;
}

}  // namespace

std::vector<MatrixPair> run_fault_matrix(
    std::span<const Fault* const> faults, std::span<const Backend* const> backends,
    const MatrixOptions& options, const std::function<void(size_t done, size_t of)>& progress,
    const std::atomic<bool>& stop) {
  std::vector<MatrixPair> pairs(faults.size() * backends.size());
  std::vector<size_t> all(pairs.size()), again;
  std::iota(all.begin(), all.end(), size_t{0});
  std::vector<std::vector<Traits>> rare(pairs.size());  // of those that run again
  Seen seen;
  std::mutex mutex;
  size_t done = 0;
  const auto run = [&](size_t i) {
    Pair pair(*faults[i / backends.size()], *backends[i % backends.size()], options);
    MatrixPair result = pair.run(stop, rare[i]);
    const std::lock_guard lock(mutex);
    for (const auto& [trait, count] : pair.traits) {
      seen.of_backends[result.backend].insert(trait);
      seen.histories[trait] += count;
    }
    std::ranges::move(pair.acting, std::back_inserter(seen.of_faults[result.fault]));
    pairs[i] = std::move(result);
    progress(++done, all.size() + again.size());
  };
  const auto run_all = [&](const std::vector<size_t>& numbers) {
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      for (size_t n = next++; n < numbers.size(); n = next++) run(numbers[n]);
    };
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    const int threads = options.threads > 0 ? options.threads : std::max(1, cores);
    std::vector<std::thread> workers;
    for (int i = 1; i < threads; ++i) workers.emplace_back(work);
    work();
    for (std::thread& worker : workers) worker.join();
  };
  run_all(all);
  for (const size_t i : all) {
    if (stop || pairs[i].verdict != PlantVerdict::kNeverActed) continue;
    rare[i] = alike(seen, pairs[i]);
    if (!rare[i].empty()) again.push_back(i);
  }
  run_all(again);
  for (MatrixPair& pair : pairs) {
    if (pair.cases == 0) continue;
    if (pair.verdict == PlantVerdict::kNeverActed) pair.why = reason_of(seen, pair);
    if (pair.verdict == PlantVerdict::kFound) pair.why.clear();
  }
  return pairs;
}

}  // namespace shadowgraph
