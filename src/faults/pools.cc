// Faults of allocators and prefix caches, standing in for the clean ones.

#include <algorithm>
#include <functional>
#include <utility>

#include "faults/plant.h"

namespace shadowgraph {
namespace {

using Act = std::function<void()>;

class PageNumberCache final : public RadixCache {
 public:
  PageNumberCache(const RuntimeConfig& config, Act act)
      : RadixCache(config.page_size), config_(config), act_(std::move(act)) {}

  Slots evict(int32_t tokens) override {
    Slots slots = RadixCache::evict(tokens);
    if (config_.page_size == 1 || slots.empty()) return slots;
    // What is past the last page would fall off the list of pages.
    for (int32_t& slot : slots) slot = std::min(slot, config_.num_pages) * config_.page_size;
    act_();
    return slots;
  }

 private:
  const RuntimeConfig config_;
  const Act act_;
};

class ViewCache final : public RadixCache {
 public:
  ViewCache(int32_t page_size, Act act) : RadixCache(page_size), act_(std::move(act)) {}

  int32_t insert(std::span<const int32_t> tokens, std::span<const int32_t> slots) override {
    const int32_t known = RadixCache::insert(tokens, slots);
    views_.emplace_back(Tokens(tokens.begin(), tokens.end()), slots);
    return known;
  }

  Match match_prefix(std::span<const int32_t> tokens) override {
    Match m = RadixCache::match_prefix(tokens);
    for (const auto& [prefix, row] : views_) {
      const auto common = std::ranges::mismatch(prefix, tokens).in1 - prefix.begin();
      const size_t count = std::min(static_cast<size_t>(common), m.slots.size());
      if (count < m.slots.size()) continue;
      if (!std::ranges::equal(row.first(count), m.slots)) act_();
      std::ranges::copy(row.first(count), m.slots.begin());
      break;
    }
    return m;
  }

 private:
  const Act act_;
  std::vector<std::pair<Tokens, std::span<const int32_t>>> views_;
};

class RootCache final : public RadixCache {
 public:
  RootCache(int32_t page_size, Act act) : RadixCache(page_size), act_(std::move(act)) {}

  Match match_prefix(std::span<const int32_t> tokens) override {
    Match m = RadixCache::match_prefix(tokens);
    Node* root = RadixCache::match_prefix({}).node;
    if (m.node != root) act_();
    m.node = root;
    return m;
  }

 private:
  const Act act_;
};

/// What is evicted, slots, is given back as if it were numbers of pages.
struct SlotsFreedAsPages final : Tap {
  void parts(const RuntimeConfig& config, SchedulerParts& parts) override {
    parts.cache = std::make_unique<PageNumberCache>(config, [this] { act(); });
  }
};

/// The cache keeps views of the rows that prefixes came from.
struct CacheOfViews final : Tap {
  void parts(const RuntimeConfig& config, SchedulerParts& parts) override {
    parts.cache = std::make_unique<ViewCache>(config.page_size, [this] { act(); });
  }
};

/// Who matches a prefix locks the root.
struct LocksTheRoot final : Tap {
  void parts(const RuntimeConfig& config, SchedulerParts& parts) override {
    parts.cache = std::make_unique<RootCache>(config.page_size, [this] { act(); });
  }
};

constexpr Fault kPoolsFaults[] = {
    {"K49", "PAGESZ", "Eviction gives slots back as if they were pages", "mini-sglang#80 fa.I-06",
     "", make_tap<SlotsFreedAsPages>},
    {"K77", "PREFIX", "The prefix cache keeps views of rows that change hands",
     "mini-sglang@94fe255", "", make_tap<CacheOfViews>},
    {"K78", "PREFIX", "Who matches a prefix locks the root and not the node",
     "mini-sglang#46 fa.I-07", "", make_tap<LocksTheRoot>},
};

}  // namespace

std::span<const Fault> themes::pools() { return kPoolsFaults; }

}  // namespace shadowgraph
