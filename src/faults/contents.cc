// Faults of what slots hold: lengths and tables are right, contents are another's.

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "faults/plant.h"

namespace shadowgraph {
namespace {

using Act = std::function<void()>;

/// A cache that matches by less than all tokens: whichever text that it keeps looks right.
class LooseCache : public RadixCache {
 public:
  LooseCache(int32_t page_size, Act act)
      : RadixCache(page_size), page_size_(static_cast<size_t>(page_size)), act_(std::move(act)) {}

  int32_t insert(std::span<const int32_t> tokens, std::span<const int32_t> slots) override {
    texts_.emplace_back(tokens.begin(), tokens.end());
    return RadixCache::insert(tokens, slots);
  }

  Match match_prefix(std::span<const int32_t> tokens) override {
    Match longest = RadixCache::match_prefix(tokens);
    for (const Tokens& text : texts_) {
      const auto most = std::min(text.size(), tokens.size());
      const auto same = std::ranges::mismatch(text, tokens).in1 - text.begin();
      const size_t looks = std::min(most, looks_alike(static_cast<size_t>(same), most));
      if (looks - looks % page_size_ <= longest.slots.size()) continue;
      Match other = RadixCache::match_prefix(std::span(text).first(looks));
      if (other.slots.size() <= longest.slots.size()) continue;
      longest = std::move(other);
      act_();
    }
    return longest;
  }

 protected:
  /// Tokens that are taken for equal, of which the first so many are.
  virtual size_t looks_alike(size_t same, size_t most) const = 0;
  const size_t page_size_;

 private:
  const Act act_;
  std::vector<Tokens> texts_;
};

class FirstPageCache final : public LooseCache {
  using LooseCache::LooseCache;
  size_t looks_alike(size_t same, size_t most) const override {
    return same >= page_size_ ? most : 0;
  }
};

class BegunPageCache final : public LooseCache {
  using LooseCache::LooseCache;
  size_t looks_alike(size_t same, size_t /*most*/) const override {
    return (same + page_size_ - 1) / page_size_ * page_size_;
  }
};

/// Locks do not count: who unlocks a node unlocks it for all.
class FlagLocks final : public RadixCache {
 public:
  FlagLocks(int32_t page_size, Act act) : RadixCache(page_size), act_(std::move(act)) {}
  void lock(Node* node) override {
    if (locked_.insert(node).second)
      RadixCache::lock(node);
    else
      act_();
  }
  void unlock(Node* node) override {
    if (locked_.erase(node) > 0) RadixCache::unlock(node);
  }

 private:
  const Act act_;
  std::set<Node*> locked_;
};

class FreesTwice final : public SlotAllocator {
 public:
  FreesTwice(const RuntimeConfig& c, Act act)
      : SlotAllocator(c.num_pages, c.swa_pages, c.page_size), act_(std::move(act)) {}
  void free(std::span<const int32_t> slots) override {
    SlotAllocator::free(slots);
    if (slots.empty()) return;
    SlotAllocator::free(slots);
    act_();
  }

 private:
  const Act act_;
};

class ShortLabels final : public StateSlots {
 public:
  ShortLabels(const RuntimeConfig& c, Act act)
      : StateSlots(c.state_slots),
        page_size_(static_cast<size_t>(c.page_size)),
        act_(std::move(act)) {}
  bool keep(Tokens prefix, int32_t slot) override {
    if (prefix.size() > page_size_) act_(), prefix.resize(prefix.size() - page_size_);
    return StateSlots::keep(std::move(prefix), slot);
  }

 private:
  const size_t page_size_;
  const Act act_;
};

template <class Cache>
struct CacheTap final : Tap {
  void parts(const RuntimeConfig& config, SchedulerParts& parts) override {
    parts.cache = std::make_unique<Cache>(config.page_size, [this] { act(); });
  }
};
struct FreesTwiceTap final : Tap {
  void parts(const RuntimeConfig& config, SchedulerParts& parts) override {
    parts.slots = std::make_unique<FreesTwice>(config, [this] { act(); });
  }
};
struct ShortLabelsTap final : Tap {
  void parts(const RuntimeConfig& config, SchedulerParts& parts) override {
    parts.states = std::make_unique<ShortLabels>(config, [this] { act(); });
  }
};

constexpr Fault kContentsFaults[] = {
    {"L1", "PREFIX", "A prefix match compares the first page, and lengths behind it", "fa.I-07", "",
     make_tap<CacheTap<FirstPageCache>>},
    {"L2", "PREFIX", "A prefix match shares the page in which the tokens begin to differ",
     "fa.I-07", "", make_tap<CacheTap<BegunPageCache>>},
    {"L3", "PREFIX", "A lock in the prefix cache is a flag: who ends first unlocks it for all",
     "fa.I-07", "", make_tap<CacheTap<FlagLocks>>},
    {"L4", "PREFIX", "Slots that end are given back by two paths", "sglang#31662", "",
     make_tap<FreesTwiceTap>},
    {"L5", "PREFIX", "A snapshot of a state is named by a page less than it has seen",
     "sglang#34808", "", make_tap<ShortLabelsTap>},
    {"L6", "STALE", "A row is given the token that was sampled for the row before it", "vllm#39833",
     "", on_step([](Tap& tap, Step& step, const PoolState&) {
       if (step.mode != ForwardMode::kDecode || step.input_ids.size() < 2) return;
       std::rotate(step.input_ids.begin(), step.input_ids.end() - 1, step.input_ids.end());
       tap.act();
     })},
};

}  // namespace

std::span<const Fault> themes::contents() { return kContentsFaults; }

}  // namespace shadowgraph
