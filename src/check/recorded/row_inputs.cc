#include "check/recorded/row_inputs.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <type_traits>

#include "attn/request_terms.h"
#include "attn/visit/visit_attention.h"
#include "core/float_formats.h"
#include "oracle/oracle_rows.h"

namespace shadowgraph {
namespace {

bool same_float(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

bool same_query(const ConstTensorView& a, int64_t i, const ConstTensorView& b, int64_t j) {
  for (int64_t h = 0; h < a.shape[1]; ++h) {
    for (int64_t d = 0; d < a.shape[2]; ++d) {
      if (!same_float(load_float(a.data, a.dtype, a.offset(i, h, d)),
                      load_float(b.data, b.dtype, b.offset(j, h, d))))
        return false;
    }
  }
  return true;
}

/// A token's elements in a KV head, and its scale.
bool same_token(const KvPlane& a, int32_t i, const KvPlane& b, int32_t j, int32_t head) {
  const auto scale = [&](const KvPlane& p, int32_t token) {
    return p.scales == nullptr ? 1 : p.scales[p.scale_offset(token, 0, head)];
  };
  if (!same_float(scale(a, i), scale(b, j))) return false;
  for (int32_t d = 0; d < a.head_dim; ++d) {
    if (!same_float(load_float(a.data, a.dtype, a.offset(i, 0, head, d)),
                    load_float(b.data, b.dtype, b.offset(j, 0, head, d))))
      return false;
  }
  return true;
}

/// fn(name) for each member.
template <class Fn>
void for_each_term(Fn fn) {
  AttentionTerms none;
  auto visit = [&](std::string_view name, auto&) { fn(name); };
  visit_fields(visit, none);
  visit_lists(visit, none);
}

/// The terms without all others, which are 0 or empty. alibi stays: it says how slopes are read.
AttentionTerms only(std::string_view name, AttentionTerms terms) {
  auto clear = [&](std::string_view other, auto& member) {
    if (other != name && other != "alibi") member = {};
  };
  visit_fields(clear, terms);
  visit_lists(clear, terms);
  return terms;
}

/// "sm_scale, keys", each name once.
class Names {
 public:
  /// Returns whether they are the same.
  bool add(std::string_view name, bool same) {
    if (same || std::ranges::count(names_, name) > 0) return same;
    names_.push_back(name);
    return false;
  }
  std::string text() const {
    std::string all;
    for (const std::string_view name : names_) all += (all.empty() ? "" : ", ") + std::string(name);
    return all;
  }

 private:
  std::vector<std::string_view> names_;
};

}  // namespace

RowInputs::RowInputs(const AnyCall& any, int64_t first, int64_t count) : first_(first) {
  rows_.resize(static_cast<size_t>(count));
  const auto read = [&](const auto& call) {
    using Call = std::decay_t<decltype(call)>;
    if constexpr (std::is_same_v<Call, PagedAttention> || std::is_same_v<Call, RaggedAttention>) {
      const RowsRead& rows = scene_.emplace(call).scene().rows;
      first_biases_ = {0};
      for (const std::vector<int32_t>& keys : rows.keys)
        first_biases_.push_back(first_biases_.back() + std::ssize(keys));
      for_each_row(call, [&](const OracleRow& row) {
        if (row.row < first || row.row >= first + count) return;
        Row& mine = rows_[static_cast<size_t>(row.row - first)];
        const auto next = std::ranges::upper_bound(rows.cu_seqlens_q, row.row);
        mine.request = static_cast<size_t>(next - rows.cu_seqlens_q.begin() - 1);
        mine.query = row.row - rows.cu_seqlens_q[mine.request];
        if (row.head == 0 || mine.seen.at(0) != row.keys) mine.seen[row.head] = row.keys;
      });
    }
  };
  std::visit(read, any);
}

std::vector<double> RowInputs::effects(const AttentionTerms& terms, const Row& row,
                                       int32_t head) const {
  AttentionParams p = scene_->scene().params;
  p.terms = terms;
  const RowsRead& rows = scene_->scene().rows;
  const int64_t first = std::ssize(rows.keys[row.request]) - rows.q_len(row.request);
  const auto request = static_cast<int64_t>(row.request);
  const int32_t kv_head = head / (p.num_qo_heads / p.num_kv_heads);
  std::vector<double> all = {temperature_at(terms, first + row.query), terms.q_scale,
                             terms.out_scale,
                             head_scale(terms.k_scales, request, kv_head, p.num_kv_heads),
                             head_scale(terms.v_scales, request, kv_head, p.num_kv_heads)};
  for (const int32_t key : row.of_head(head))
    all.push_back(added_terms(p, {head, row.query, key, first, first_biases_[row.request]}).sum);
  return all;
}

std::string RowInputs::differing(const RowInputs& other, int64_t i) const {
  Names names;
  if (!scene_ || !other.scene_) return "";
  const Scene &a = scene_->scene(), &b = other.scene_->scene();
  const int32_t num_heads = a.params.num_qo_heads;
  names.add("sm_scale", a.params.sm_scale == b.params.sm_scale);
  names.add("softcap", a.params.logits_soft_cap == b.params.logits_soft_cap);
  names.add("sinks", std::ranges::equal(a.params.sinks, b.params.sinks));
  names.add("k_scale", a.tokens.k_scale == b.tokens.k_scale);
  names.add("v_scale", a.tokens.v_scale == b.tokens.v_scale);
  const bool heads = names.add("num_kv_heads", a.params.num_kv_heads == b.params.num_kv_heads);
  const bool dim = names.add("head_dim", a.params.head_dim_qk == b.params.head_dim_qk);
  if (!heads || !dim) return names.text();
  names.add("q", same_query(a.q, first_ + i, b.q, other.first_ + i));
  const Row &mine = rows_[static_cast<size_t>(i)], &its = other.rows_[static_cast<size_t>(i)];
  const int32_t group = num_heads / a.params.num_kv_heads;
  for (int32_t head = 0; head < num_heads; ++head) {
    const bool seen_before =
        head % group != 0 && !mine.seen.contains(head) && !its.seen.contains(head);
    const std::vector<int32_t>&here = mine.of_head(head), &there = its.of_head(head);
    if (!names.add("how many keys it sees", here.size() == there.size())) continue;
    const auto same = [&](const KvPlane& x, const KvPlane& y) {
      return std::ranges::equal(here, there, [&](int32_t s, int32_t t) {
        return same_token(x, a.rows.keys[mine.request][static_cast<size_t>(s)], y,
                          b.rows.keys[its.request][static_cast<size_t>(t)], head / group);
      });
    };
    names.add("keys", seen_before || same(a.tokens.k, b.tokens.k));
    names.add("values", seen_before || same(a.tokens.v, b.tokens.v));
    const auto differ = [&](const AttentionTerms& x, const AttentionTerms& y) {
      return effects(x, mine, head) != other.effects(y, its, head);
    };
    const AttentionTerms &x = a.params.terms, &y = b.params.terms;
    if (here.empty() || (!x.any() && !y.any()) || !differ(x, y)) continue;
    for_each_term(
        [&](std::string_view name) { names.add(name, !differ(only(name, x), only(name, y))); });
  }
  return names.text();
}

}  // namespace shadowgraph
