// Content: what a slot holds, by the tokens that it was computed from. A request that shares a
// prefix has equal content exactly where its tokens are equal, and a token that is computed twice
// has one content; so bytes can be a function of it. See docs/metadata.md "Contents".
// Tested by tests/runtime/content_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/choices.h"
#include "shadowgraph/device/annotations.h"

namespace shadowgraph {

/// Identity of tokens 0 .. p of a request: equal where all of them are equal, and only there.
using Chain = uint64_t;

/// No token at all: of a text, and of an encoder's input, whose chains are never equal.
constexpr Chain kNoTokens = 1, kNoEncoderTokens = 2;

/// The chain of these tokens and one more.
inline Chain extend(Chain chain, int32_t token) {
  return Rng(chain ^ (uint64_t{static_cast<uint32_t>(token)} << 20)).next();
}

enum class ContentKind : uint8_t { kKey, kValue, kLatent, kIndexKey, kCompressed, kState, kConv };

struct Content {
  Chain chain = 0;       // of all tokens that it was computed from; of a state, that were folded in
  int32_t position = 0;  // what the write was given; of a state, how many tokens
  int32_t layer = 0;     // of the model
  ContentKind kind = ContentKind::kKey;
  bool operator==(const Content&) const = default;
};

/// 64 random bits for each element of a content: equal for equal contents.
inline uint64_t value_of(const Content& c, uint64_t element) {
  const uint64_t place = uint64_t{static_cast<uint32_t>(c.position)} << 32 |
                         uint64_t{static_cast<uint32_t>(c.layer)} << 8 |
                         static_cast<uint64_t>(c.kind);
  return Rng::stream(c.chain ^ Rng(place).next(), element).next();
}

// Token ids, 31 bits. The model is a function: what it answers depends on nothing but these.

/// A prompt's token, where all requests of a family have the same.
int32_t family_token(int32_t family, int32_t position);
/// The request's own token: the rest of its prompt, and what is sampled there.
int32_t own_token(OwnerId request, int32_t position);
/// A draft model's proposal number n of the round that begins at this position; of a branch's
/// tokens and of a tree's.
int32_t draft_token(OwnerId request, int32_t position, int32_t n);
/// A token of a request's encoder input.
int32_t encoder_token(OwnerId request, int32_t position);

/// Chains of tokens that follow these, one after the other.
void append_path(Chain chain, std::span<const int32_t> tokens, std::vector<Chain>* to);
/// Chains of a tree's tokens, each behind its parent; parents: numbers in the tree, -1 of its root.
void append_tree(Chain chain, std::span<const int32_t> tokens, std::span<const int32_t> parents,
                 std::vector<Chain>* to);

/// Chains of a request's encoder tokens.
void append_encoder(OwnerId request, int32_t tokens, std::vector<Chain>* to);

/// Chains that the slots of a step must hold, row by row.
struct StepChains {
  std::vector<int32_t> prefix_indptr;  // [rows + 1] into prefix; empty: nobody says
  std::vector<Chain> prefix;           // of each token that is stored before the step
  std::vector<Chain> fresh;            // of the token of each slot of out_cache_loc
  std::vector<Chain> encoder;          // of each row's encoder tokens, encoder_lens of them

  /// A row's stored tokens, position by position.
  std::span<const Chain> prefix_of(size_t row) const {
    const auto first = static_cast<size_t>(prefix_indptr[row]);
    return std::span(prefix).subspan(first, static_cast<size_t>(prefix_indptr[row + 1]) - first);
  }
};

}  // namespace shadowgraph
