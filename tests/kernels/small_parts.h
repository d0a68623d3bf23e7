// One request whose attention is computed in parts, and where these leave their results.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "attn/mask.h"
#include "core/choices.h"
#include "kernels/dense/attend_part.h"
#include "kernels/small_attention.h"

namespace shadowgraph {

/// One request, of which parts are computed into memory of their own.
class PartRequest {
 public:
  PartRequest(bool ragged, SmallShape shape)
      : whole(ragged ? CaseKernel::kPrefillRagged : CaseKernel::kPrefillPaged, "",
              std::move(shape)) {
    const PageTable& pages = whole.paged.pages;
    for (int32_t t = 0; !ragged && t < keys(); ++t) {
      const int32_t page = pages.page_table[static_cast<size_t>(t / whole.shape.page_size)];
      slots_.push_back(page * whole.shape.page_size + t % whole.shape.page_size);
    }
  }
  int32_t tokens() const { return whole.q_len(0); }
  int32_t keys() const { return whole.kv_len(0); }
  void randomise() {
    Rng rng(7);
    const auto random = [&rng](auto...) { return 2 * rng.signed_unit(); };
    whole.fill_q(random), whole.fill_k(random), whole.fill_v(random);
  }

  /// Queries and keys of the request, at their places; without outputs.
  AttentionPart part(KvRange queries, KvRange keys_seen) const {
    AttentionPart p;
    p.q = rows(whole.paged.q, queries);
    p.q_position = keys() - tokens() + queries.begin;
    p.key_position = keys_seen.begin;
    if (whole.ragged_kv()) {
      p.keys.k = rows(whole.ragged.k, keys_seen);
      p.keys.v = rows(whole.ragged.v, keys_seen);
    } else {
      p.keys.cache = whole.paged.cache;
      p.keys.slots = std::span(slots_).subspan(static_cast<size_t>(keys_seen.begin),
                                               static_cast<size_t>(keys_seen.size()));
    }
    p.params = whole.params;
    p.options.num_threads = 1;
    return p;
  }
  template <class Byte>
  static BasicTensorView<Byte> rows(BasicTensorView<Byte> t, KvRange range) {
    if (t.data != nullptr) t.data = t.at(range.begin);
    t.shape[0] = range.size();
    return t;
  }

  SmallAttention whole;

 private:
  std::vector<int32_t> slots_;
};

/// Where parts leave their results: [tokens, states, heads(, dim)].
class PartResults {
 public:
  PartResults(const PartRequest& r, int64_t states)
      : states_(states),
        heads_(r.whole.shape.qo_heads),
        dim_(r.whole.shape.dim_vo),
        v(static_cast<size_t>(r.tokens() * states * heads_ * dim_), NAN),
        s(static_cast<size_t>(r.tokens() * states * heads_), NAN) {}

  Status run(AttentionPart p, int64_t first_token, int64_t state) {
    const int64_t tokens = p.q.shape[0], row = first_token * states_ + state;
    p.out = TensorView(&v[static_cast<size_t>(row * heads_ * dim_)], DType::kF32,
                       {tokens, heads_, dim_}, {states_ * heads_ * dim_, dim_, 1});
    p.lse = NaturalLse(TensorView(&s[static_cast<size_t>(row * heads_)], DType::kF32,
                                  {tokens, heads_}, {states_ * heads_, 1}));
    return attend_part(p);
  }
  bool operator==(const PartResults& o) const {
    return std::memcmp(v.data(), o.v.data(), v.size() * 4) == 0 &&
           std::memcmp(s.data(), o.s.data(), s.size() * 4) == 0;
  }
  /// Into the outputs of the whole.
  void merge_into(SmallAttention& whole) const {
    const int64_t tokens = whole.q_len(0);
    MergeStates<LseBase::kNatural> m;
    m.v = ConstTensorView(v.data(), DType::kF32, {tokens, states_, heads_, dim_});
    m.s = ConstTensorView(s.data(), DType::kF32, {tokens, states_, heads_});
    m.out = whole.paged.out, m.lse = whole.paged.lse;
    EXPECT_EQ(merge_states(m).to_string(), "ok");
  }

 private:
  const int64_t states_, heads_, dim_;

 public:
  std::vector<float> v, s;
};

}  // namespace shadowgraph
