// The only home of causal and window arithmetic: the predicate attends(q, k), which the oracle asks
// for every pair, and the closed form kv_range(q), which kernels use. tests/attn/mask_test.cc binds
// the two, exhaustively.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "shadowgraph/attention/params.h"

namespace shadowgraph {

/// The mask of one request. Query q stands at key position kv_len - q_len + q (bottom-right
/// alignment), which is negative for the top rows where q_len > kv_len.
struct MaskShape {
  int32_t q_len = 0, kv_len = 0;
  bool causal = false;
  int32_t window_left = -1, window_right = -1;
  // AttentionTerms
  int32_t attention_chunk = 0, chunk_lookback = 0, first_key = 0;
  std::span<const int32_t> bidirectional = {};  // [ranges, 2]: first and last position

  /// Without what a request has for itself.
  static MaskShape of(const AttentionParams& p, int32_t q_len, int32_t kv_len) {
    return {q_len,
            kv_len,
            p.causal,
            p.window_left,
            p.window_right,
            p.terms.attention_chunk,
            p.terms.chunk_lookback};
  }
  static MaskShape of(const AttentionParams& p, int64_t request, int32_t q_len, int32_t kv_len) {
    MaskShape m = of(p, q_len, kv_len);
    const AttentionTerms& t = p.terms;
    const auto r = static_cast<size_t>(request);
    if (!t.request_causal.empty()) m.causal = t.request_causal[r] != 0;
    if (!t.cache_leftpad.empty()) m.first_key = t.cache_leftpad[r];
    if (!t.bidirectional_indptr.empty()) {
      const auto first = static_cast<size_t>(t.bidirectional_indptr[r]);
      const auto end = static_cast<size_t>(t.bidirectional_indptr[r + 1]);
      m.bidirectional = t.bidirectional_ranges.subspan(2 * first, 2 * (end - first));
    }
    return m;
  }
};

/// The chunk of a position, which may be below 0.
constexpr int64_t chunk_of(int64_t position, int64_t chunk) {
  return position >= 0 ? position / chunk : -((chunk - 1 - position) / chunk);
}

/// Queries of a request that are computed: the first max_seqlen_q, all where that is 0. Which keys
/// they see does not depend on it.
constexpr int32_t launched_rows(int32_t q_len, int32_t max_seqlen_q) {
  return max_seqlen_q > 0 ? std::min(q_len, max_seqlen_q) : q_len;
}

/// Does query q see key k? Without the custom mask.
constexpr bool attends(const MaskShape& m, int64_t q, int64_t k) {
  const int64_t position = int64_t{m.kv_len} - m.q_len + q;
  if (k < m.first_key || k >= m.kv_len) return false;
  for (size_t i = 0; i < m.bidirectional.size(); i += 2) {
    const int64_t first = m.bidirectional[i], last = m.bidirectional[i + 1];
    if (position >= first && position <= last && k >= first && k <= last) return true;
  }
  if (m.attention_chunk > 0) {
    const int64_t own = chunk_of(position, m.attention_chunk), of_key = k / m.attention_chunk;
    if (of_key > own || of_key < own - m.chunk_lookback) return false;
  }
  if (m.causal && k > position) return false;
  if (m.window_left >= 0 && position - k > m.window_left) return false;
  if (m.window_right >= 0 && k - position > m.window_right) return false;
  return true;
}

/// Keys begin <= k < end; empty ranges are {0, 0}.
struct KvRange {
  int32_t begin = 0, end = 0;
  constexpr int32_t size() const { return end - begin; }
  bool operator==(const KvRange&) const = default;
};

/// All keys that query q sees: they are one range. So are those of a bidirectional range and all
/// others, as both hold the query's own key.
constexpr KvRange kv_range(const MaskShape& m, int64_t q) {
  const int64_t position = int64_t{m.kv_len} - m.q_len + q;
  int64_t begin = 0, end = m.kv_len;
  if (m.attention_chunk > 0) {
    const int64_t own = chunk_of(position, m.attention_chunk);
    begin = std::max<int64_t>(begin, (own - m.chunk_lookback) * m.attention_chunk);
    end = std::min<int64_t>(end, (own + 1) * m.attention_chunk);
  }
  if (m.window_left >= 0) begin = std::max(begin, position - m.window_left);
  if (m.window_right >= 0) end = std::min(end, position + m.window_right + 1);
  if (m.causal) end = std::min(end, position + 1);
  for (size_t i = 0; i < m.bidirectional.size(); i += 2) {
    const int64_t first = m.bidirectional[i], last = m.bidirectional[i + 1];
    if (position >= first && position <= last)
      begin = std::min(begin, first), end = std::clamp<int64_t>(last + 1, end, m.kv_len);
  }
  begin = std::max<int64_t>(begin, m.first_key);
  if (begin >= end) return {};
  return {static_cast<int32_t>(begin), static_cast<int32_t>(end)};
}

/// The keys that any of the queries [q_begin, q_end) of the request sees: both ends grow with q,
/// and rows that see no key stand before the first one, where a mask's first key is the right
/// beginning.
constexpr KvRange kv_range(const MaskShape& m, int64_t q_begin, int64_t q_end) {
  if (q_begin >= q_end) return {};
  const int32_t end = kv_range(m, q_end - 1).end;
  if (end == 0) return {};
  return {std::max(kv_range(m, q_begin).begin, m.first_key), end};
}

/// The mask of queries that stand at keys ahead + q, written as a mask that is aligned at the end.
/// It has only the first queries and keys: queries behind them see no key, and no query sees the
/// keys behind them. Example: causal, 4 queries, 6 keys, ahead 0: 4 queries over the first 4 keys.
constexpr MaskShape aligned(const MaskShape& m, int64_t ahead) {
  const int64_t right = m.causal ? 0 : m.window_right;
  int64_t keys = m.kv_len, queries = m.q_len;
  if (right >= 0) keys = std::clamp<int64_t>(ahead + queries + right, 0, keys);
  if (m.window_left >= 0) queries = std::clamp<int64_t>(keys + m.window_left - ahead, 0, queries);
  if (queries == 0 || keys == 0) return {};
  const int64_t shift = ahead + queries - keys;  // what alignment at the end leaves out
  const auto window = [](int64_t size) {
    return static_cast<int32_t>(std::min<int64_t>(size, INT32_MAX));
  };
  return {static_cast<int32_t>(queries), static_cast<int32_t>(keys), false,
          m.window_left < 0 ? -1 : window(m.window_left - shift),
          right < 0 ? -1 : window(right + shift)};
}

}  // namespace shadowgraph
