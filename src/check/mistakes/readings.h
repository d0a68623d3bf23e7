// What the files of mistakes/ share.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "attn/mask.h"
#include "check/mistakes/mistakes.h"
#include "check/mistakes/row_sums.h"

namespace shadowgraph {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

#define SG_MISTAKE(id, function, sentence) \
  void function(const Scene& scene, size_t request, const Reading& right, const AddReading& add);
#include "check/mistakes/mistakes.inc"

/// A copy, changed.
template <class Change>
Reading changed(const Reading& right, Change change) {
  Reading r = right;
  change(r);
  return r;
}

/// The first so many keys; past the last, what stands behind them, and then nothing.
inline Reading of_length(const Scene& scene, size_t request, const Reading& right, int64_t length,
                         std::string detail) {
  Reading r = right;
  const std::vector<int32_t>* behind =
      request < scene.behind.size() ? &scene.behind[request] : nullptr;
  for (size_t i = 0; std::ssize(r.keys) < length; ++i)
    r.keys.push_back(behind != nullptr && i < behind->size() ? (*behind)[i] : kNoToken);
  r.keys.resize(static_cast<size_t>(std::max<int64_t>(0, length)));
  r.detail = std::move(detail);
  return r;
}

/// The token at a place of the row. A place before the row has the token of the row before, as in a
/// list. kNoToken if nothing is known.
int64_t token_of(const Scene& scene, size_t request, const Reading& right, int64_t place);

inline std::string by(int64_t n) { return "by " + std::to_string(n); }
inline std::string of_row(size_t request) { return "of row " + std::to_string(request); }

/// fn(request) of all others.
template <class Fn>
void each_other(const Scene& scene, size_t request, Fn fn) {
  for (size_t r = 0; r < scene.rows.keys.size(); ++r)
    if (r != request) fn(r);
}

/// A request's mask by the predicate, over so many keys and queries.
inline MaskShape mask_of(const Reading& r, const AttentionParams& p, int32_t q_len, int32_t keys) {
  MaskShape mask = MaskShape::of(p, q_len, keys);
  mask.first_key = r.first_key, mask.bidirectional = r.bidirectional;
  return mask;
}

/// Lists of what is added to logits.
struct TermList {
  std::span<const float> AttentionTerms::*list;
  const char* name;
};
inline constexpr TermList kSlopes{&AttentionTerms::alibi_slopes, "the slopes"};
inline constexpr TermList kKeyBias{&AttentionTerms::key_bias, "the bias of keys"};
inline constexpr TermList kQueryBias{&AttentionTerms::qq_bias, "the bias of queries"};
inline constexpr TermList kDistanceBias{&AttentionTerms::relative_bias, "the bias of distances"};
inline constexpr TermList kAllLists[] = {kSlopes, kKeyBias, kQueryBias, kDistanceBias};

/// fn(reading, name) of each of the lists that the request has, and of all of them: the reading has
/// them in Reading::other, and is right as it is.
void each_term(const Reading& right, std::span<const TermList> lists,
               const std::function<void(const Reading& apart, const std::string& name)>& fn);

/// Do terms add anything to logits, or multiply them?
bool changes_scores(const Reading& r);
double temperature_of(const Reading& r, int32_t query);

/// A mask is only ever as wide as the keys that it was made for.
inline Reading unmasked(const Reading& right) {
  return changed(right, [](Reading& r) { r.mask.clear(), r.mask_width = 0; });
}

}  // namespace shadowgraph
