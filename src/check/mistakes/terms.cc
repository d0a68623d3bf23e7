// Mistakes about terms of scores, masks and scales (AttentionTerms).
#include <array>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "check/mistakes/readings.h"

namespace shadowgraph {
namespace {

using Alibi = AttentionTerms::Alibi;

Reading with_terms(const Reading& right, const std::string& detail, auto change) {
  return changed(right, [&](Reading& r) { change(r.params.terms), r.detail = detail; });
}

/// Terms of another head: of any, row by row, and by one rule for all.
void terms_of_heads(const Reading& right, const AddReading& add) {
  const int32_t heads = right.params.num_qo_heads;
  if (heads == 1) return;
  const auto of = [&right](const char* detail, std::function<int32_t(int32_t)> head) {
    return changed(right, [&](Reading& r) { r.terms_of = std::move(head), r.detail = detail; });
  };
  add(of("the next head's", [=](int32_t h) { return (h + 1) % heads; }));
  add(of("the first head's for all", [](int32_t) { return 0; }));
  add(of("in the opposite order", [=](int32_t h) { return heads - 1 - h; }));
  add(changed(right, [&](Reading& r) {
    r.as_of_head = [right](int32_t other) {
      return changed(right, [&](Reading& o) { o.terms_of = [other](int32_t) { return other; }; });
    };
    r.some_rows = true;
  }));
}

/// Scales of KV heads: of K, of V, or of both are another head's.
void scales_by(const Reading& right, const char* detail, const std::function<int32_t(int32_t)>& of,
               const AddReading& add) {
  const bool k = !right.params.terms.k_scales.empty(), v = !right.params.terms.v_scales.empty();
  const auto reading = [&](bool of_k, bool of_v, const char* whose) {
    return changed(right, [&](Reading& r) {
      if (of_k) r.k_scale_of = of;
      if (of_v) r.v_scale_of = of;
      r.detail = std::string(detail) + whose;
    });
  };
  add(reading(k, v, ""));
  if (!k || !v) return;
  add(reading(true, false, ", of K"));
  add(reading(false, true, ", of V"));
}

}  // namespace

void no_slopes(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (!right.params.terms.alibi_slopes.empty())
    add(with_terms(right, "", [](AttentionTerms& t) { t.alibi_slopes = {}; }));
}

void slopes_of_heads(const Scene&, size_t, const Reading& right, const AddReading& add) {
  const AttentionTerms& t = right.params.terms;
  if (!t.alibi_slopes.empty() && t.key_bias.empty() && t.relative_bias.empty())
    terms_of_heads(right, add);
}

void slopes_of_other_distance(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (right.params.terms.alibi_slopes.empty()) return;
  constexpr std::array kNames = {"key's position - query's", "-|key's position - query's|",
                                 "-sqrt(query's position - key's)"};
  for (const Alibi alibi : {Alibi::kLinear, Alibi::kDistance, Alibi::kSqrt}) {
    if (alibi == right.params.terms.alibi) continue;
    add(with_terms(right, kNames[static_cast<size_t>(alibi)],
                   [&](AttentionTerms& t) { t.alibi = alibi; }));
  }
}

void no_bias(const Scene&, size_t, const Reading& right, const AddReading& add) {
  const AttentionTerms& t = right.params.terms;
  if (!t.key_bias.empty())
    add(with_terms(right, "of keys", [](AttentionTerms& of) { of.key_bias = {}; }));
  if (!t.qq_bias.empty())
    add(with_terms(right, "of queries on queries", [](AttentionTerms& of) { of.qq_bias = {}; }));
  if (!t.relative_bias.empty())
    add(with_terms(right, "of distances", [](AttentionTerms& of) { of.relative_bias = {}; }));
}

void bias_of_heads(const Scene&, size_t, const Reading& right, const AddReading& add) {
  const AttentionTerms& t = right.params.terms;
  if (!t.key_bias.empty() || !t.relative_bias.empty()) terms_of_heads(right, add);
}

void other_sign(const Scene&, size_t, const Reading& right, const AddReading& add) {
  AttentionTerms t = right.params.terms;
  t.temperature_len = 0;
  if (t.changes_scores()) add(changed(right, [](Reading& r) { r.added_factor = -1; }));
}

void no_temperature(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (right.params.terms.temperature_len > 0)
    add(with_terms(right, "", [](AttentionTerms& t) { t.temperature_len = 0; }));
}

void scales_of_other(const Scene& scene, size_t request, const Reading& right,
                     const AddReading& add) {
  const AttentionTerms& t = right.params.terms;
  if (!t.k_scales.empty() && !t.v_scales.empty())
    add(with_terms(right, "of K and V exchanged",
                   [](AttentionTerms& of) { std::swap(of.k_scales, of.v_scales); }));
  const auto heads = static_cast<size_t>(right.params.num_kv_heads);
  if (t.k_scales.size() <= heads && t.v_scales.size() <= heads) return;
  each_other(scene, request, [&](size_t other) {
    add(changed(right, [&](Reading& r) { r.request = other, r.detail = of_row(other); }));
  });
}

void scales_of_heads(const Scene&, size_t, const Reading& right, const AddReading& add) {
  const AttentionTerms& t = right.params.terms;
  const int32_t heads = right.params.num_kv_heads;
  if (heads == 1 || (t.k_scales.empty() && t.v_scales.empty())) return;
  scales_by(
      right, "the next head's", [=](int32_t h) { return (h + 1) % heads; }, add);
  scales_by(
      right, "the head's before", [=](int32_t h) { return (h + heads - 1) % heads; }, add);
  scales_by(
      right, "the first head's for all", [](int32_t) { return 0; }, add);
  scales_by(
      right, "in the opposite order", [=](int32_t h) { return heads - 1 - h; }, add);
}

void no_scale_of_rows(const Scene&, size_t, const Reading& right, const AddReading& add) {
  const AttentionTerms& t = right.params.terms;
  if (t.q_scale != 1) add(with_terms(right, "q's", [](AttentionTerms& of) { of.q_scale = 1; }));
  if (t.out_scale != 1)
    add(with_terms(right, "the output's", [](AttentionTerms& of) { of.out_scale = 1; }));
}

void read_padding(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (right.first_key > 0) add(changed(right, [](Reading& r) { r.first_key = 0; }));
}

void other_padding(const Scene& scene, size_t request, const Reading& right,
                   const AddReading& add) {
  const std::span<const int32_t> padding = right.params.terms.cache_leftpad;
  if (padding.empty()) return;
  const auto reading = [&](int64_t first, std::string detail) {
    if (first < 0) return;
    add(changed(right, [&](Reading& r) {
      r.first_key = static_cast<int32_t>(first), r.detail = std::move(detail);
    }));
  };
  for (const int64_t off : {1, 2, 3}) {
    reading(right.first_key + off, "too long " + by(off));
    reading(right.first_key - off, "too short " + by(off));
  }
  each_other(scene, request, [&](size_t other) { reading(padding[other], of_row(other)); });
}

void ignored_chunks(const Scene&, size_t, const Reading& right, const AddReading& add) {
  const AttentionTerms& t = right.params.terms;
  if (t.attention_chunk == 0) return;
  add(with_terms(right, "",
                 [](AttentionTerms& of) { of.attention_chunk = of.chunk_lookback = 0; }));
  if (t.chunk_lookback > 0)
    add(with_terms(right, "those before its own",
                   [](AttentionTerms& of) { of.chunk_lookback = 0; }));
}

void other_lookback(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (right.params.terms.attention_chunk == 0) return;
  add(with_terms(right, "one too many", [](AttentionTerms& of) { ++of.chunk_lookback; }));
  if (right.params.terms.chunk_lookback > 1)
    add(with_terms(right, "one too few", [](AttentionTerms& of) { --of.chunk_lookback; }));
}

void ignored_ranges(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (!right.bidirectional.empty())
    add(changed(right, [](Reading& r) { r.bidirectional.clear(); }));
}

void causal_of_batch(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (!right.params.terms.request_causal.empty())
    add(changed(right, [](Reading& r) { r.params.causal = !r.params.causal; }));
}

void mask_of_first_head(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (right.mask_of_heads) add(changed(right, [](Reading& r) { r.mask_of_heads = false; }));
}

void lost_weights(const Scene&, size_t, const Reading& right, const AddReading& add) {
  const struct {
    double below;
    const char* type;
  } kTypes[] = {{0x1p-10, "e4m3"}, {0x1p-17, "e5m2"}, {0x1p-25, "f16"}};
  for (const auto& type : kTypes)
    add(changed(right, [&](Reading& r) {
      r.lost_below = type.below;
      r.detail = std::string("of ") + type.type;
    }));
}

}  // namespace shadowgraph
