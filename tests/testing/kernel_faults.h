// A small kernel of a user, online softmax in tiles of keys, and slips that users' kernels had.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/float_formats.h"
#include "shadowgraph/testing.h"

namespace shadowgraph::testing {

enum class Slip : uint8_t {
  kNone,
  kPaddingOfATile,      // llama.cpp#29034: keys of a padded last tile join the sum
  kOffsetIn32Bits,      // the offset of a page is computed in 32 bits
  kWindowOneShort,      // a window's count is taken for its radius
  kMaximumNotRescaled,  // a tile with a larger maximum leaves the sum as it was
  kMaskMultiplies,      // unseen keys have the weight 0, and their values are multiplied with it
  kHeadsInTurn,         // query head h reads KV head h % num_kv_heads
  kLseInBase2,
  kCapBehindMask,  // the soft cap makes a number of a masked key's -inf
  kSinkLost,
  kEmptySplitMerged,  // a split that sees no key is merged as if its maximum were 0
  kMaximumFromZero,   // the running maximum begins at 0
  kNoMaximum,         // weights are exp of the logit itself
  kPaddingInMaximum,  // the maximum of a tile counts the rest of its last page; NaN it leaves out
  kNanVanishes,       // a weight that is NaN counts as 0
  kNanSpreads,        // what one row made NaN the next one is, too
  kRowBehind,         // one row more than the batch has is written
  kRowLeft,           // rows that see no key are not written
  kWritesKeys,        // scratch in the place of the first key
  kThrows,
};

/// Finite numbers in the place of infinities, and a maximum that is another's.
struct Sentinels {
  static constexpr float kInf = std::numeric_limits<float>::infinity();
  float masked = -kInf;       // the logit of a key that is not seen
  float first_top = -kInf;    // the running maximum begins there
  float empty_split = -kInf;  // the maximum of a split that sees no key
  float most = kInf;          // logits are clamped to it and its negative
  float most_lse = kInf;      // the LSE likewise
  bool tops_of_the_row_before = false, lse_without_top = false;
};

/// Reads a paged call, decode or extend, of any layout and dtype.
class TiledKernel {
 public:
  TiledKernel(const PagedAttention& call, Slip slip, const Sentinels& sentinels = {})
      : call_(call), p_(call.params), slip_(slip), sentinels_(sentinels) {}

  void run() {
    if (slip_ == Slip::kThrows) throw std::runtime_error("no such head dim");
    const int64_t batch = call_.pages.batch();
    for (int64_t b = 0; b < batch; ++b) {
      const bool decode = call_.cu_seqlens_q.empty();
      const auto i = static_cast<size_t>(b);
      const int64_t first = decode ? b : call_.cu_seqlens_q[i];
      const int64_t q_len = decode ? 1 : call_.cu_seqlens_q[i + 1] - first;
      for (int64_t q = 0; q < q_len; ++q)
        for (int32_t h = 0; h < p_.num_qo_heads; ++h) row(b, first + q, q, q_len, h);
    }
    if (slip_ == Slip::kWritesKeys) call_.cache.k.data[0] ^= std::byte{1};
    if (slip_ == Slip::kRowBehind)
      for (int64_t d = 0; d < p_.head_dim_vo; ++d) store(call_.q.shape[0], 0, d, 0);
  }

 private:
  static constexpr int64_t kTile = 16, kSplit = 64;
  /// The result of a part of the keys.
  struct State {
    float top = -std::numeric_limits<float>::infinity(), sum = 0;
    std::vector<float> acc;
    bool seen = false;  // some key was
  };

  int64_t kv_len(int64_t b) const {
    const PageTable& t = call_.pages;
    if (t.form == PageTable::Form::kDense) return t.cache_seqlens[static_cast<size_t>(b)];
    const auto i = static_cast<size_t>(b);
    const int64_t pages = t.kv_indptr[i + 1] - t.kv_indptr[i];
    return pages == 0 ? 0 : (pages - 1) * call_.cache.page_size + t.last_page_len[i];
  }
  int64_t page_of(int64_t b, int64_t key) const {
    const PageTable& t = call_.pages;
    const int64_t column = key / call_.cache.page_size;
    if (t.form == PageTable::Form::kDense)
      return column < t.max_pages ? t.page_table[static_cast<size_t>(b * t.max_pages + column)] : 0;
    return t.kv_indices[static_cast<size_t>(t.kv_indptr[static_cast<size_t>(b)] + column)];
  }
  float element(const KvPlane& plane, float scale, int64_t b, int64_t key, int64_t head,
                int64_t d) const {
    const int64_t page = page_of(b, key), token = key % call_.cache.page_size;
    int64_t at = plane.offset(page, token, head, d);
    if (slip_ == Slip::kOffsetIn32Bits) at = static_cast<int32_t>(static_cast<uint32_t>(at));
    const float z = plane.scales ? plane.scales[plane.scale_offset(page, token, head)] : 1;
    return load_float(plane.data, plane.dtype, at) * z * scale;
  }
  void store(int64_t row, int64_t head, int64_t d, float value) const {
    store_float(call_.out.data, call_.out.dtype, call_.out.offset(row, head, d), value);
  }

  bool sees(int64_t b, int64_t q, int64_t q_len, int64_t key) const {
    const int64_t length = kv_len(b), at = length - q_len + q;
    if (key >= length) return slip_ == Slip::kPaddingOfATile;
    if (p_.causal && key > at) return false;
    const int64_t left = p_.window_left - (slip_ == Slip::kWindowOneShort ? 1 : 0);
    if (p_.window_left >= 0 && key < at - left) return false;
    if (p_.window_right >= 0 && key > at + p_.window_right) return false;
    const CustomMask& m = p_.custom_mask;
    if (m.kind == CustomMask::Kind::kNone) return true;
    const auto begin = static_cast<size_t>(m.mask_indptr[static_cast<size_t>(b)]);
    const auto pair = static_cast<size_t>(q * length + key);
    if (m.kind == CustomMask::Kind::kBool) return m.data[begin + pair] != 0;
    return (m.data[begin + pair / 8] >> (pair % 8) & 1) != 0;
  }

  float logit(int64_t b, int64_t row, int32_t head, int64_t kv_head, int64_t key) const {
    float s = 0;
    for (int64_t d = 0; d < p_.head_dim_qk; ++d)
      s += load_float(call_.q.data, call_.q.dtype, call_.q.offset(row, head, d)) *
           element(call_.cache.k, call_.cache.k_scale, b, key, kv_head, d);
    return s * p_.sm_scale;
  }

  void tile(int64_t b, int64_t row, int64_t q, int64_t q_len, int32_t head, int64_t begin,
            State* s) const {
    constexpr float kNothing = -std::numeric_limits<float>::infinity();
    const int32_t group = p_.num_qo_heads / p_.num_kv_heads;
    const int64_t kv_head = slip_ == Slip::kHeadsInTurn ? head % p_.num_kv_heads : head / group;
    const bool padded = slip_ == Slip::kPaddingOfATile;
    const int64_t end = padded ? begin + kTile : std::min(begin + kTile, kv_len(b));
    std::vector<float> logits;
    float top = s->top;
    for (int64_t key = begin; key < end; ++key) {
      const bool seen = sees(b, q, q_len, key);
      float x =
          seen ? std::clamp(logit(b, row, head, kv_head, key), -sentinels_.most, sentinels_.most)
               : sentinels_.masked;
      s->seen |= seen;
      if (p_.logits_soft_cap > 0 && (x != kNothing || slip_ == Slip::kCapBehindMask))
        x = p_.logits_soft_cap * std::tanh(x / p_.logits_soft_cap);
      if (std::isnan(x) && slip_ == Slip::kNanVanishes) x = kNothing;
      logits.push_back(x), top = std::isnan(x) ? x : std::max(top, x);
    }
    if (top == kNothing) return;
    if (slip_ == Slip::kPaddingInMaximum && end % call_.cache.page_size != 0)
      top = std::fmax(top, logit(b, row, head, kv_head, end));
    if (slip_ == Slip::kNoMaximum) top = 0;
    if (sentinels_.tops_of_the_row_before && !std::isinf(top_before_)) top = top_before_;
    if (slip_ != Slip::kMaximumNotRescaled || s->sum == 0) {
      const float down = std::exp(s->top - top);
      s->sum *= down;
      for (float& a : s->acc) a *= down;
    }
    s->top = top;
    for (int64_t key = begin; key < end; ++key) {
      const float p = std::exp(logits[static_cast<size_t>(key - begin)] - top);
      if (p == 0 && slip_ != Slip::kMaskMultiplies) continue;
      s->sum += p;
      for (int64_t d = 0; d < p_.head_dim_vo; ++d)
        s->acc[static_cast<size_t>(d)] +=
            p * element(call_.cache.v, call_.cache.v_scale, b, key, kv_head, d);
    }
  }

  State split(int64_t b, int64_t row, int64_t q, int64_t q_len, int32_t head, int64_t begin) const {
    State s;
    s.acc.assign(static_cast<size_t>(p_.head_dim_vo), 0);
    s.top = slip_ == Slip::kMaximumFromZero ? 0 : sentinels_.first_top;
    for (int64_t at = begin; at < std::min(begin + kSplit, kv_len(b)); at += kTile)
      tile(b, row, q, q_len, head, at, &s);
    if (slip_ == Slip::kEmptySplitMerged && s.sum == 0) s.top = 0;
    if (!s.seen && slip_ == Slip::kNone) s.top = sentinels_.empty_split, s.sum = 0, clear(&s.acc);
    return s;
  }

  void row(int64_t b, int64_t row, int64_t q, int64_t q_len, int32_t head) {
    State all;
    all.acc.assign(static_cast<size_t>(p_.head_dim_vo), 0);
    for (int64_t at = 0; at < kv_len(b); at += kSplit) {
      const State one = split(b, row, q, q_len, head, at);
      const float top = std::max(all.top, one.top);
      if (std::isinf(top) && !std::isnan(one.top)) continue;
      const float mine = std::exp(all.top - top), its = std::exp(one.top - top);
      all.seen |= one.seen, all.top = top, all.sum = all.sum * mine + one.sum * its;
      for (size_t d = 0; d < all.acc.size(); ++d) all.acc[d] = all.acc[d] * mine + one.acc[d] * its;
    }
    top_before_ = all.top;
    if (!all.seen && slip_ == Slip::kNone) all.sum = 0;
    finish(row, head, all);
  }

  static void clear(std::vector<float>* list) { std::ranges::fill(*list, 0.F); }

  void finish(int64_t row, int32_t head, State& s) {
    if (slip_ == Slip::kNanSpreads) s.sum += spread_, spread_ = std::isnan(s.sum) ? s.sum : 0;
    if (s.sum == 0 && slip_ == Slip::kRowLeft) return;
    const bool empty = s.sum == 0 && slip_ != Slip::kEmptySplitMerged;
    const float top_of_lse = sentinels_.lse_without_top ? 0 : s.top;
    float lse = empty ? -std::numeric_limits<float>::infinity() : top_of_lse + std::log(s.sum);
    if (!empty) lse = std::clamp(lse, -sentinels_.most_lse, sentinels_.most_lse);
    if (!p_.sinks.empty() && slip_ != Slip::kSinkLost && !empty) {
      const float sink = p_.sinks[static_cast<size_t>(head)], top = std::max(s.top, sink);
      const float down = std::exp(s.top - top);
      s.sum = s.sum * down + std::exp(sink - top);
      for (float& a : s.acc) a *= down;
    }
    for (int64_t d = 0; d < p_.head_dim_vo; ++d)
      store(row, head, d, empty ? 0 : s.acc[static_cast<size_t>(d)] / s.sum);
    if (slip_ == Slip::kLseInBase2) lse *= 1.44269504f;
    if (call_.lse.defined())
      store_float(call_.lse.tensor.data, DType::kF32, call_.lse.tensor.offset(row, head), lse);
  }

  const PagedAttention& call_;
  const AttentionParams& p_;
  Slip slip_;
  Sentinels sentinels_;
  float spread_ = 0, top_before_ = -std::numeric_limits<float>::infinity();
};

}  // namespace shadowgraph::testing
