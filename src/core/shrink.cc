#include "core/shrink.h"

#include <algorithm>

namespace shadowgraph {
namespace {

/// A made sequence may end in zeros, which are what a case makes of nothing.
void trim(ChoiceSequence* c) {
  while (!c->empty() && c->back() == 0) c->pop_back();
}

bool smaller(const ChoiceSequence& a, const ChoiceSequence& b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

class Shrinker {
 public:
  Shrinker(ChoiceSequence choices, const Fails& fails, const std::function<bool()>& give_up)
      : best_(std::move(choices)), fails_(fails), give_up_(give_up) {
    trim(&best_);
  }

  ShrinkResult run() {
    for (bool better = true; better && !give_up_();) {
      better = false;
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
    return {std::move(best_), tries_};
  }

 private:
  /// Takes the candidate if it fails too.
  bool try_one(ChoiceSequence candidate) {
    trim(&candidate);
    if (!smaller(candidate, best_)) return false;
    ++tries_;
    std::optional<ChoiceSequence> made = fails_(candidate);
    if (!made) return false;
    trim(&*made);
    best_ = smaller(*made, candidate) ? *std::move(made) : std::move(candidate);
    return true;
  }

  /// change(candidate, first, count) at every place, from the end.
  template <class Change>
  bool blocks(size_t n, Change change) {
    bool better = false;
    for (size_t end = best_.size(); end >= n && end > 0 && !give_up_();) {
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
    for (size_t i = 0; i < best_.size() && !give_up_(); ++i) {
      uint32_t low = 0;
      while (i < best_.size() && low < best_[i] && !give_up_()) {
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
  const Fails& fails_;
  const std::function<bool()>& give_up_;
  int64_t tries_ = 0;
};

}  // namespace

ShrinkResult shrink(ChoiceSequence choices, const Fails& fails,
                    const std::function<bool()>& give_up) {
  return Shrinker(std::move(choices), fails, give_up).run();
}

}  // namespace shadowgraph
