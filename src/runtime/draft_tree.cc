#include "runtime/draft_tree.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "attn/page_table.h"

namespace shadowgraph {
namespace {

/// The most tokens of the next depth, after one with so many.
int64_t widest_after(const DraftShape& s, int64_t tokens) {
  return int64_t{s.topk} * std::min<int64_t>(s.topk, tokens);
}

/// The most tokens of all depths after this one.
int64_t room_after(const DraftShape& s, int64_t tokens, int32_t depth) {
  int64_t room = 0;
  for (; depth < s.num_steps; ++depth) room += tokens = widest_after(s, tokens);
  return room;
}

/// Tokens of each depth; as few as the rest can make up for, and more by choice.
std::vector<int32_t> level_sizes(const DraftShape& s, Choices& choices) {
  std::vector<int32_t> sizes{1};
  int32_t left = s.num_draft_tokens - 1;
  for (int32_t depth = 1; left > 0; ++depth) {
    const auto most = static_cast<int32_t>(std::min<int64_t>(left, widest_after(s, sizes.back())));
    int32_t least = 1;
    while (least < most && least + room_after(s, least, depth) < left) ++least;
    sizes.push_back(choices.between(least, most));
    left -= sizes.back();
  }
  return sizes;
}

/// Tokens [begin, end) in any order.
std::vector<int32_t> shuffled(int32_t begin, int32_t end, Choices& choices) {
  std::vector<int32_t> all;
  for (int32_t t = begin; t < end; ++t) all.push_back(t);
  for (size_t i = 0; i + 1 < all.size(); ++i)
    std::swap(all[i], all[i + choices.below(static_cast<uint32_t>(all.size() - i))]);
  return all;
}

}  // namespace

DraftTree DraftTree::random(const DraftShape& shape, Choices& choices) {
  assert(shape.num_draft_tokens >= 1 && shape.num_draft_tokens <= shape.max_tokens());
  DraftTree tree;
  int32_t begin = 0, end = 0, depth = 0;  // of the depth before
  for (const int32_t size : level_sizes(shape, choices)) {
    std::vector<int32_t> parents = shuffled(begin, end, choices);
    parents.resize(std::min(parents.size(), static_cast<size_t>(shape.topk)));
    std::vector<int32_t> children(parents.size());
    for (int32_t i = 0; i < size; ++i) {
      tree.depth.push_back(depth);
      if (parents.empty()) {
        tree.parent.push_back(-1);
        continue;
      }
      size_t p = choices.below(static_cast<uint32_t>(parents.size()));
      while (children[p] == shape.topk) p = (p + 1) % parents.size();
      ++children[p];
      tree.parent.push_back(parents[p]);
    }
    begin = end, end += size, ++depth;
  }
  return tree;
}

bool DraftTree::sees(int32_t t, int32_t u) const {
  while (t > u) t = parent[static_cast<size_t>(t)];
  return t == u;
}

void DraftTree::append_mask(int32_t prefix_len, std::vector<uint8_t>* mask) const {
  for (int32_t t = 0; t < size(); ++t) {
    mask->insert(mask->end(), static_cast<size_t>(prefix_len), 1);
    for (int32_t u = 0; u < size(); ++u) mask->push_back(sees(t, u));
  }
}

void DraftTree::append_links(std::vector<int32_t>* next_token,
                             std::vector<int32_t>* next_sibling) const {
  const size_t first = next_token->size();
  next_token->resize(first + parent.size(), -1);
  next_sibling->resize(first + parent.size(), -1);
  for (size_t t = parent.size(); t-- > 1;) {
    int32_t& child = (*next_token)[first + static_cast<size_t>(parent[t])];
    (*next_sibling)[first + t] = std::exchange(child, static_cast<int32_t>(t));
  }
}

std::vector<int32_t> DraftTree::accept(int32_t max_tokens, Choices& choices) const {
  std::vector<int32_t> path{0};
  while (static_cast<int32_t>(path.size()) < max_tokens) {
    std::vector<int32_t> children;
    for (int32_t t = path.back() + 1; t < size(); ++t) {
      if (parent[static_cast<size_t>(t)] == path.back()) children.push_back(t);
    }
    const uint32_t choice = choices.below(static_cast<uint32_t>(children.size()) + 1);
    if (choice == 0) break;
    path.push_back(children[choice - 1]);
  }
  return path;
}

std::vector<int32_t> ProposedTokens::branch(int32_t k) const {
  std::vector<int32_t> tokens;
  for (int32_t j = 0; j < shape.num_steps; ++j)
    tokens.push_back(draft_token(request, prefix_len, k * shape.num_steps + j));
  return tokens;
}

std::vector<int32_t> ProposedTokens::tree(int32_t root) const {
  std::vector<int32_t> tokens{root};
  for (int32_t t = 1; t < shape.num_draft_tokens; ++t)
    tokens.push_back(draft_token(request, prefix_len, shape.topk * shape.num_steps + t));
  return tokens;
}

int32_t DraftLayout::branch_stride() const {
  if (!paged()) return shape.num_steps;
  return static_cast<int32_t>(pages_for(tail() + shape.num_steps, page_size)) * page_size;
}

int32_t DraftLayout::end() const {
  const int32_t branches = prefix_len - tail() + shape.topk * branch_stride();
  return std::max(branches, prefix_len + shape.num_draft_tokens);
}

void DraftLayout::append_slots(std::span<const int32_t> row, std::vector<int64_t>* slots) const {
  for (int32_t k = 0; k < shape.topk; ++k) {
    for (int32_t j = 0; j < shape.num_steps; ++j)
      slots->push_back(row[static_cast<size_t>(column(k, j))]);
  }
}

void DraftLayout::append_copies(std::span<const int32_t> row, std::vector<SlotCopy>* copies) const {
  for (int32_t k = 1; k < shape.topk; ++k) {
    for (int32_t i = 0; i < tail(); ++i) {
      copies->push_back({row[static_cast<size_t>(tail_column(0, i))],
                         row[static_cast<size_t>(tail_column(k, i))]});
    }
  }
}

int32_t draft_reserve(const DraftShape& shape, int32_t page_size) {
  if (shape.num_steps == 0) return 0;
  int32_t branch = shape.num_steps;
  if (page_size > 1 && shape.topk > 1)
    branch = static_cast<int32_t>(pages_for(page_size - 1 + branch, page_size)) * page_size;
  return 2 * std::max(branch * shape.topk, shape.num_draft_tokens);
}

}  // namespace shadowgraph
