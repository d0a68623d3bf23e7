// RowSums: what any stretch of a row's keys gives together, in a few steps each. A mistake that can
// be made in as many ways as there are keys is looked for by these sums, and only the ways that
// come nearest to what was computed are held against the oracle. Tested by
// tests/check/diagnose_numbers_test.cc.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attn/mask.h"
#include "check/mistakes/mistakes.h"

namespace shadowgraph {

/// Elements of out that estimates have.
inline constexpr size_t kLooks = 4;

/// Keys together: their largest logit, and sums of exp(logit - top), bare and times V.
struct KeySum {
  double top = -std::numeric_limits<double>::infinity(), mass = 0;
  std::array<double, kLooks> values{};
  bool unknown = false;  // a key of which nothing is known is among them

  bool empty() const { return mass == 0; }
  KeySum operator+(const KeySum& other) const;
};

/// The result of one way to read a row, up to the roundings of sums.
struct Estimate {
  double lse = 0, lse_with_sink = 0;  // natural; NaN: nothing is said of it
  std::array<double, kLooks> out{};
};

/// The result that the kernel computed of a row.
struct Got {
  double lse = 0;          // natural; NaN: not recorded, and so for elements of out
  bool with_sink = false;  // it counts the sink
  std::array<double, kLooks> out{};
  double unit = 1;  // the largest element of V that the row sees

  double lse_of(const Estimate& e) const { return with_sink ? e.lse_with_sink : e.lse; }
  /// The largest distance: of the LSE, and of out in units of V.
  double distance(const Estimate& e) const;
};

/// Which keys a stretch of places leads to, and where the query stands.
struct Stretch {
  enum class List : uint8_t {
    kOwn,
    kBare,      // own ones, without what terms add to their logits
    kUnscaled,  // own ones, without the scales of K and V
    kRow,       // those of places before the first and behind the last, too; no mask
    kPadding,   // the slots of page 0 at the same places of their pages
  };
  List list = List::kOwn;
  int64_t shift = 0;                        // place k leads to the key of place k + shift
  int64_t moved = 0;                        // places that the query stands behind its own
  const AttentionParams* params = nullptr;  // causal and window of others than the request's own
};

/// Gives the logits, and the looked-at elements of V, of tokens that are in the pool.
using TokenSums =
    std::function<std::vector<KeySum>(const std::vector<int32_t>& tokens, bool unscaled)>;

class RowSums {
 public:
  /// The sum that terms add to the logit of a place.
  using Added = std::function<double(const Reading& how, int32_t place)>;
  /// All live longer. query: of the request; looks: the elements of out, at most kLooks. added:
  /// null: nothing. cap: the soft cap of the row's logits.
  RowSums(const Scene& scene, size_t request, const Reading& right, int32_t query, int32_t head,
          TokenSums tokens, Added added, double cap)
      : scene_(scene),
        request_(request),
        right_(right),
        query_(query),
        head_(head),
        tokens_(std::move(tokens)),
        added_(std::move(added)),
        cap_(cap) {
    const auto sinks = right.params.sinks;
    if (!sinks.empty()) sink_ = sinks[static_cast<size_t>(head)];
  }

  /// The places begin .. end - 1 that the row sees.
  KeySum seen(int64_t begin, int64_t end, const Stretch& how = {}) const;
  bool sees(int64_t place) const;
  KeySum token(int32_t token) const;
  /// All that the row sees, with other logits (of a place and its logit before anything is added)
  /// and the values of other places (value_of, as in a Reading). As many steps as keys.
  KeySum read_as(const std::function<double(int32_t place, double logit)>& logit_of,
                 const std::function<int32_t(int32_t)>& value_of = nullptr) const;
  /// Logits by a factor before the soft cap.
  KeySum read_as(double factor, const std::function<int32_t(int32_t)>& value_of = nullptr) const;
  /// The sum that terms add to the logit of a place; how: null: the right reading.
  double added(int32_t place, const Reading* how = nullptr) const {
    return added_ ? added_(how != nullptr ? *how : right_, place) : 0;
  }
  /// The logit without the soft cap.
  double uncapped(double logit) const { return cap_ > 0 ? cap_ * std::atanh(logit / cap_) : logit; }
  int32_t query() const { return query_; }
  int64_t position() const { return right_.position(query_); }
  int64_t length() const { return std::ssize(right_.keys); }
  Estimate of(const KeySum& keys) const;
  /// Parts merged as the reading says; none where there are less than two.
  std::optional<Estimate> merged(std::span<const KeySum> parts, const Reading& how) const;

 private:
  class Tree;
  const Tree& tree(Stretch::List list) const;
  std::vector<int32_t> list_of(Stretch::List list) const;
  bool masked(int64_t place) const;
  KvRange range(const Stretch& how) const;

  const Scene& scene_;
  const size_t request_;
  const Reading& right_;
  const int32_t query_, head_;
  const TokenSums tokens_;
  const Added added_;
  const double cap_;
  double sink_ = -std::numeric_limits<double>::infinity();
  mutable std::map<Stretch::List, std::shared_ptr<const Tree>> trees_;
};

}  // namespace shadowgraph
