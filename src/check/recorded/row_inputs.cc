#include "check/recorded/row_inputs.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/float_formats.h"
#include "oracle/oracle.h"

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

/// A token's elements in all heads, and its scale.
bool same_token(const KvPlane& a, int32_t i, const KvPlane& b, int32_t j, int32_t heads) {
  const auto scale = [](const KvPlane& p, int32_t token, int32_t head) {
    return p.scales == nullptr ? 1 : p.scales[p.scale_offset(token, 0, head)];
  };
  for (int32_t h = 0; h < heads; ++h) {
    if (!same_float(scale(a, i, h), scale(b, j, h))) return false;
    for (int32_t d = 0; d < a.head_dim; ++d) {
      if (!same_float(load_float(a.data, a.dtype, a.offset(i, 0, h, d)),
                      load_float(b.data, b.dtype, b.offset(j, 0, h, d))))
        return false;
    }
  }
  return true;
}

}  // namespace

RowInputs::RowInputs(const AnyCall& any, int64_t first, int64_t count) : first_(first) {
  tokens_.resize(static_cast<size_t>(count));
  const auto read = [&](const auto& call) {
    using Call = std::decay_t<decltype(call)>;
    if constexpr (std::is_same_v<Call, PagedAttention> || std::is_same_v<Call, RaggedAttention>) {
      const RowsRead& rows = scene_.emplace(call).scene().rows;
      for_each_row(call, [&](const OracleRow& row) {
        if (row.head != 0 || row.row < first || row.row >= first + count) return;
        const auto next = std::ranges::upper_bound(rows.cu_seqlens_q, row.row);
        const auto request = static_cast<size_t>(next - rows.cu_seqlens_q.begin() - 1);
        for (const int32_t place : row.keys)
          tokens_[static_cast<size_t>(row.row - first)].push_back(
              rows.keys[request][static_cast<size_t>(place)]);
      });
    }
  };
  std::visit(read, any);
}

std::string RowInputs::differing(const RowInputs& other, int64_t i) const {
  std::string all;
  const auto add = [&](const char* name, bool same) {
    if (!same) all += (all.empty() ? "" : ", ") + std::string(name);
    return same;
  };
  if (!scene_ || !other.scene_) return all;
  const Scene &a = scene_->scene(), &b = other.scene_->scene();
  add("sm_scale", a.params.sm_scale == b.params.sm_scale);
  add("softcap", a.params.logits_soft_cap == b.params.logits_soft_cap);
  add("sinks", std::ranges::equal(a.params.sinks, b.params.sinks));
  add("k_scale", a.tokens.k_scale == b.tokens.k_scale);
  add("v_scale", a.tokens.v_scale == b.tokens.v_scale);
  const bool heads = add("num_kv_heads", a.params.num_kv_heads == b.params.num_kv_heads);
  const bool dim = add("head_dim", a.params.head_dim_qk == b.params.head_dim_qk);
  if (!heads || !dim) return all;
  add("q", same_query(a.q, first_ + i, b.q, other.first_ + i));
  const auto &mine = tokens_[static_cast<size_t>(i)], &its = other.tokens_[static_cast<size_t>(i)];
  if (!add("how many keys it sees", mine.size() == its.size())) return all;
  const auto same = [&](const KvPlane& x, const KvPlane& y) {
    return std::ranges::equal(mine, its, [&](int32_t s, int32_t t) {
      return same_token(x, s, y, t, a.params.num_kv_heads);
    });
  };
  add("keys", same(a.tokens.k, b.tokens.k));
  add("values", same(a.tokens.v, b.tokens.v));
  return all;
}

}  // namespace shadowgraph
