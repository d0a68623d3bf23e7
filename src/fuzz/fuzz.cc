#include "fuzz/fuzz.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "fuzz/call/generate.h"
#include "fuzz/file/call_file.h"

namespace shadowgraph {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t median_keys(const AttentionCase& x) {
  std::vector<int64_t> keys;
  for (const RequestExtent& r : x.requests) keys.push_back(r.kv_len);
  std::sort(keys.begin(), keys.end());
  return keys[keys.size() / 2];
}

/// What one worker found; joined at the end.
struct Tally {
  uint64_t cases = 0, skipped = 0, unlisted = 0;
  std::map<std::string, size_t> listed;  // failing cases, by law
  FuzzHistograms histograms;
  std::map<std::string, int64_t> coverage, parameters;
  LawCounts laws;
  FeatureCounts features;
  PairCounts pairs;
  std::vector<std::pair<uint64_t, Finding>> findings;
  std::optional<FirstFailure> first;
  uint64_t acted = 0;
  std::optional<Unnoticed> unnoticed;
  std::map<uint64_t, RunRecord> runs;
  // By number: of histories, of calls
  std::map<uint64_t, std::pair<std::string, std::vector<uint32_t>>> failures, call_failures;
};

std::vector<std::string> laws_of(std::span<const Finding> findings) {
  std::vector<std::string> laws;
  for (const Finding& f : findings) {
    if (std::ranges::find(laws, f.id) == laws.end()) laws.push_back(f.id);
  }
  return laws;
}

void count(const Case& x, const Choices& choices, Tally& tally) {
  ++tally.cases;
  count_pairs(x, choices.levels(), &tally.pairs);
  ++tally.coverage[coverage_key(x)];
  count_features(x, &tally.features);
  const auto* attention = x.as<AttentionCase>();
  if (attention == nullptr) return;  // has no keys
  ++tally.histograms.keys[median_keys(*attention)];
  ++tally.histograms.requests[std::ssize(attention->requests)];
  ++tally.histograms.head_dim[attention->head_dim_qk];
}

void add_all(std::map<int64_t, int64_t>& into, const std::map<int64_t, int64_t>& from) {
  for (const auto& [value, cases] : from) into[value] += cases;
}

class Workers {
 public:
  Workers(const FuzzOptions& options, const std::atomic<bool>& stop)
      : options_(options), stop_(stop), next_(options.shard.next(options.first)) {}

  void work(Tally& tally) {
    while (!done()) {
      const uint64_t number = next_.fetch_add(options_.shard.count);
      if (options_.cases != 0 && number - options_.first >= options_.cases) return;
      const bool history =
          !options_.histories.backends.empty() && (!options_.kernels || number % 2 == 1);
      if (options_.starts) options_.starts(number);
      findings_ += history ? run_one_history(number, tally) : run_kernels(number, tally);
      cases_ += 1;
    }
  }

  /// Findings are those of the smallest case that breaks the same law.
  size_t run_kernels(uint64_t number, Tally& tally) {
    Choices choices = case_choices(options_.seed, place(number));
    const Case x = generate(choices);
    if (options_.run.device != nullptr && !has_launch(x)) {
      ++tally.skipped;
      return 0;
    }
    const Status status = [&] {
      const CountsJudgements counts(&tally.laws);
      return check_case(x, options_.run);
    }();
    count(x, choices, tally);
    if (status.ok()) return 0;
    const std::string law = status.findings()[0].id;
    if (!is_listed(law, tally)) return 1;
    CaseFailure small = shrink_case(choices.made(), options_.run, law, shrink_budget());
    tally.call_failures[number] = {law, std::move(small.choices)};
    list(number, law, std::move(small.findings), tally);
    return 1;
  }

  /// Findings are those of the smallest history that fails in the same way.
  size_t run_one_history(uint64_t number, Tally& tally) {
    Choices choices = history_choices(options_.seed, place(number), options_.histories.backends);
    const History h = generate_history(choices, options_.histories);
    std::vector<Level> levels = choices.levels();
    const HistoryResult result = [&] {
      const CountsJudgements counts(&tally.laws);
      const MakeTap& tap = options_.counted_tap ? options_.counted_tap : options_.histories.tap;
      if (!options_.digest) return run_history(h, choices, tap);
      RunRecord& run = tally.runs[number];
      run.what = name_of_case(number);
      return record_history(h, choices, tap, &run);
    }();
    const auto found = std::as_const(result.findings).findings();
    ++(result.judged > 0 || !found.empty() ? tally.cases : tally.skipped);
    for (const auto& [name, steps] : result.coverage) tally.coverage[name] += steps;
    if (result.judged > 0) {
      count_features(h, &tally.features);
      levels.insert(levels.end(), result.ran.begin(), result.ran.end());
      count_pairs(*h.backend, levels, &tally.pairs);
    }
    for (const auto& [name, steps] : result.counts.parameters)
      tally.parameters[std::string(h.backend->info().name) + " " + name] += steps;
    tally.acted += result.acted > 0;
    if (found.empty() && result.acted > 0 && !tally.unnoticed)
      compare_with_clean(number, choices, tally);
    if (found.empty()) return 0;
    if (!tally.first)
      tally.first = {seconds_since(start_), number, cases_ + 1, laws_of(found), choices.made()};
    const std::string law = found[0].id;
    if (!is_listed(law, tally)) return 1;
    HistoryOptions histories = options_.histories;
    histories.shrink = shrink_budget();
    HistoryFailure small = shrink_failure(choices.made(), histories, law);
    tally.failures[number] = {law, std::move(small.choices)};
    list(number, law, std::move(small.findings), tally);
    return 1;
  }

  /// Counts a failing case: is it one of the first of its law?
  bool is_listed(const std::string& law, Tally& tally) const {
    const bool listed = options_.most_of_a_law == 0 || tally.listed[law] < options_.most_of_a_law;
    ++(listed ? tally.listed[law] : tally.unlisted);
    return listed;
  }

  /// Lists what a case fails by, its law first: all of it is one finding of the most.
  void list(uint64_t number, const std::string& law, Status status, Tally& tally) const {
    const std::span<Finding> found = status.findings();
    std::stable_partition(found.begin(), found.end(),
                          [&](const Finding& f) { return f.id == law; });
    for (Finding& f : found) {
      f.case_id.insert(0, name_of_case(number) + ": ");
      tally.findings.emplace_back(number, std::move(f));
    }
  }

  /// One history that changed something is enough to know.
  void compare_with_clean(uint64_t number, const Choices& choices, Tally& tally) {
    std::string what = changed_by_plant(choices.made(), options_.histories);
    if (!what.empty()) tally.unnoticed = {number, std::move(what), choices.made()};
  }

  std::string name_of_case(uint64_t number) const {
    return "seed " + std::to_string(options_.seed) + " case " + std::to_string(number);
  }

  FuzzProgress progress() const { return {cases_, findings_, seconds_since(start_)}; }

 private:
  /// Time that shrinking one finding has.
  ShrinkBudget shrink_budget() const {
    return options_.histories.shrink.in_run_of(options_.seconds);
  }
  /// Calls and histories that take turns have rounds of their own.
  uint64_t place(uint64_t number) const {
    return options_.kernels && !options_.histories.backends.empty() ? number / 2 : number;
  }
  bool done() const {
    return stop_ || (options_.max_findings > 0 && findings_ >= options_.max_findings) ||
           (options_.seconds > 0 && seconds_since(start_) >= options_.seconds);
  }

  const FuzzOptions& options_;
  const std::atomic<bool>& stop_;
  const Clock::time_point start_ = Clock::now();
  std::atomic<uint64_t> next_, cases_{0}, findings_{0};
};

/// A thread for each tally.
void watch(Workers& runner, std::vector<Tally>& tallies,
           const std::function<void(const FuzzProgress&)>& progress) {
  std::atomic<size_t> running{tallies.size()};
  std::vector<std::thread> workers;
  for (Tally& tally : tallies) {
    workers.emplace_back([&] {
      runner.work(tally);
      --running;
    });
  }
  for (int tick = 0; running > 0; ++tick) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (progress && tick % 40 == 0) progress(runner.progress());
  }
  for (std::thread& worker : workers) worker.join();
}

FuzzResult join(const FuzzOptions& options, std::vector<Tally>& tallies) {
  FuzzResult result;
  result.features = all_features(options.histories.backends, options.kernels);
  result.pairs = all_pairs(options.histories.backends, options.kernels);
  std::vector<std::pair<uint64_t, Finding>> findings;
  std::map<uint64_t, std::pair<std::string, std::vector<uint32_t>>> failures, call_failures;
  std::map<uint64_t, RunRecord> runs;
  for (Tally& t : tallies) {
    runs.merge(t.runs);
    failures.merge(t.failures), call_failures.merge(t.call_failures);
    result.cases += t.cases, result.skipped += t.skipped, result.unlisted += t.unlisted;
    add_all(result.histograms.keys, t.histograms.keys);
    add_all(result.histograms.requests, t.histograms.requests);
    add_all(result.histograms.head_dim, t.histograms.head_dim);
    for (const auto& [name, cases] : t.coverage) result.coverage[name] += cases;
    for (const auto& [name, steps] : t.parameters) result.parameters[name] += steps;
    for (const auto& [name, cases] : t.features) result.features[name] += cases;
    add_pairs(t.pairs, &result.pairs);
    result.laws.add(t.laws);
    std::move(t.findings.begin(), t.findings.end(), std::back_inserter(findings));
    const bool sooner = t.first && (!result.first || t.first->seconds < result.first->seconds);
    if (sooner) result.first = std::move(t.first);
    result.acted += t.acted;
    const bool earlier =
        t.unnoticed && (!result.unnoticed || t.unnoticed->number < result.unnoticed->number);
    if (earlier) result.unnoticed = std::move(t.unnoticed);
  }
  std::stable_sort(findings.begin(), findings.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [number, finding] : findings) result.findings.add(std::move(finding));
  for (auto& [number, run] : runs) result.runs.push_back(std::move(run));
  for (auto& [number, failure] : failures) result.failures.push_back(std::move(failure));
  for (auto& [number, failure] : call_failures) result.call_failures.push_back(std::move(failure));
  return result;
}

}  // namespace

PlantVerdict verdict_of(const FuzzResult& result) {
  return plant_verdict(result.first.has_value(), result.acted > 0, result.unnoticed.has_value());
}

Case fuzz_case(uint64_t seed, uint64_t number) {
  Choices choices = case_choices(seed, number);
  return generate(choices);
}

std::string coverage_key(const Case& x) {
  const std::string text = x.to_string();
  const size_t kernel_end = text.find(' ');
  return text.substr(0, text.find(' ', kernel_end + 1)) + " eager";
}

FuzzResult run_fuzz(const FuzzOptions& options,
                    const std::function<void(const FuzzProgress&)>& progress,
                    const std::atomic<bool>& stop) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int threads = options.threads > 0 ? options.threads : std::max(1, cores);
  Workers runner(options, stop);
  std::vector<Tally> tallies(static_cast<size_t>(threads));
  if (threads == 1 && !progress) {
    runner.work(tallies[0]);
  } else {
    watch(runner, tallies, progress);
  }
  if (progress) progress(runner.progress());
  const double seconds = runner.progress().seconds;
  FuzzResult result = join(options, tallies);
  result.seconds = seconds;
  return result;
}

}  // namespace shadowgraph
