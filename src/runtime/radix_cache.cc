#include "runtime/radix_cache.h"

#include <algorithm>
#include <cassert>

namespace shadowgraph {

struct RadixCache::Node {
  Tokens tokens;  // whole pages
  Slots slots;
  Node* parent = nullptr;
  std::map<Tokens, std::unique_ptr<Node>> children;  // by their first page
  int32_t locks = 0;                                 // its own and those of all below
  int64_t used = 0;

  bool evictable() const { return children.empty() && locks == 0 && parent != nullptr; }
};

namespace {

/// Every node below and with this one.
template <class N, class F>
void visit(N& node, const F& f) {
  f(node);
  for (auto& [page, child] : node.children) visit(*child, f);
}

Tokens first_page(std::span<const int32_t> tokens, int32_t page_size) {
  const auto page = tokens.first(static_cast<size_t>(page_size));
  return {page.begin(), page.end()};
}

}  // namespace

RadixCache::RadixCache(int32_t page_size)
    : page_size_(page_size), root_(std::make_unique<Node>()) {}
RadixCache::~RadixCache() = default;

size_t RadixCache::matching(const Node& node, std::span<const int32_t> tokens) const {
  const auto end = std::ranges::mismatch(node.tokens, tokens).in1;
  const auto length = static_cast<size_t>(end - node.tokens.begin());
  return length - length % static_cast<size_t>(page_size_);
}

RadixCache::Node* RadixCache::split(Node* node, size_t length) {
  auto& place = node->parent->children.at(first_page(node->tokens, page_size_));
  auto upper = std::make_unique<Node>();
  const auto at = static_cast<std::ptrdiff_t>(length);
  upper->tokens.assign(node->tokens.begin(), node->tokens.begin() + at);
  upper->slots.assign(node->slots.begin(), node->slots.begin() + at);
  upper->parent = node->parent, upper->locks = node->locks, upper->used = node->used;
  node->tokens.erase(node->tokens.begin(), node->tokens.begin() + at);
  node->slots.erase(node->slots.begin(), node->slots.begin() + at);
  node->parent = upper.get();
  upper->children.emplace(first_page(node->tokens, page_size_), std::move(place));
  place = std::move(upper);
  return place.get();
}

/// The node at which the cached prefix of these tokens ends.
RadixCache::Node* RadixCache::walk(std::span<const int32_t> tokens, Slots* slots) {
  Node* node = root_.get();
  ++clock_;
  while (tokens.size() >= static_cast<size_t>(page_size_)) {
    const auto it = node->children.find(first_page(tokens, page_size_));
    if (it == node->children.end()) break;
    Node* child = it->second.get();
    const size_t length = matching(*child, tokens);
    node = length < child->tokens.size() ? split(child, length) : child;
    node->used = clock_;
    slots->insert(slots->end(), node->slots.begin(), node->slots.end());
    tokens = tokens.subspan(length);
  }
  return node;
}

RadixCache::Match RadixCache::match_prefix(std::span<const int32_t> tokens) {
  Match m;
  m.node = walk(tokens, &m.slots);
  return m;
}

int32_t RadixCache::insert(std::span<const int32_t> tokens, std::span<const int32_t> slots) {
  assert(tokens.size() == slots.size());
  Slots cached;
  Node* node = walk(tokens, &cached);
  const size_t known = cached.size();
  const size_t whole = tokens.size() - tokens.size() % static_cast<size_t>(page_size_);
  if (known < whole) {
    auto leaf = std::make_unique<Node>();
    const auto rest = tokens.subspan(known, whole - known);
    const auto rest_slots = slots.subspan(known, whole - known);
    leaf->tokens.assign(rest.begin(), rest.end());
    leaf->slots.assign(rest_slots.begin(), rest_slots.end());
    leaf->parent = node, leaf->used = clock_;
    node->children.emplace(first_page(rest, page_size_), std::move(leaf));
  }
  return static_cast<int32_t>(known);
}

void RadixCache::lock(Node* node) {
  for (; node != nullptr; node = node->parent) ++node->locks;
}

void RadixCache::unlock(Node* node) {
  for (; node != nullptr; node = node->parent) {
    assert(node->locks > 0);
    --node->locks;
  }
}

Slots RadixCache::evict(int32_t tokens) {
  Slots freed;
  while (freed.size() < static_cast<size_t>(tokens)) {
    Node* oldest = nullptr;
    visit(*root_, [&](Node& n) {
      if (n.evictable() && (oldest == nullptr || n.used < oldest->used)) oldest = &n;
    });
    if (oldest == nullptr) break;
    freed.insert(freed.end(), oldest->slots.begin(), oldest->slots.end());
    oldest->parent->children.erase(first_page(oldest->tokens, page_size_));
  }
  return freed;
}

std::vector<CachedSlot> RadixCache::contents() const {
  std::vector<CachedSlot> all;
  const auto add = [&](const auto& self, const Node& n, Chain chain) -> void {
    for (size_t i = 0; i < n.tokens.size(); ++i) {
      chain = extend(chain, n.tokens[i]);
      all.push_back({n.slots[i], chain, n.locks});
    }
    for (const auto& [page, child] : n.children) self(self, *child, chain);
  };
  add(add, *root_, kNoTokens);
  return all;
}

int32_t RadixCache::evictable_tokens() const {
  size_t tokens = 0;
  // A lock counts for all before it: what is not locked has nothing locked below.
  visit(*root_, [&](const Node& n) { tokens += n.locks == 0 ? n.tokens.size() : 0; });
  return static_cast<int32_t>(tokens);
}

}  // namespace shadowgraph
