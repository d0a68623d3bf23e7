// The only home of log-sum-exp: softmax states, how they merge, and what an empty one is.
//
// The base of the logarithm is in the type. Inside the engine it is 2 (logits are s * log2 e,
// weights 2^(s - m)). exp2 and log are our own, in a fixed sequence of operations: libm's differ
// between machines. Tested by tests/attn/lse_test.cc.
#pragma once

#include <limits>
#include <span>

#include "shadowgraph/attention/lse.h"

namespace shadowgraph {

inline constexpr double kLn2 = 0.693147180559945309417;
inline constexpr double kLog2E = 1.44269504088896340736;

/// 2^x for x <= 0, to within kExp2Error relative: exactly 1 at 0, exactly 0 below -126, NaN for
/// NaN. The vector units compute the same polynomial in the same order, so the same bits.
float exp2_portable(float x);
inline constexpr double kExp2Error = 0x1p-22;

/// Natural log of a positive float, in double: error below 1e-15 relative to max(1, |log x|).
double log_portable(float x);

/// What is known of a row's softmax after some keys: m = largest logit, d = sum of base^(logit -
/// m). The value part, o = sum of base^(logit - m) v, lies beside it, in f32. No key seen: m =
/// -inf, d = 0.
template <LseBase Base>
struct SoftmaxState {
  float m = -std::numeric_limits<float>::infinity();
  float d = 0;

  /// A partial result that is already normalised (its o is its out). Both infinities mean no mass.
  static SoftmaxState from_lse(float lse);

  bool has_mass() const { return m != -std::numeric_limits<float>::infinity(); }
  bool operator==(const SoftmaxState&) const = default;
};

/// Merges parts in index order; weights[i] is the factor of part i's o, 0 for an empty part. All
/// empty: empty.
template <LseBase Base>
SoftmaxState<Base> merge(std::span<const SoftmaxState<Base>> parts, std::span<float> weights);

/// The LSE in base To; -inf for an empty state. A state from_lse gives the same LSE back
/// (-0 as 0).
template <LseBase To, LseBase From>
float lse_of(const SoftmaxState<From>& state);

}  // namespace shadowgraph
