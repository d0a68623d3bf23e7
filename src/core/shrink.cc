#include "core/shrink.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <unordered_set>

#include "core/fnv.h"

namespace shadowgraph {
namespace {

using Clock = std::chrono::steady_clock;

/// A made sequence may end in zeros, which are what a case makes of nothing.
void trim(ChoiceSequence* c) {
  while (!c->empty() && c->back() == 0) c->pop_back();
}

bool smaller(const ChoiceSequence& a, const ChoiceSequence& b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

uint64_t hash_of(const ChoiceSequence& c) {
  return fnv1a({reinterpret_cast<const char*>(c.data()), c.size() * sizeof(c[0])});
}

class Shrinker {
 public:
  Shrinker(ChoiceSequence choices, const Fails& fails, const ShrinkBudget& budget)
      : best_(std::move(choices)), fails_(fails), budget_(budget) {
    trim(&best_);
  }

  ShrinkResult run() {
    zero_first();
    for (bool better = true; better && !ended();) {
      better = drop_parts();
      for (size_t block = std::max<size_t>(best_.size() / 2, 1); block > 0; block /= 2) {
        better |= blocks(block, [](ChoiceSequence* c, size_t at, size_t n) {
          c->erase(c->begin() + static_cast<int64_t>(at),
                   c->begin() + static_cast<int64_t>(at + n));
        });
        better |= blocks(block, [](ChoiceSequence* c, size_t at, size_t n) {
          std::fill_n(c->begin() + static_cast<int64_t>(at), n, 0);
        });
      }
      better |= lower_each();
    }
    return {std::move(best_), tries_, std::move(why_)};
  }

 private:
  /// Says why, once.
  bool ended() {
    if (!why_.empty()) return true;
    const std::string before = ", not the smallest: shrinking ended after ";
    if (tries_ >= budget_.tries) {
      why_ = before + std::to_string(budget_.tries) + " tries";
    } else if (Clock::now() - start_ >= std::chrono::duration<double>(budget_.seconds)) {
      char seconds[32];
      std::snprintf(seconds, sizeof(seconds), "%g s", budget_.seconds);
      why_ = before + seconds;
    }
    return !why_.empty();
  }

  /// Takes the candidate if it fails too. None runs twice: passes meet the same ones again.
  bool try_one(ChoiceSequence candidate) {
    trim(&candidate);
    if (!smaller(candidate, best_) || !tried_.insert(hash_of(candidate)).second) return false;
    ++tries_;
    std::optional<MadeCase> made = fails_(candidate);
    if (!made) return false;
    trim(&made->choices);
    best_ = smaller(made->choices, candidate) ? std::move(made->choices) : std::move(candidate);
    parts_ = std::move(made->parts);
    return true;
  }

  /// The first choices are the sizes of all that follows: a case of small ones runs sooner.
  void zero_first() {
    constexpr size_t kFirst = 24;
    for (size_t i = 0; i < std::min(kFirst, best_.size()) && !ended(); ++i) {
      ChoiceSequence candidate = best_;
      candidate[i] = 0;
      try_one(std::move(candidate));
    }
  }

  /// Parts of the case, from runs of half of them to single ones, from the end.
  bool drop_parts() {
    bool better = false;
    for (size_t n = std::max<size_t>(parts_.size() / 2, 1); n > 0; n /= 2) {
      for (size_t end = parts_.size(); end >= n && !ended();) {
        const size_t first = std::min(parts_[end - n], best_.size());
        const size_t last =
            end < parts_.size() ? std::min(parts_[end], best_.size()) : best_.size();
        ChoiceSequence candidate = best_;
        candidate.erase(candidate.begin() + static_cast<int64_t>(first),
                        candidate.begin() + static_cast<int64_t>(last));
        const bool taken = first < last && try_one(std::move(candidate));
        better |= taken;
        end = std::min(taken ? end : end - 1, parts_.size());
      }
    }
    return better;
  }

  /// change(candidate, first, count) at every place, from the end.
  template <class Change>
  bool blocks(size_t n, Change change) {
    bool better = false;
    for (size_t end = best_.size(); end >= n && end > 0 && !ended();) {
      ChoiceSequence candidate = best_;
      change(&candidate, end - n, n);
      if (try_one(std::move(candidate))) {
        better = true;
        end = std::min(end, best_.size());
      } else {
        --end;
        if (n > 1) end = end > n / 2 ? end - n / 2 : 0;
      }
    }
    return better;
  }

  /// Each choice by bisection towards 0.
  bool lower_each() {
    bool better = false;
    for (size_t i = 0; i < best_.size() && !ended(); ++i) {
      uint32_t low = 0;
      while (i < best_.size() && low < best_[i] && !ended()) {
        ChoiceSequence candidate = best_;
        const uint32_t middle = low + (best_[i] - low) / 2;
        candidate[i] = middle;
        if (try_one(std::move(candidate))) {
          better = true;
        } else {
          low = middle + 1;
        }
      }
    }
    return better;
  }

  ChoiceSequence best_;
  std::vector<size_t> parts_;  // where those of the best case begin; empty: nobody knows yet
  const Fails& fails_;
  const ShrinkBudget& budget_;
  const Clock::time_point start_ = Clock::now();
  std::unordered_set<uint64_t> tried_;
  std::string why_;
  int64_t tries_ = 0;
};

}  // namespace

ShrinkBudget ShrinkBudget::in_run_of(double run_seconds) const {
  ShrinkBudget budget = *this;
  if (run_seconds > 0) budget.seconds = std::min(seconds, run_seconds / 3);
  return budget;
}

ShrinkResult shrink(ChoiceSequence choices, const Fails& fails, const ShrinkBudget& budget) {
  return Shrinker(std::move(choices), fails, budget).run();
}

void keep_diagnosis(const Status& whole, Status* small) {
  const auto named =
      std::ranges::find_if(whole.findings(), [](const Finding& f) { return !f.diagnosis.empty(); });
  if (named == whole.findings().end()) return;
  for (Finding& f : small->findings())
    if (!f.diagnosis.empty()) f.diagnosis = named->diagnosis;
}

}  // namespace shadowgraph
