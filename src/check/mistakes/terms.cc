// Mistakes about terms of scores, masks and scales (AttentionTerms).
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "check/mistakes/readings.h"

namespace shadowgraph {
namespace {

using Alibi = AttentionTerms::Alibi;

Reading with_terms(const Reading& right, const std::string& detail, auto change,
                   std::function<bool(int32_t i, int32_t k)> sees = nullptr) {
  return changed(right, [&](Reading& r) {
    change(r.params.terms), r.detail = detail;
    if (sees) r.sees = std::move(sees);
  });
}

Reading with_other(const Reading& apart, const std::string& detail, auto change) {
  return changed(apart, [&](Reading& r) { change(r.other), r.detail = detail; });
}

/// Terms of another head: by one rule for all, and of any, row by row.
void terms_of_heads(const Reading& right, std::span<const TermList> lists, const AddReading& add) {
  const int32_t heads = right.params.num_qo_heads, kv_heads = right.params.num_kv_heads;
  if (heads == 1) return;
  const struct {
    const char* detail;
    std::function<int32_t(int32_t)> head;
  } kRules[] = {{"the next head's", [=](int32_t h) { return (h + 1) % heads; }},
                {"the head's before", [=](int32_t h) { return (h + heads - 1) % heads; }},
                {"the first head's for all", [](int32_t) { return 0; }},
                {"in the opposite order", [=](int32_t h) { return heads - 1 - h; }},
                {"by KV heads", [=](int32_t h) { return h / (heads / kv_heads); }},
                {"by groups", [=](int32_t h) { return h % (heads / kv_heads); }}};
  each_term(right, lists, [&](const Reading& apart, const std::string& name) {
    if (lists.size() > 1 && name == kSlopes.name) return;  // slopes.of_head says so
    for (const auto& rule : kRules)
      add(with_other(apart, rule.detail, [&](OtherTerms& o) { o.of_head = rule.head; }));
    add(changed(right, [&](Reading& r) {
      r.as_of_head = [apart](int32_t other) {
        return with_other(apart, "",
                          [=](OtherTerms& o) { o.of_head = [=](int32_t) { return other; }; });
      };
      r.some_rows = true;
    }));
  });
}

/// A list of terms, changed; make(entry) gives each of its new entries.
Reading with_list(const Reading& right, const TermList& term, const std::string& detail,
                  auto make) {
  const size_t size = (right.params.terms.*term.list).size();
  std::vector<float> list(size);
  for (size_t i = 0; i < size; ++i) list[i] = make(i);
  return changed(right, [&](Reading& r) {
    r.list = std::make_shared<const std::vector<float>>(std::move(list));
    r.params.terms.*term.list = *r.list;
    r.detail = detail;
  });
}

/// A matrix of so many rows, read as if it had its columns for rows.
Reading with_columns(const Reading& right, const TermList& term, size_t rows) {
  const std::span<const float> list = right.params.terms.*term.list;
  const size_t columns = list.size() / rows;
  return with_list(right, term, term.name,
                   [=](size_t i) { return list[i % columns * rows + i / columns]; });
}

/// The numbers that stand beyond the ends of a request's bias of keys, if it is read some places
/// off.
enum class Ends : uint8_t { kMemory, kZero, kRepeated, kWrapped };
constexpr int64_t kEnds = 4, kMostEntries = 16;

Reading shifted_bias(const Reading& right, int64_t n, Ends ends) {
  const std::span<const float> bias = right.params.terms.key_bias;
  const int64_t size = std::ssize(bias), all = size / right.params.num_qo_heads;
  const int64_t length = std::ssize(right.keys);
  return with_list(right, kKeyBias, std::string(kKeyBias.name) + ", " + by(n), [=](size_t i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t first = at / all * all + right.first_bias;
    int64_t place = at - first + n;
    if (ends == Ends::kRepeated) place = std::clamp<int64_t>(place, 0, length - 1);
    if (ends == Ends::kWrapped) place = (place % length + length) % length;
    const bool inside = ends == Ends::kMemory ? first + place >= 0 && first + place < size
                                              : place >= 0 && place < length;
    return inside ? bias[static_cast<size_t>(first + place)] : 0;
  });
}

/// Terms that count distances, or new tokens, from another position of the query.
void off_by_some(const Reading& right, const TermList& term, const AddReading& add) {
  constexpr int64_t kMost = 4;
  each_term(right, {&term, 1}, [&](const Reading& apart, const std::string& name) {
    for (int64_t n = 1; n <= kMost; ++n) {
      for (const int64_t off : {n, -n})
        add(with_other(apart, name + ", " + by(off), [=](OtherTerms& o) { o.ahead = -off; }));
    }
  });
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

void each_term(const Reading& right, std::span<const TermList> lists,
               const std::function<void(const Reading& apart, const std::string& name)>& fn) {
  const auto move = [](const TermList& term, Reading* r) {
    std::swap(r->params.terms.*term.list, r->other.params.terms.*term.list);
  };
  Reading none = right;
  none.other.params.num_qo_heads = right.params.num_qo_heads;
  none.other.params.terms.alibi = right.params.terms.alibi;
  Reading all = none;
  int count = 0;
  for (const TermList& term : lists) {
    if ((right.params.terms.*term.list).empty()) continue;
    Reading one = none;
    move(term, &one), move(term, &all);
    fn(one, term.name), ++count;
  }
  if (count > 1) fn(all, "all that is added");
}

void no_slopes(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (!right.params.terms.alibi_slopes.empty())
    add(with_terms(right, "", [](AttentionTerms& t) { t.alibi_slopes = {}; }));
}

void slopes_of_heads(const Scene&, size_t, const Reading& right, const AddReading& add) {
  terms_of_heads(right, {&kSlopes, 1}, add);
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
  off_by_some(right, kSlopes, add);
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
  if (!t.key_bias.empty() || !t.relative_bias.empty())
    terms_of_heads(right, std::array{kKeyBias, kDistanceBias, kSlopes}, add);
}

void bias_of_request(const Scene& scene, size_t request, const Reading& right,
                     const AddReading& add) {
  if (right.params.terms.key_bias.empty()) return;
  each_other(scene, request, [&](size_t other) {
    add(changed(right, [&](Reading& r) {
      r.first_bias = right_reading(scene, other).first_bias, r.detail = of_row(other);
    }));
  });
}

void shifted_biases(const Scene&, size_t, const Reading& right, const AddReading& add) {
  off_by_some(right, kQueryBias, add);
  off_by_some(right, kDistanceBias, add);
  if (right.params.terms.key_bias.empty()) return;
  // Numbers are by the shift, the nearest first, and then by the ends.
  const auto reading = [&right](int64_t number) {
    const int64_t n = number / kEnds / 2 + 1;
    return shifted_bias(right, number / kEnds % 2 == 0 ? n : -n, static_cast<Ends>(number % kEnds));
  };
  add(Family{0, 2 * kMostEntries * kEnds,
             [&](const RowSums& row, int64_t number) {
               const Reading shifted = reading(number);
               return row.of(row.read_as([&](int32_t place, double logit) {
                 return logit + row.added(place, &shifted);
               }));
             },
             reading});
}

void transposed_bias(const Scene&, size_t, const Reading& right, const AddReading& add) {
  const AttentionTerms& t = right.params.terms;
  const auto heads = static_cast<size_t>(right.params.num_qo_heads);
  if (!t.qq_bias.empty()) {
    const auto width = static_cast<size_t>(std::lround(std::sqrt(t.qq_bias.size())));
    add(with_columns(right, kQueryBias, width));
  }
  if (heads == 1) return;
  for (const TermList& term : {kKeyBias, kDistanceBias})
    if (!(t.*term.list).empty()) add(with_columns(right, term, heads));
}

void bias_hides_nothing(const Scene&, size_t, const Reading& right, const AddReading& add) {
  for (const TermList& term : {kKeyBias, kQueryBias, kDistanceBias}) {
    const std::span<const float> list = right.params.terms.*term.list;
    if (std::ranges::any_of(list, [](float x) { return std::isinf(x); }))
      add(with_list(right, term, term.name,
                    [=](size_t i) { return std::isinf(list[i]) ? 0 : list[i]; }));
  }
}

void other_order(const Scene&, size_t, const Reading& right, const AddReading& add) {
  const bool capped = right.params.logits_soft_cap > 0;
  const bool tempered = right.params.terms.temperature_len > 0;
  if (capped) {
    add(changed(right, [](Reading& r) {
      r.params.logits_soft_cap *= r.params.sm_scale;
      r.detail = "the soft cap before the scale";
    }));
  }
  if (capped && tempered) {
    add(changed(right, [](Reading& r) {
      r.temperature_before_cap = true, r.detail = "the temperature before the soft cap";
    }));
  }
  each_term(right, kAllLists, [&](const Reading& apart, const std::string& name) {
    const auto order = [&](const char* before, OtherTerms how, bool temperature_first = false) {
      add(changed(apart, [&](Reading& r) {
        how.params = r.other.params, r.other = how;
        r.temperature_before_cap = temperature_first;
        r.detail = name + before;
      }));
    };
    const double scale = right.params.sm_scale;
    // Without either, they are scaled.
    if (capped || tempered)
      order(" before the scale",
            {.factor = scale, .before_cap = capped, .before_temperature = true});
    if (tempered) order(" before the temperature", {.before_temperature = true});
    if (!capped) return;
    for (const bool hide : {true, false})
      order(" before the soft cap", {.before_cap = true, .before_temperature = true, .hide = hide});
    if (!tempered) return;
    order(" before the soft cap, the temperature before both", {.before_cap = true}, true);
    order(" before the temperature, the soft cap last",
          {.before_cap = true, .before_temperature = true}, true);
  });
}

void other_sign(const Scene&, size_t, const Reading& right, const AddReading& add) {
  each_term(right, kAllLists, [&](const Reading& apart, const std::string& name) {
    add(with_other(apart, name, [](OtherTerms& o) { o.factor = -1; }));
  });
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

void other_chunks(const Scene&, size_t, const Reading& right, const AddReading& add) {
  constexpr int64_t kMost = 4;
  const AttentionTerms t = right.params.terms;
  if (t.attention_chunk == 0) return;
  const auto of_size = [&](int64_t size) {
    if (size < 1) return;
    add(with_terms(right, "of " + std::to_string(size) + " positions",
                   [=](AttentionTerms& of) { of.attention_chunk = static_cast<int32_t>(size); }));
  };
  const auto moved = [&](int64_t n) {
    if (n % t.attention_chunk == 0 || !right.bidirectional.empty()) return;
    add(with_terms(
        right, "moved " + by(n),
        [](AttentionTerms& of) { of.attention_chunk = of.chunk_lookback = 0; },
        [=, first = right.position(0)](int32_t i, int32_t k) {
          const int64_t own = chunk_of(first + i - n, t.attention_chunk);
          const int64_t of_key = chunk_of(k - n, t.attention_chunk);
          return of_key <= own && of_key >= own - t.chunk_lookback;
        }));
  };
  moved(right.first_key);
  for (int64_t n = 1; n <= kMost; ++n) {
    of_size(t.attention_chunk + n), of_size(t.attention_chunk - n);
    moved(n), moved(-n);
  }
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
