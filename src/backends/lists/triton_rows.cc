#include "backends/lists/triton_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "backends/fill/rows.h"
#include "core/int_math.h"

namespace shadowgraph {
namespace {

/// Query heads in all, and that read one KV head.
struct Heads {
  int64_t all = 1, group = 1;
};
/// Heads of the first layer that reads the lists.
Heads heads_of(const ModelConfig& model, bool window_layers) {
  const auto reads = [&](const LayerKind& k) { return has_window(k) == window_layers; };
  const auto layer = std::ranges::find_if(model.layers, reads);
  if (layer == model.layers.end()) return {};
  const AttentionParams& p = layer->params;
  const int64_t all = std::max(1, p.num_qo_heads);
  return {all, all / std::clamp<int64_t>(p.num_kv_heads, 1, all)};
}

/// Keys of a split, at the least: as many splits as level the rows, or as fill the GPU.
struct DynamicRule {
  int64_t level = 1, fill = 1;
  int64_t splits(int64_t keys) const {
    return std::max(ceil_div(keys, level), ceil_div(keys, fill));
  }
};
DynamicRule dynamic_rule(const Limits& limits, const Heads& heads, std::span<const int32_t> rows) {
  const SplitConfig& split = limits.model.split;
  const int64_t most = max_kv_splits(limits), longest = std::ranges::max(rows);
  int64_t shortest = std::ranges::min(rows);
  if (8 * longest < 10 * shortest) shortest = longest;  // no edge: a ratio
  // The engine's GPU kernel has it in single precision.
  const float grown = std::log2(static_cast<float>(longest) / 64.0f);
  const auto programs =
      static_cast<int64_t>(static_cast<float>(split.num_sms) * std::max(grown, 1.0f));
  const int64_t blocks =
      heads.group == 1 ? heads.all : ceil_div(heads.all, std::min<int64_t>(16, heads.group));
  const int64_t grid = static_cast<int64_t>(rows.size()) * blocks;
  const auto chunk = [&](int64_t splits) { return ceil_div(longest, std::min(splits, most)); };
  return {chunk(ceil_div(longest, shortest)), chunk(ceil_div(programs, grid))};
}

}  // namespace

int32_t window_of(const ModelConfig& model) {
  for (const LayerKind& k : model.layers)
    if (has_window(k)) return k.params.window_left;
  return -1;
}

KvRange listed_tokens(ForwardMode mode, const RequestExtent& extent, int32_t window_left) {
  const bool decode = is_decode_or_idle(mode);
  const int32_t position = decode ? extent.kv_len - 1 : std::max(0, extent.prefix_len);
  MaskShape query;
  query.q_len = 1, query.kv_len = position + 1, query.window_left = window_left;
  KvRange seen = kv_range(query, 0);
  if (!decode) --seen.end;
  return seen;
}

int32_t keys_to_split(const Limits& limits, const RequestExtent& extent, int32_t window_left) {
  RequestExtent committed = extent;
  if (limits.mode == ForwardMode::kDraftDecode) committed.kv_len -= limits.step + 1;
  return listed_tokens(limits.mode, committed, window_left).size();
}

int32_t max_kv_splits(const Limits& limits) {
  const SplitConfig& split = limits.model.split;
  if (split.off) return 1;
  if (split.fixed_size > 0)
    return std::max(1, static_cast<int32_t>(ceil_div(limits.max_kv_len, split.fixed_size)));
  if (!std::ranges::any_of(limits.model.layers, [](const LayerKind& k) { return k.mla; }))
    return split.max_splits;
  const auto power = [](int64_t n) {
    return std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1)));
  };
  const auto wide =
      std::min(power(split.num_sms), power(ceil_div(limits.model.max_context_len, 32)));
  return std::max(split.max_splits, static_cast<int32_t>(wide));
}

void count_kv_splits(const Limits& limits, bool window_layers, std::span<int32_t> rows) {
  const SplitConfig& split = limits.model.split;
  if (rows.empty()) return;
  for (int32_t& keys : rows) keys = std::max(1, keys);  // a draft may begin at nothing
  if (split.off) {
    std::ranges::fill(rows, 1);
  } else if (split.fixed_size > 0) {
    for (int32_t& r : rows) r = static_cast<int32_t>(ceil_div(r, split.fixed_size));
  } else {
    const DynamicRule rule = dynamic_rule(limits, heads_of(limits.model, window_layers), rows);
    for (int32_t& r : rows) r = static_cast<int32_t>(rule.splits(r));
  }
}

}  // namespace shadowgraph
