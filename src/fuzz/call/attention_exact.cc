#include "fuzz/call/attention_exact.h"

#include <cmath>
#include <cstring>
#include <optional>

#include "check/bounds/rounding.h"
#include "core/float_formats.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

/// The keys that have weight 1 in a row: the hot ones it sees, or else all it sees. A sink of logit
/// 0 weighs 1 more where no hot key is seen, and nothing beside one; beside keys far below 0 it
/// weighs all.
struct Weights {
  std::vector<int32_t> keys;
  int64_t denominator = 0;

  bool operator==(const Weights&) const = default;
};

Weights weights_of(const AttentionCase& x, const AttentionData& data, size_t request, int64_t q,
                   int64_t head) {
  const RequestData& d = data.requests[request];
  const RequestExtent& r = x.requests[request];
  std::vector<int32_t> seen, hot;
  for (int32_t k = 0; k < r.kv_len; ++k) {
    if (!sees(x, data, request, head, q, k)) continue;
    seen.push_back(k);
    if (!d.hot.empty() && d.hot[static_cast<size_t>(k)]) hot.push_back(k);
  }
  const bool sink = x.sinks && data.sinks[static_cast<size_t>(head)] == 0;
  const bool below =
      !d.below.empty() && d.below[static_cast<size_t>(q * x.num_qo_heads + head)] != 0;
  if (!hot.empty() && below && sink) return {{}, 1};
  if (!hot.empty()) return {hot, static_cast<int64_t>(hot.size())};
  return {seen, static_cast<int64_t>(seen.size()) + (sink ? 1 : 0)};
}

/// The exact quotient, rounded to f32 and then to the output's type, as every kernel must.
std::vector<std::byte> expected_row(const AttentionCase& x, const RequestData& d, int64_t kv_head,
                                    const Weights& w) {
  std::vector<std::byte> row(static_cast<size_t>(x.head_dim_vo) * size_of(x.out_dtype));
  // The others are powers of two.
  const float scale = x.v_scale * x.terms.out_scale * d.v_scales[static_cast<size_t>(kv_head)];
  for (int64_t i = 0; i < x.head_dim_vo; ++i) {
    float sum = 0;  // integers, or halves, of less than 24 bits
    for (int32_t k : w.keys) sum += d.v.value(k, kv_head, i);
    const float mean = w.keys.empty() ? 0 : sum / static_cast<float>(w.denominator);
    store_float(row.data(), x.out_dtype, i, mean * scale);
  }
  return row;
}

bool is_power_of_two(float x) {
  int exponent;
  return std::frexp(x, &exponent) == 0.5f;
}

/// How far a row may lie from its value, relative to that; nullopt: the row is not exact before the
/// last division. Divided partial results are rounded; a maximum that is scaled apart gives weights
/// near 1 where the logits are not 0; a scale of V may be multiplied anywhere.
std::optional<double> last_rounding(const AttentionCase& x, const RequestData& d,
                                    const KernelNumbers& numbers, const Weights& w) {
  const Arithmetic& a = numbers.arithmetic;
  if (w.denominator == 0) return numbers.empty_row.nan_out ? std::nullopt : std::optional(0.0);
  if (w.keys.empty()) return a.u;  // values times 0: their signs are left
  if (a.partials != Partials::kUnscaled || a.p_scale != 1) return std::nullopt;
  if (!d.hot.empty() && a.scaled_maximum) return std::nullopt;
  if (a.out_roundings == 1 && !a.v_scale_after) return 0;
  if (!is_power_of_two(x.v_scale)) return std::nullopt;
  if (is_power_of_two(static_cast<float>(w.denominator))) return 0;
  return gamma_of(a.out_roundings, a.u) + 2 * rounding_to(x.out_dtype).u;
}

/// Some key of some request whose value is exactly this row.
std::string name_foreign(const AttentionCase& x, const AttentionData& data, int64_t kv_head,
                         const std::byte* row) {
  for (size_t request = 0; request < data.requests.size(); ++request) {
    for (int32_t k = 0; k < x.requests[request].kv_len; ++k) {
      const auto one = expected_row(x, data.requests[request], kv_head, {{k}, 1});
      if (std::memcmp(one.data(), row, one.size()) != 0) continue;
      return ", the value of request " + std::to_string(request) + " key " + std::to_string(k);
    }
  }
  return "";
}

std::string describe(const Weights& w) {
  if (w.denominator == 0) return "0 (sees no key)";
  if (w.keys.empty()) return "0 (the sink weighs all)";
  std::string s = "the mean over keys " + std::to_string(w.keys.front());
  if (w.keys.size() > 1) s += ".." + std::to_string(w.keys.back());
  return s + " (" + std::to_string(w.keys.size()) + " keys, weights sum to " +
         std::to_string(w.denominator) + ")";
}

/// The first element that differs by more than `within`, relative, or nothing.
std::optional<int64_t> first_difference(const AttentionCase& x,
                                        const std::vector<std::byte>& expected,
                                        const std::byte* got, double within) {
  const size_t size = size_of(x.out_dtype);
  for (int64_t i = 0; i < x.head_dim_vo; ++i) {
    const size_t at_byte = static_cast<size_t>(i) * size;
    if (std::memcmp(expected.data() + at_byte, got + at_byte, size) == 0) continue;
    const double right = load_float(expected.data(), x.out_dtype, i);
    const double apart = std::abs(load_float(got, x.out_dtype, i) - right);
    if (within == 0 || !(apart <= within * std::abs(right))) return i;
  }
  return std::nullopt;
}

}  // namespace

Status check_exact(const AttentionCase& x, const AttentionData& data, const RowResults& results,
                   const KernelNumbers& numbers) {
  Status status;
  const int64_t group = x.num_qo_heads / x.num_kv_heads;
  const int64_t row_bytes = x.head_dim_vo * static_cast<int64_t>(size_of(x.out_dtype));
  int64_t row = -1;
  for (size_t request = 0; request < x.requests.size(); ++request) {
    for (int64_t q = 0; q < x.requests[request].q_len; ++q) {
      ++row;
      std::vector<std::byte>
          expected;  // by KV head and weights: most heads of a query see the same
      Weights before;
      for (int64_t head = 0; head < x.num_qo_heads; ++head) {
        const Weights w = weights_of(x, data, request, q, head);
        if (head % group == 0 || w != before)
          expected = expected_row(x, data.requests[request], head / group, w);
        before = w;
        const auto within = last_rounding(x, data.requests[request], numbers, w);
        if (!within) continue;
        const std::byte* got = results.out[static_cast<size_t>(row)].data() + head * row_bytes;
        judged("num.exact", x.head_dim_vo);
        const auto i = first_difference(x, expected, got, *within);
        if (!i) continue;
        const auto number = [&](const std::byte* p) {
          return std::to_string(load_float(p, x.out_dtype, *i));
        };
        Finding f = make_finding("num.exact", at("out", std::vector{row, head, *i}),
                                 number(expected.data()) + ", " + describe(w),
                                 number(got) + name_foreign(x, data, head / group, got));
        f.where.field += " (request " + std::to_string(request) + ", query " + std::to_string(q) +
                         ", head " + std::to_string(head) + ")";
        status.add(std::move(f));
        return status;
      }
    }
  }
  return status;
}

}  // namespace shadowgraph
