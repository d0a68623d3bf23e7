#include "kernels/indexer_logits.h"

#include <algorithm>
#include <array>
#include <limits>

#include "attn/index_page.h"
#include "attn/validate_indexer.h"
#include "core/float_formats.h"
#include "core/parallel.h"
#include "kernels/checked_call.h"
#include "kernels/state_spans.h"

namespace shadowgraph {
namespace {

/// Keys that are decoded together: a quarter of a page, in the first cache as floats.
constexpr int64_t kKeys = 16;
/// Columns of one item of work.
constexpr int64_t kColumns = 16 * kKeys;

constexpr auto kE4M3 = [] {
  std::array<float, 256> values{};
  for (uint32_t bits = 0; bits < values.size(); ++bits)
    values[bits] = decode_float(bits, kE4M3Format);
  return values;
}();
float decoded(std::byte b) { return kE4M3[std::to_integer<size_t>(b)]; }

/// Sixteen keys, channel by channel.
class KeyPanel {
 public:
  KeyPanel(const IndexerLogits& call, int64_t row, int64_t first, int64_t count) : count_(count) {
    for (int64_t i = 0; i < kKeys; ++i) {
      const auto lane = static_cast<size_t>(i);
      if (i >= count) {
        scales_[lane] = 0;
        for (auto& channel : keys_) channel[lane] = 0;
        continue;
      }
      const IndexKeyPlace place = key_place(call, row, first + i);
      const std::byte* key = key_bytes(call, place);
      scales_[lane] = key_scale(call, place);
      for (size_t c = 0; c < keys_.size(); ++c) keys_[c][lane] = decoded(key[c]);
    }
  }

  using Lanes = std::array<double, kKeys>;

  /// q . k of each. Products of e4m3 are multiples of 2^-18 below 2^18, so each sum of 128 of them
  /// is a double, whatever their order. Products are floats, too.
  Lanes dots(const std::byte* q) const {
    Lanes sum{};
    for (size_t c = 0; c < keys_.size(); ++c) {
      const float x = decoded(q[c]);
      for (size_t i = 0; i < kKeys; ++i) sum[i] += static_cast<double>(x * keys_[c][i]);
    }
    return sum;
  }

  /// I of one token, to its logits from column `first` on.
  void score(const IndexerLogits& call, int64_t token, int64_t first) const {
    Lanes sum{};
    for (int64_t head = 0; head < call.q.shape[1]; ++head) {
      const Lanes dot = dots(call.q.at(token, head));
      const double weight = load_float(call.weights.at(token, head), DType::kF32, 0);
      for (size_t i = 0; i < kKeys; ++i) sum[i] += weight * (dot[i] < 0 ? 0 : dot[i]);
    }
    for (int64_t i = 0; i < count_; ++i) {
      const auto lane = static_cast<size_t>(i);
      store_float(call.logits.at(token, first + i), DType::kF32, 0,
                  static_cast<float>(sum[lane] * scales_[lane]));
    }
  }

 private:
  int64_t count_;
  std::array<std::array<float, kKeys>, kIndexDim> keys_;
  std::array<double, kKeys> scales_;
};

/// Columns begin .. end - 1 of a token.
void score_columns(const IndexerLogits& call, int64_t token, int64_t begin, int64_t end) {
  const int64_t first = std::clamp(call.first(token), begin, end);
  const int64_t last = std::clamp(call.last(token), first, end);
  for (int64_t s = begin; s < end; ++s)
    if (s < first || s >= last)
      store_float(call.logits.at(token, s), DType::kF32, 0,
                  -std::numeric_limits<float>::infinity());
  for (int64_t s = first; s < last; s += kKeys)
    KeyPanel(call, call.row(token), s, std::min(kKeys, last - s)).score(call, token, s);
}

}  // namespace

void indexer_logits_kernel(const IndexerLogits& call) {
  const int64_t width = call.logits.shape[1], columns = (width + kColumns - 1) / kColumns;
  const int64_t items = call.tokens() * columns;
  parallel_for(items, team_size(call.options.num_threads, items), [&](int64_t item, int) {
    const int64_t begin = item % columns * kColumns;
    score_columns(call, item / columns, begin, std::min(width, begin + kColumns));
  });
}

Footprint indexer_logits_footprint(const IndexerLogits& call) {
  Footprint spans;
  add_list(&spans, call.rows);
  add_list(&spans, call.ks);
  add_list(&spans, call.ke);
  for (int64_t t = 0; t < call.tokens(); ++t) {
    const auto of = static_cast<int32_t>(t);
    add_line(&spans, call.logits, t, Access::kWrite);
    const int64_t first = call.first(t), last = call.last(t);
    if (first == last) continue;
    add_line(&spans, call.weights, t, Access::kRead);
    add_plane(&spans, call.q, call.q.offset(t), Access::kRead, t);
    if (call.is_paged()) {
      const int64_t page = first / kIndexPageTokens, behind = (last - 1) / kIndexPageTokens + 1;
      add_block(&spans,
                {call.page_table.data, call.page_table.offset(call.row(t), page), 1, 4,
                 Access::kRead, of},
                {}, {behind - page, call.page_table.stride[1]});
    }
    const void* keys = call.is_paged() ? call.pages.data : call.k.data;
    const void* scales = call.is_paged() ? call.pages.data : call.k_scale.data;
    const uint32_t unit = call.is_paged() ? 1 : 4;  // bytes of a page, or scales
    for (int64_t s = first; s < last; ++s) {
      const IndexKeyPlace place = key_place(call, call.row(t), s);
      append(&spans, {keys, place.key, kIndexDim, 1, Access::kRead, of});
      append(&spans, {scales, place.scale / unit, 4 / unit, unit, Access::kRead, of});
    }
  }
  return spans;
}

Status indexer_logits(const IndexerLogits& call) noexcept {
  return checked(call, [&] { indexer_logits_kernel(call); });
}

}  // namespace shadowgraph
