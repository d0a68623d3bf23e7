// Laws that both forms of linear_attention keep, for a shape.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/linear_worst.h"
#include "kernels/small_linear.h"

namespace shadowgraph {

class LinearOfForm : public SmallLinear {
 public:
  LinearOfForm(const LinearShape& s, LinearAttention::Form form, uint64_t seed = 1)
      : SmallLinear(s, seed) {
    call.form = form;
  }
};

/// Keys that name one of 16 channels, integers, decays of 1 or 0: every number is exact.
inline void make_exact(SmallLinear& x) {
  Rng rng(7);
  auto* q = reinterpret_cast<float*>(x.q.data());
  auto* k = reinterpret_cast<float*>(x.k.data());
  for (int64_t i = 0; i < x.call.q.numel(); ++i)
    q[i] = static_cast<float>(rng.below(3)) - 1, k[i] = 0;
  for (int64_t t = 0; t < x.call.k.shape[0]; ++t)
    k[t * x.shape.dim_k + static_cast<int64_t>(rng.below(16))] = 1;
  const auto integers = [&](std::vector<std::byte>& bytes, uint32_t most) {
    auto* p = reinterpret_cast<float*>(bytes.data());
    for (size_t i = 0; i < bytes.size() / 4; ++i) p[i] = static_cast<float>(rng.below(most));
  };
  integers(x.v, 50), integers(x.states, 50), integers(x.beta, 2);
  auto* g = reinterpret_cast<float*>(x.decay.data());
  for (size_t i = 0; i < x.decay.size() / 4; ++i)
    g[i] = rng.below(8) == 0 ? -std::numeric_limits<float>::infinity() : 0.F;
}

/// Tokens [from, from + tokens) of the one row of a call.
inline void run_part(LinearAttention call, int32_t from, int32_t tokens) {
  const auto slice = [&](auto t) {
    t.data += t.offset(from) * static_cast<int64_t>(size_of(t.dtype));
    t.shape[0] = tokens;
    return t;
  };
  const std::vector<int32_t> offsets = {0, tokens};
  call.q = slice(call.q), call.k = slice(call.k), call.v = slice(call.v);
  call.out = slice(call.out);
  if (call.log_decay.rank > 1) call.log_decay = slice(call.log_decay);
  if (call.beta.defined()) call.beta = slice(call.beta);
  if (call.z.defined()) call.z = slice(call.z);
  call.rows.cu_seqlens_q = offsets;
  ASSERT_EQ(linear_attention(call).to_string(), "ok");
}

/// The bound must be worth something: it sees a slot, a decay, a weight, a norm, a scale that are
/// not the row's. part: how large a slip of a decay is, and ten times one of the scale.
inline void expect_bound_sees_slips(const LinearShape& s, LinearAttention::Form form, float part) {
  const SmallLinear before(s);
  const auto of_slip = [&](const char* what, const auto& slip) {
    LinearOfForm x(s, form);
    slip(x);
    x.run();
    double states = 0;
    const double out = worst(before.call, x.call, &states);
    EXPECT_GT(std::max(out, states), 1) << name_of(s) << ": " << what;
  };
  of_slip("another slot", [](SmallLinear& x) { x.slots[0] = 0; });
  of_slip("a fresh state", [](SmallLinear& x) {
    static constexpr uint8_t kFlags[] = {1, 0, 1};
    x.call.rows.has_initial_state = kFlags;
  });
  of_slip("scale", [&](SmallLinear& x) { x.call.scale *= 1 + part / 10; });
  of_slip("one decay",
          [&](SmallLinear& x) { reinterpret_cast<float*>(x.decay.data())[0] += part; });
  if (s.beta) of_slip("no weight", [](SmallLinear& x) { x.call.beta = {}; });
  if (s.l2norm) of_slip("no norm", [](SmallLinear& x) { x.call.l2norm = false; });
  of_slip("the other rule", [](SmallLinear& x) {
    x.call.rule = x.call.rule == LinearAttention::Rule::kAdd ? LinearAttention::Rule::kDelta
                                                             : LinearAttention::Rule::kAdd;
  });
}

/// Without an initial state a slot is not looked at.
inline void expect_fresh_rows_start_from_zero(const LinearShape& s, LinearAttention::Form form) {
  const std::vector<uint8_t> none(s.lens.size(), 0);
  LinearOfForm zero(s, form), poison(s, form);
  std::memset(zero.states.data(), 0, zero.states.size());
  std::memset(poison.states.data(), 0xff, poison.states.size());
  poison.call.rows.has_initial_state = none;
  zero.run(), poison.run();
  EXPECT_TRUE(zero.out == poison.out) << name_of(s);
  for (const int32_t slot : zero.slots)
    EXPECT_TRUE(zero.slot(slot) == poison.slot(slot)) << name_of(s);
}

/// A row without a slot gets what its PadRow says, and no slot is written.
inline void expect_padded_rows(const LinearShape& s, LinearAttention::Form form) {
  const SmallLinear before(s);
  for (const PadRow pad : {PadRow::kSkip, PadRow::kZeroOut, PadRow::kFromZero}) {
    LinearOfForm x(s, form), zero(s, form);
    x.slots[0] = -1;
    x.call.rows.pad = pad;
    std::memset(zero.states.data(), 0, zero.states.size());
    x.run(), zero.run();
    for (int64_t t = 0; t < s.lens[0]; ++t) {
      const std::vector<std::byte> none(x.out_of(t).size());
      EXPECT_TRUE(x.out_of(t) == (pad == PadRow::kSkip      ? before.out_of(t)
                                  : pad == PadRow::kZeroOut ? none
                                                            : zero.out_of(t)))
          << name_of(s) << " pad " << static_cast<int>(pad);
    }
    EXPECT_TRUE(x.slot(zero.slots[0]) == before.slot(zero.slots[0])) << name_of(s);
  }
}

}  // namespace shadowgraph
