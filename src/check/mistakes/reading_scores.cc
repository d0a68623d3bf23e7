// Which keys a row sees by a reading, and what the reading adds to their logits.
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "attn/mask.h"
#include "attn/request_terms.h"
#include "check/mistakes/reading_result.h"
#include "check/mistakes/readings.h"

namespace shadowgraph {
namespace {

/// The place whose key stands at index k of a reading's keys.
int32_t place_of(const Reading& r, int32_t k) {
  const auto once = static_cast<int32_t>(r.length());
  return k < once ? k : r.twice->first + (k - once);
}

AddedTerms terms_at(const AttentionParams& p, const ScorePlace& at) {
  if (!p.terms.changes_scores()) return {};
  const std::span<const float> bias = p.terms.key_bias;
  const int64_t biased = std::ssize(bias) / p.num_qo_heads - at.first_bias;
  if (!bias.empty() && at.key >= biased) return {};  // behind all keys: nobody knows
  return added_terms(p, at);
}

}  // namespace

double temperature_of(const Reading& r, int32_t query) {
  const int64_t position = r.position(query);
  return r.temperature ? r.temperature(position) : temperature_at(r.params.terms, position);
}

bool changes_scores(const Reading& r) {
  return r.params.terms.changes_scores() || r.other.params.terms.changes_scores();
}

std::vector<int32_t> ReadingResults::seen_places(const Reading& r, const HeadRow& cell) const {
  const auto once = static_cast<int32_t>(r.length());
  const MaskShape mask = mask_of(r, r.params, once, once);
  const int64_t position = r.position(cell.query);
  std::vector<int32_t> places;
  for (int32_t k = 0; k < static_cast<int32_t>(r.keys.size()); ++k) {
    const int32_t place = place_of(r, k);
    if (!attends(mask, position, place)) continue;
    if (!r.mask.empty() && place < r.mask_width) {
      const int64_t bit = r.mask_row(cell.head, cell.query) * r.mask_width + place;
      if (bit >= std::ssize(r.mask) || r.mask[static_cast<size_t>(bit)] == 0) continue;
    }
    if (r.sees && !r.sees(cell.query, place)) continue;
    if (added_at(r, cell, place).hides) continue;
    places.push_back(k);
  }
  return places;
}

auto ReadingResults::added_at(const Reading& r, const HeadRow& cell, int32_t place) -> Added {
  if (!changes_scores(r)) return {};
  const OtherTerms& o = r.other;
  ScorePlace at{cell.head, r.one_query ? 0 : cell.query, place,
                r.ahead.value_or(r.length() - r.q_len), r.first_bias};
  Added a{terms_at(r.params, at), {}};
  a.hides = a.own.sum == -kInfinity;
  if (!o.params.terms.changes_scores()) return a;
  if (o.of_head) at.head = o.of_head(cell.head);
  at.first_position += o.ahead;
  a.other = terms_at(o.params, at);
  if (a.other.sum == -kInfinity) {
    a.hides |= o.hide;
    return a;
  }
  const double factor = o.factor * (o.before_temperature ? temperature_of(r, cell.query) : 1);
  a.other.sum *= factor, a.other.magnitude *= std::abs(factor);
  return a;
}

void ReadingResults::cap_last(const Reading& r, const HeadRow& cell,
                              const std::vector<int32_t>& places, OracleRow& row) {
  row.soft_cap =
      r.params.logits_soft_cap * (r.temperature_before_cap ? 1 : temperature_of(r, cell.query));
  for (size_t i = 0; i < places.size(); ++i) {
    const Added added = added_at(r, cell, place_of(r, places[i]));
    double& logit = row.logits[static_cast<Eigen::Index>(i)];
    logit = added.other.sum == -kInfinity ? -row.soft_cap
                                          : row.soft_cap * std::tanh(logit / row.soft_cap);
    logit += added.own.sum;
    row.added[static_cast<Eigen::Index>(i)] += added.own.magnitude;
  }
  finish(row);
}

/// Parameters of one row: a temperature is a larger scale under a larger cap; all that is added, a
/// bias of each key, which lives in *bias; of terms before the cap these alone, and no cap.
AttentionParams ReadingResults::params_of(const Reading& r, const HeadRow& cell, int32_t kv_head,
                                          const std::vector<int32_t>* places,
                                          std::vector<float>* bias) {
  AttentionParams p = r.params;
  p.num_qo_heads = p.num_kv_heads = 1;
  p.causal = false;
  p.window_left = p.window_right = -1;
  const AttentionTerms& t = r.params.terms;
  const double temperature = temperature_of(r, cell.query);
  p.sm_scale = static_cast<float>(double{r.params.sm_scale} * r.logit_factor * temperature);
  if (!r.temperature_before_cap) p.logits_soft_cap *= static_cast<float>(temperature);
  const bool capped_last = places != nullptr && r.other.before_cap;
  if (capped_last) p.logits_soft_cap = 0;
  p.terms = {};
  p.terms.q_scale = t.q_scale, p.terms.out_scale = t.out_scale;
  const auto scale = [&](std::span<const float> scales, const auto& of) {
    if (scales.empty()) return scales;
    const int32_t head = of ? of(kv_head) : kv_head;
    return scales.subspan(
        scale_index(scales, static_cast<int64_t>(r.request), head, r.params.num_kv_heads), 1);
  };
  p.terms.k_scales = scale(t.k_scales, r.k_scale_of);
  p.terms.v_scales = scale(t.v_scales, r.v_scale_of);
  if (places != nullptr && changes_scores(r)) {
    for (const int32_t k : *places) {
      const Added added = added_at(r, cell, place_of(r, k));
      const double first = capped_last ? added.other.sum : added.sum();
      bias->push_back(std::isinf(first) ? 0 : static_cast<float>(first));
    }
    p.terms.key_bias = *bias;
  }
  if (!r.params.sinks.empty())
    p.sinks = r.params.sinks.subspan(
        static_cast<size_t>(r.sink_of ? r.sink_of(cell.head) : cell.head), 1);
  return p;
}

}  // namespace shadowgraph
