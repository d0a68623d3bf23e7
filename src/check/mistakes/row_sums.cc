#include "check/mistakes/row_sums.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "check/mistakes/readings.h"

namespace shadowgraph {
namespace {

constexpr double kUnsaid = std::numeric_limits<double>::quiet_NaN();

double log_add(double a, double b) {
  const double top = std::max(a, b);
  return std::isinf(top) ? top : top + std::log(std::exp(a - top) + std::exp(b - top));
}

}  // namespace

KeySum KeySum::operator+(const KeySum& other) const {
  if (other.empty() || empty()) {
    KeySum one = empty() ? other : *this;
    one.unknown = unknown || other.unknown;
    return one;
  }
  const KeySum& high = top >= other.top ? *this : other;
  const KeySum& low = top >= other.top ? other : *this;
  const double factor = std::exp(low.top - high.top);
  KeySum sum = high;
  sum.mass += factor * low.mass;
  for (size_t i = 0; i < kLooks; ++i) sum.values[i] += factor * low.values[i];
  sum.unknown = unknown || other.unknown;
  return sum;
}

double Got::distance(const Estimate& e) const {
  double most = 0;
  const auto take = [&](double got, double expected, double one) {
    if (std::isnan(got) || std::isnan(expected) || got == expected) return;
    const double apart = std::abs(got - expected) / one;
    most = std::isfinite(apart) ? std::max(most, apart) : kInf;
  };
  take(lse, lse_of(e), 1);
  for (size_t i = 0; i < kLooks; ++i) take(out[i], e.out[i], unit > 0 ? unit : 1);
  return most;
}

/// Sums of powers of two neighbours: any stretch is a few of them, and none is a difference.
class RowSums::Tree {
 public:
  explicit Tree(const std::vector<KeySum>& leaves) : size_(leaves.size()), nodes_(2 * size_) {
    std::ranges::copy(leaves, nodes_.begin() + static_cast<std::ptrdiff_t>(size_));
    for (size_t i = size_; i-- > 1;) nodes_[i] = nodes_[2 * i] + nodes_[2 * i + 1];
  }
  KeySum sum(int64_t begin, int64_t end) const {
    KeySum all;
    if (begin >= end) return all;
    size_t l = static_cast<size_t>(begin) + size_, r = static_cast<size_t>(end) + size_;
    for (; l < r; l /= 2, r /= 2) {
      if (l % 2 == 1) all = all + nodes_[l++];
      if (r % 2 == 1) all = all + nodes_[--r];
    }
    return all;
  }
  const KeySum& leaf(int64_t at) const { return nodes_[static_cast<size_t>(at) + size_]; }

 private:
  size_t size_;
  std::vector<KeySum> nodes_;
};

bool RowSums::masked(int64_t place) const {
  if (right_.mask.empty() || place >= right_.mask_width) return false;
  const int64_t bit = right_.mask_row(head_, query_) * right_.mask_width + place;
  return bit >= std::ssize(right_.mask) || right_.mask[static_cast<size_t>(bit)] == 0;
}

/// kRow: three times the row's length, its own keys in the middle.
std::vector<int32_t> RowSums::list_of(Stretch::List list) const {
  const int64_t length = std::ssize(right_.keys);
  if (list <= Stretch::List::kUnscaled) return right_.keys;
  std::vector<int32_t> tokens;
  if (list == Stretch::List::kPadding) {
    for (const int32_t key : right_.keys) tokens.push_back(key % scene_.page_size);
    return tokens;
  }
  for (int64_t place = -length; place < 2 * length; ++place) {
    const int64_t token = token_of(scene_, request_, right_, place);
    const bool there = token >= 0 && token < scene_.tokens.num_slots();
    tokens.push_back(there ? static_cast<int32_t>(token) : kNoToken);
  }
  return tokens;
}

const RowSums::Tree& RowSums::tree(Stretch::List list) const {
  std::shared_ptr<const Tree>& tree = trees_[list];
  if (tree != nullptr) return *tree;
  const std::vector<int32_t> tokens = list_of(list);
  std::vector<int32_t> known;
  for (const int32_t token : tokens)
    if (token != kNoToken) known.push_back(token);
  const std::vector<KeySum> sums = tokens_(known, list == Stretch::List::kUnscaled);
  std::vector<KeySum> leaves(tokens.size());
  for (size_t i = 0, next = 0; i < tokens.size(); ++i) {
    if (tokens[i] == kNoToken) {
      leaves[i].unknown = true;
      continue;
    }
    const bool hidden = list != Stretch::List::kRow && masked(static_cast<int64_t>(i));
    if (!hidden) leaves[i] = sums[next];
    // Another row's places have other terms, which nobody knows: their estimates are rough.
    if (added_ && list != Stretch::List::kRow && list != Stretch::List::kBare) {
      const double more = added(static_cast<int32_t>(i));
      leaves[i].top += more;
      if (more == -kInf) leaves[i] = {};
    }
    ++next;
  }
  tree = std::make_shared<const Tree>(leaves);
  return *tree;
}

KvRange RowSums::range(const Stretch& how) const {
  const auto length = static_cast<int32_t>(right_.keys.size());
  const AttentionParams& p = how.params != nullptr ? *how.params : right_.params;
  const MaskShape mask = mask_of(right_, p, length, length);
  return kv_range(mask, right_.ahead.value_or(int64_t{length} - right_.q_len) + query_ + how.moved);
}

KeySum RowSums::seen(int64_t begin, int64_t end, const Stretch& how) const {
  const KvRange all = range(how);
  begin = std::max<int64_t>(begin, all.begin), end = std::min<int64_t>(end, all.end);
  const Tree& keys = tree(how.list);
  if (how.list != Stretch::List::kRow) return keys.sum(begin, end);
  const int64_t first = how.shift + std::ssize(right_.keys);
  if (right_.mask.empty()) return keys.sum(begin + first, end + first);
  KeySum sum;
  for (int64_t place = begin; place < end; ++place)
    if (!masked(place)) sum = sum + keys.leaf(place + first);
  return sum;
}

bool RowSums::sees(int64_t place) const {
  const KvRange all = range({});
  return place >= all.begin && place < all.end && !masked(place);
}

KeySum RowSums::read_as(const std::function<double(int32_t, double)>& logit_of,
                        const std::function<int32_t(int32_t)>& value_of) const {
  const KvRange all = range({});
  const Tree& keys = tree(added_ ? Stretch::List::kBare : Stretch::List::kOwn);
  KeySum sum;
  for (int32_t k = all.begin; k < all.end; ++k) {
    KeySum key = keys.leaf(k);
    if (key.empty()) continue;
    key.top = logit_of(k, key.top);
    if (key.top == -kInf) continue;
    if (value_of) {
      const int32_t other = value_of(k);
      if (other < 0) key.unknown = true;
      if (other >= 0) key.values = keys.leaf(other).values;
    }
    sum = sum + key;
  }
  return sum;
}

KeySum RowSums::read_as(double factor, const std::function<int32_t(int32_t)>& value_of) const {
  return read_as(
      [&](int32_t place, double logit) {
        const double scaled =
            cap_ > 0 ? cap_ * std::tanh(factor * uncapped(logit) / cap_) : factor * logit;
        return scaled + added(place);
      },
      value_of);
}

KeySum RowSums::token(int32_t token) const { return tokens_({token}, false).front(); }

Estimate RowSums::of(const KeySum& keys) const {
  Estimate e;
  e.lse = keys.empty() ? -kInf : keys.top + std::log(keys.mass);
  e.lse_with_sink = log_add(e.lse, sink_);
  if (keys.empty()) return e;
  const double total = keys.mass + std::exp(sink_ - keys.top);
  for (size_t i = 0; i < kLooks; ++i) e.out[i] = keys.values[i] / total;
  return e;
}

std::optional<Estimate> RowSums::merged(std::span<const KeySum> parts, const Reading& how) const {
  std::vector<Estimate> of_parts;
  for (const KeySum& part : parts) {
    if (part.unknown) return {};
    if (!part.empty()) of_parts.push_back(of(part));
  }
  if (of_parts.empty() || (of_parts.size() < 2 && !how.first_unscaled)) return {};
  const bool mean = how.merge == Reading::Merge::kUnweighted;
  const auto weight_of = [&](size_t i) {
    return mean ? 0 : (i == 0 ? how.first_factor : how.other_factor) * of_parts[i].lse;
  };
  Estimate e;
  double top = -kInf, sum = 0;
  e.lse = -kInf;
  for (size_t i = 0; i < of_parts.size(); ++i) {
    top = std::max(top, weight_of(i));
    e.lse = log_add(e.lse, of_parts[i].lse);
  }
  for (size_t i = 0; i < of_parts.size(); ++i) {
    const double weight = std::exp(weight_of(i) - top);
    sum += weight;
    for (size_t d = 0; d < kLooks; ++d) e.out[d] += weight * of_parts[i].out[d];
  }
  for (double& x : e.out) x /= sum;
  if (how.merge == Reading::Merge::kFirstLse) e.lse = of_parts.front().lse;
  if (how.merge == Reading::Merge::kLastLse) e.lse = of_parts.back().lse;
  if (mean || how.first_factor != 1 || how.other_factor != 1) e.lse = kUnsaid;
  e.lse_with_sink = e.lse;
  return e;
}

}  // namespace shadowgraph
