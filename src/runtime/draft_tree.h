// Draft trees: what a draft model proposes, and where its tokens lie. Spec
// backends-flashattention-family 1.6, 2.6. Tested by tests/runtime/draft_tree_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/choices.h"
#include "runtime/content.h"

namespace shadowgraph {

/// How a draft model speculates.
struct DraftShape {
  int32_t topk = 1;              // branches that go on from step to step
  int32_t num_steps = 0;         // tokens of a branch; 0: no speculation
  int32_t num_draft_tokens = 0;  // of the verified tree, its root included

  bool operator==(const DraftShape&) const = default;
  /// The most tokens that a tree can have: the root, topk after the first step, and topk of each of
  /// topk branches after every other.
  int64_t max_tokens() const {
    return num_steps == 0 ? 0 : 1 + topk + int64_t{num_steps - 1} * topk * topk;
  }
};

/// Token 0 is the root, which the target model chose; tokens are in order of depth.
struct DraftTree {
  std::vector<int32_t> parent;  // -1 of the root
  std::vector<int32_t> depth;   // 0 of the root

  /// Any tree that a beam of topk branches can leave: a token has at most topk children, of each
  /// depth at most topk tokens have some. Requires 1 <= num_draft_tokens <= max_tokens().
  static DraftTree random(const DraftShape& shape, Choices& choices);

  int32_t size() const { return static_cast<int32_t>(parent.size()); }
  /// u is t or before it on its path.
  bool sees(int32_t t, int32_t u) const;
  /// Appends [size, prefix_len + size]: the prefix, then sees().
  void append_mask(int32_t prefix_len, std::vector<uint8_t>* mask) const;
  /// Appends of each token its first child, and its next sibling; -1: none.
  void append_links(std::vector<int32_t>* next_token, std::vector<int32_t>* next_sibling) const;
  /// What a target model may accept: a path from the root of at most max_tokens tokens.
  std::vector<int32_t> accept(int32_t max_tokens, Choices& choices) const;
};

/// A draft model proposes these in the round that begins behind so many tokens of a request.
struct ProposedTokens {
  OwnerId request = 0;
  int32_t prefix_len = 0;
  DraftShape shape;

  /// [num_steps]
  std::vector<int32_t> branch(int32_t k) const;
  /// [num_draft_tokens], the root first, which the target model chose.
  std::vector<int32_t> tree(int32_t root) const;
};

/// The KV of slot from, to slot to.
struct SlotCopy {
  int32_t from = 0, to = 0;
  bool operator==(const SlotCopy&) const = default;
};

/// Where the tokens of a draft lie in a request's row, in columns past the encoder's: one after the
/// other, branch by branch. With pages of several tokens and topk > 1 every branch has pages of its
/// own, and the first of them begins with the prefix's last, partial page: all branches but the
/// first, which goes on in that page, need a copy.
struct DraftLayout {
  DraftShape shape;
  int32_t page_size = 1;
  int32_t prefix_len = 0;

  bool paged() const { return page_size > 1 && shape.topk > 1; }
  /// Tokens on the prefix's partial page, if branches have pages of their own.
  int32_t tail() const { return paged() ? prefix_len % page_size : 0; }
  /// Columns from one branch to the next.
  int32_t branch_stride() const;
  int32_t column(int32_t branch, int32_t step) const {
    return prefix_len + branch * branch_stride() + step;
  }
  /// Column i of the prefix's tail as this branch has it.
  int32_t tail_column(int32_t branch, int32_t i) const {
    return prefix_len - tail() + branch * branch_stride() + i;
  }
  /// Columns that must have slots: those of the draft, and of the tree that is verified.
  int32_t end() const;

  /// Appends [topk, num_steps] slots. row: the request's, past its encoder.
  void append_slots(std::span<const int32_t> row, std::vector<int64_t>* slots) const;
  void append_copies(std::span<const int32_t> row, std::vector<SlotCopy>* copies) const;
};

/// Columns that a row has beyond the longest context: two rounds' worth (sglang#26972).
int32_t draft_reserve(const DraftShape& shape, int32_t page_size);

}  // namespace shadowgraph
