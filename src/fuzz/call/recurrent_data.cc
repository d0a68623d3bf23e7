#include "fuzz/call/recurrent_data.h"

#include <cmath>
#include <limits>

#include "core/float_formats.h"
#include "fuzz/call/guarded.h"

namespace shadowgraph {
namespace {

float integer(Rng& rng, int largest) {
  return static_cast<float>(static_cast<int>(rng.below(static_cast<uint32_t>(2 * largest + 1))) -
                            largest);
}

/// Every [token, head] has `ones` ones at random places, and nothing else.
void fill_hot(LogicalTensor& t, int ones, Rng& rng) {
  const int64_t rows = t.dim == 0 ? 0 : t.count() / t.dim;
  for (int64_t row = 0; row < rows; ++row)
    for (int i = 0; i < ones; ++i)
      store_float(t.bytes.data(), t.dtype, row * t.dim + rng.below(static_cast<uint32_t>(t.dim)),
                  1);
}

/// Integers that all types hold. States stay below 2^8 where a tree reads them back in few bits:
/// then keys are one-hot and rows short.
void fill_exact(const Case& c, RecurrentData& d, Rng& rng) {
  const auto& x = std::get<RecurrentCase>(c.call);
  // What the delta rule reads of a state it gives back changed: one column a key.
  const bool one_hot =
      x.tree || x.rule == LinearAttention::Rule::kDelta || c.data == CaseData::kSelector;
  one_hot ? fill_hot(d.k, 1, rng) : fill(d.k, [&] { return integer(rng, 3); });
  c.data == CaseData::kSelector ? fill_hot(d.q, 2, rng)
                                : fill(d.q, [&] { return integer(rng, 2); });
  fill(d.v, [&] { return integer(rng, 7); });
  // z sigmoid(z) is z in double from 64 on.
  fill(d.z, [&] { return 64 * static_cast<float>(rng.below(3)); });
  fill(d.skip, [&] { return integer(rng, 3); });
  fill(d.beta, [&] { return static_cast<float>(rng.below(3)); });
  const uint32_t rare = x.decay_rank == 1 ? 16 : 6;
  fill(d.log_decay, [&] {
    if (rng.below(rare) != 0) return 0.F;
    return rng.below(2) ? -1000.F : -std::numeric_limits<float>::infinity();
  });
  fill(d.x, [&] { return integer(rng, 15); });
  c.data == CaseData::kSelector ? fill_hot(d.weight, 2, rng)
                                : fill(d.weight, [&] { return integer(rng, 7); });
  fill(d.bias, [&] { return integer(rng, 9); });
}

void fill_inexact(const Case& c, RecurrentData& d, Rng& rng) {
  const auto& x = std::get<RecurrentCase>(c.call);
  const bool peaked = c.data == CaseData::kPeaked;
  // The delta rule is a contraction for keys of norm 1 at most.
  const bool delta = x.rule == LinearAttention::Rule::kDelta && !x.l2norm;
  fill_random(d.q, peaked ? 8 : 1, rng);
  fill_random(d.k, delta ? 1 / std::sqrt(static_cast<float>(x.head_dim_k)) : 1, rng);
  fill_random(d.v, 1, rng);
  fill_random(d.z, 3, rng);
  fill_random(d.skip, 1, rng);
  const float most = x.rule == LinearAttention::Rule::kDelta ? 1 : 2;
  fill(d.beta, [&] { return most * (0.5F + 0.5F * rng.signed_unit()); });
  const float longest = peaked ? 0.02F : 2.F;
  fill(d.log_decay, [&] {
    if (rng.below(16) == 0) return rng.below(4) ? 0.F : -200.F;
    return -longest * (0.5F + 0.5F * rng.signed_unit());
  });
  fill_random(d.x, peaked ? 8 : 1, rng);
  fill_random(d.weight, 1, rng);
  fill_random(d.bias, 1, rng);
}

void make_slots(const Case& c, RecurrentData& d, Rng& rng) {
  const auto& x = std::get<RecurrentCase>(c.call);
  const bool conv = x.call == RecurrentCase::Call::kConv1d;
  const int64_t elements =
      conv ? int64_t{x.dim} * (x.width - 1) : int64_t{x.num_v_heads} * x.head_dim_v * x.head_dim_k;
  const bool exact = is_exact(c.data);
  for (size_t i = 0; i < x.rows.size() + RecurrentData::kForeignSlots; ++i) {
    LogicalTensor state(conv ? x.dtype : x.state_dtype, 1, 1, elements);
    const bool read = i < x.rows.size() && x.rows[i].slot && x.rows[i].initial;
    if (exact) {
      fill(state, [&] { return integer(rng, 32); });
    } else if (read) {
      fill_random(state, 1, rng);
    } else {
      state.bytes.assign(state.bytes.size(), kPoison);
    }
    d.slots.push_back(std::move(state.bytes));
  }
}

}  // namespace

RecurrentData make_recurrent_data(const Case& c) {
  const auto& x = std::get<RecurrentCase>(c.call);
  Rng rng(c.seed);
  RecurrentData d;
  d.first_token = {0};
  for (const RecurrentCase::Row& row : x.rows) {
    for (int32_t j = 0; j < row.tokens && x.tree; ++j)
      d.parents.push_back(j == 0 ? -7 : static_cast<int32_t>(rng.below(static_cast<uint32_t>(j))));
    d.first_token.push_back(d.first_token.back() + row.tokens);
  }
  const int64_t tokens = d.first_token.back();
  if (x.call == RecurrentCase::Call::kConv1d) {
    d.x = LogicalTensor(x.dtype, tokens, x.dim, 1);
    d.weight = LogicalTensor(x.dtype, x.dim, 1, x.width);
    if (x.bias) d.bias = LogicalTensor(x.dtype, 1, x.dim, 1);
  } else {
    d.q = d.k = LogicalTensor(x.dtype, tokens, x.num_k_heads, x.head_dim_k);
    d.v = LogicalTensor(x.dtype, tokens, x.num_v_heads, x.head_dim_v);
    if (x.z) d.z = d.v;
    if (x.skip) d.skip = LogicalTensor(DType::kF32, 1, x.num_v_heads, 1);
    if (x.beta) d.beta = LogicalTensor(DType::kF32, tokens, x.num_v_heads, 1);
    d.log_decay = LogicalTensor(DType::kF32, x.decay_rank == 1 ? 1 : tokens, x.num_v_heads,
                                x.decay_rank == 3 ? x.head_dim_k : 1);
  }
  is_exact(c.data) ? fill_exact(c, d, rng) : fill_inexact(c, d, rng);
  make_slots(c, d, rng);
  return d;
}

}  // namespace shadowgraph
