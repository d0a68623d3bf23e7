// RadixCache: prefixes whose KV is kept, by their tokens, in whole pages. A node's slots are the
// cache's own copy: a row of req_to_token changes hands (mini-sglang 94fe255).
// Tested by tests/runtime/radix_cache_test.cc.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/content.h"

namespace shadowgraph {

using Tokens = std::vector<int32_t>;

/// A cache claims this of a slot of its own: whose content it has (of a state, the last token's
/// that was folded in), and how many requests use it.
struct CachedSlot {
  int32_t slot = 0;
  Chain chain = kNoTokens;
  int32_t locks = 0;
  bool operator==(const CachedSlot&) const = default;
};

class RadixCache {
 public:
  struct Node;
  /// The longest cached prefix. node is its end, the one to lock; good until the next evict.
  struct Match {
    Slots slots;
    Node* node = nullptr;
  };

  explicit RadixCache(int32_t page_size);
  virtual ~RadixCache();
  RadixCache(const RadixCache&) = delete;
  RadixCache& operator=(const RadixCache&) = delete;

  /// Whole pages only; what matches is used last.
  virtual Match match_prefix(std::span<const int32_t> tokens);
  /// Keeps the whole pages of these tokens, and says how many tokens were cached before: their
  /// slots stay the cache's, and the caller's are for the caller to free. slots: one a token.
  virtual int32_t insert(std::span<const int32_t> tokens, std::span<const int32_t> slots);

  /// A locked node and all before it are not evicted; locks count.
  virtual void lock(Node* node);
  virtual void unlock(Node* node);

  /// Drops the leaves that were used least recently, and are not locked, until so many tokens are
  /// free or none is left: their slots, for the caller to free.
  virtual Slots evict(int32_t tokens);

  /// All slots that the cache holds, a node's in the order of its tokens.
  std::vector<CachedSlot> contents() const;
  int32_t evictable_tokens() const;

 private:
  Node* walk(std::span<const int32_t> tokens, Slots* slots);
  Node* split(Node* node, size_t length);
  size_t matching(const Node& node, std::span<const int32_t> tokens) const;

  int32_t page_size_;
  int64_t clock_ = 0;
  std::unique_ptr<Node> root_;
};

}  // namespace shadowgraph
