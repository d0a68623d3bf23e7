#include "backends/lists/flashinfer_wrapper.h"

#include <algorithm>

namespace shadowgraph {
namespace {

bool is_ragged(const Limits& limits) {
  const ModelConfig& m = limits.model;
  if (!m.ragged_prefill || limits.max_items_len > 0) return false;
  switch (limits.mode) {
    case ForwardMode::kExtend:
    case ForwardMode::kMixed:
    case ForwardMode::kSplitPrefill: return true;
    case ForwardMode::kDraftExtendV2:
      return !limits.is_bucket() && m.split.fixed_size <= 0 && !m.split.off;
    default: return false;
  }
}

}  // namespace

int wrapper_of(const ModelConfig& model, const LayerKind& kind) {
  if (std::ranges::any_of(model.layers, has_window)) return has_window(kind) ? 0 : 1;
  return kind.cross ? 1 : 0;
}

FlashInferWrapper FlashInferWrapper::of(const Limits& limits, int wrapper) {
  const ModelConfig& m = limits.model;
  FlashInferWrapper w;
  w.used = m.layers.empty() && wrapper == 0;
  for (const LayerKind& kind : m.layers) {
    if (w.used || wrapper_of(m, kind) != wrapper) continue;
    w.used = true;
    w.kind = kind;
  }
  w.window_pool = in_window_pool(m, w.kind);
  w.items = !w.kind.cross && limits.max_items_len > 0;
  w.ragged = !w.kind.cross && is_ragged(limits);
  w.masked = !w.kind.cross && (is_target_verify(limits.mode) || (w.ragged && has_window(w.kind)));
  return w;
}

KvRange FlashInferWrapper::keys(const RequestRow& row) const {
  if (kind.cross) return {0, row.encoder_len};
  const RequestExtent& e = row.extent;
  // A padding row may have more queries than keys.
  const int32_t prefix = std::max(e.kv_len - e.q_len, 0);
  const int32_t end = ragged ? prefix : e.kv_len;
  return {has_window(kind) ? std::max(prefix - kind.params.window_left, 0) : 0, end};
}

int64_t FlashInferWrapper::max_keys(const Limits& limits) const {
  if (kind.cross) return limits.model.max_encoder_len;
  if (!has_window(kind)) return limits.max_kv_len;
  return std::min<int64_t>(limits.max_kv_len, int64_t{kind.params.window_left} + limits.max_q_len);
}

int64_t FlashInferWrapper::all_keys(const Limits& limits) const {
  const int64_t most = max_keys(limits);
  return kind.cross ? limits.rows * most : most_listed_keys(limits, most);
}

PlanShape FlashInferWrapper::shape(const Limits& limits, FlashInfer::Part part) const {
  const AttentionParams& p = kind.params;
  PlanShape s;
  s.num_kv_heads = std::max(1, p.num_kv_heads);
  s.num_qo_heads = std::max(s.num_kv_heads, p.num_qo_heads);
  s.head_dim_qk = p.head_dim_qk, s.head_dim_vo = p.head_dim_vo;
  // Tensor cores pay from a group of 4 on; they run the prefill kernel.
  const bool decode = is_decode_or_idle(limits.mode) && s.group() < 4;
  s.kind = decode && part == FlashInfer::Part::kPaged ? PlanKind::kDecode : PlanKind::kPrefill;
  s.rows = limits.rows * lists_a_row(limits);
  s.tokens = limits.tokens;
  s.padded = limits.is_bucket();
  s.split = limits.model.split;
  return s;
}

}  // namespace shadowgraph
