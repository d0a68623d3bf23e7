// Three requests whose attention the engine computes, as a call or as a wrong one.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "check/mistakes/diagnose.h"
#include "core/choices.h"

namespace shadowgraph {

inline constexpr int32_t kPage = 4, kPages = 24, kPoolSlots = kPage * kPages;
inline constexpr int32_t kLabHeads = 4, kKvHeads = 2, kDim = 8;

using Lists = std::vector<std::vector<int32_t>>;

/// Three requests over permuted pages, with everything that a call can have; results by the engine.
struct MistakeLab {
  std::vector<int32_t> cu_seqlens_q = {0, 3, 5, 9};
  Lists keys;
  std::vector<float> q, k, v, sinks = {0.5f, -1, 0.25f, 1};
  std::vector<float> no_keys = std::vector<float>(kLabHeads, std::log(7.0f));  // seven of logit 0
  std::vector<std::vector<uint8_t>> masks;                                     // empty: none
  bool masks_of_heads = false;
  AttentionParams params{.num_qo_heads = kLabHeads,
                         .num_kv_heads = kKvHeads,
                         .head_dim_qk = kDim,
                         .head_dim_vo = kDim,
                         .sm_scale = 0.5f,
                         .causal = true};
  float k_scale = 0.5f, v_scale = 2;
  LseSink lse_sink = LseSink::kExcluded;
  std::vector<float> out, lse;
  // Rows of q that the kernel reads, and heads of them
  std::function<int64_t(int64_t row)> query = [](int64_t row) { return row; };

  MistakeLab() {
    Rng rng = Rng::stream(7, 0);
    const auto fill = [&](std::vector<float>& to, size_t count) {
      to.resize(count);
      for (float& x : to) x = rng.signed_unit();
    };
    fill(q, 9 * kLabHeads * kDim), fill(k, kPoolSlots * kKvHeads * kDim), fill(v, k.size());
    const std::vector<int32_t> pages[] = {{5, 2, 9, 17}, {7, 1, 12}, {3, 8, 20, 4, 11}};
    const int32_t lens[] = {13, 9, 18};
    for (size_t r = 0; r < 3; ++r) {
      std::vector<int32_t>& row = keys.emplace_back();
      for (int32_t i = 0; i < lens[r]; ++i)
        row.push_back(pages[r][static_cast<size_t>(i / kPage)] * kPage + i % kPage);
    }
  }

  KvCache cache() {
    KvCache c = KvCache::nhd(TensorView(k.data(), DType::kF32, {kPoolSlots, 1, kKvHeads, kDim}),
                             TensorView(v.data(), DType::kF32, {kPoolSlots, 1, kKvHeads, kDim}));
    c.k_scale = k_scale, c.v_scale = v_scale;
    return c;
  }

  /// A request's part of params.terms.
  struct Terms {
    std::vector<float> key_bias;
    std::vector<uint8_t> causal;
    std::vector<int32_t> leftpad, ranges, range_indptr = {0, 0};
  };
  Terms terms_of(size_t r) const {
    const AttentionTerms& t = params.terms;
    Terms own;
    size_t first = 0, all = 0;
    for (size_t i = 0; i < keys.size(); ++i) all += keys[i].size();
    for (size_t i = 0; i < r; ++i) first += keys[i].size();
    for (size_t h = 0; h < kLabHeads && !t.key_bias.empty(); ++h)
      for (size_t i = 0; i < keys[r].size(); ++i)
        own.key_bias.push_back(t.key_bias[h * all + first + i]);
    if (!t.request_causal.empty()) own.causal = {t.request_causal[r]};
    if (!t.cache_leftpad.empty()) own.leftpad = {t.cache_leftpad[r]};
    if (t.bidirectional_indptr.empty()) return own;
    for (int32_t i = t.bidirectional_indptr[r]; i < t.bidirectional_indptr[r + 1]; ++i)
      for (const int32_t end : {2 * i, 2 * i + 1})
        own.ranges.push_back(t.bidirectional_ranges[static_cast<size_t>(end)]);
    own.range_indptr[1] = static_cast<int32_t>(own.ranges.size() / 2);
    return own;
  }

  /// The rows of one request, by the engine: into out and lse.
  void run_request(size_t r, KvCache pool) {
    const int32_t first = cu_seqlens_q[r], q_len = cu_seqlens_q[r + 1] - first;
    std::vector<float> queries;
    for (int32_t i = 0; i < q_len; ++i) {
      const float* row = q.data() + query(first + i) * kLabHeads * kDim;
      queries.insert(queries.end(), row, row + kLabHeads * kDim);
    }
    const int32_t cu[] = {0, q_len}, lens[] = {static_cast<int32_t>(keys[r].size())};
    PagedAttention c;
    c.q = ConstTensorView(queries.data(), DType::kF32, {q_len, kLabHeads, kDim});
    c.cache = pool;
    c.pages = PageTable::dense(keys[r], std::ssize(keys[r]), lens);
    c.cu_seqlens_q = cu;
    c.params = params;
    const Terms own = terms_of(r);
    if (!params.terms.key_bias.empty()) c.params.terms.key_bias = own.key_bias;
    if (!params.terms.request_causal.empty()) c.params.terms.request_causal = own.causal;
    if (!params.terms.cache_leftpad.empty()) c.params.terms.cache_leftpad = own.leftpad;
    if (!params.terms.bidirectional_indptr.empty()) {
      c.params.terms.bidirectional_ranges = own.ranges;
      c.params.terms.bidirectional_indptr = own.range_indptr;
    }
    std::vector<int64_t> mask_indptr;
    if (r < masks.size()) {
      mask_indptr = {0, std::ssize(masks[r])};
      c.params.causal = false;
      c.params.custom_mask = {CustomMask::Kind::kBool, masks[r], mask_indptr,
                              masks_of_heads ? kLabHeads : 1};
    }
    c.out =
        TensorView(out.data() + first * kLabHeads * kDim, DType::kF32, {q_len, kLabHeads, kDim});
    c.lse = NaturalLse(TensorView(lse.data() + first * kLabHeads, DType::kF32, {q_len, kLabHeads}));
    c.options.lse_sink = lse_sink;
    const Status status = attention_with_kvcache(c);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  void run() {
    out.assign(9 * kLabHeads * kDim, 0), lse.assign(9 * kLabHeads, 0);
    for (size_t r = 0; r < keys.size(); ++r) run_request(r, cache());
  }

  Scene scene() {
    Scene s;
    s.q = ConstTensorView(q.data(), DType::kF32, {9, kLabHeads, kDim});
    s.tokens = cache();
    s.params = params;
    s.rows = {cu_seqlens_q, keys, masks, masks_of_heads};
    s.page_size = kPage;
    return s;
  }
  Result result() const {
    return {ConstTensorView(out.data(), DType::kF32, {9, kLabHeads, kDim}),
            ConstTensorView(lse.data(), DType::kF32, {9, kLabHeads}), LseBase::kNatural, lse_sink};
  }
  std::vector<Explanation> named(const Scene& right) const {
    return diagnose(right, result(), *find_arithmetic("ours_portable"), {.unwritten = true});
  }

  float* row(int64_t token) { return out.data() + token * kLabHeads * kDim; }
  float& lse_of(int64_t token, int64_t head) {
    return lse[static_cast<size_t>(token * kLabHeads + head)];
  }
};

}  // namespace shadowgraph
