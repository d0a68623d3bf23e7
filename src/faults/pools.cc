// Faults of allocators and prefix caches.
#include "faults/pools.h"

#include <algorithm>
#include <functional>
#include <utility>

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

}  // namespace

SchedulerParts SlotsFreedAsPages::parts(const RuntimeConfig& config) {
  SchedulerParts parts(config);
  parts.cache = std::make_unique<PageNumberCache>(config, [this] { act(); });
  return parts;
}

SchedulerParts CacheOfViews::parts(const RuntimeConfig& config) {
  SchedulerParts parts(config);
  parts.cache = std::make_unique<ViewCache>(config.page_size, [this] { act(); });
  return parts;
}

SchedulerParts LocksTheRoot::parts(const RuntimeConfig& config) {
  SchedulerParts parts(config);
  parts.cache = std::make_unique<RootCache>(config.page_size, [this] { act(); });
  return parts;
}

}  // namespace shadowgraph
