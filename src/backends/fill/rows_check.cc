// Checks limits against what a backend serves, and a batch against the limits that it is filled
// for.
#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>

#include "backends/fill/features.h"
#include "backends/fill/rows.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

// The elements of any buffer are products of two of these, and fit into 63 bits.
constexpr int64_t kMostOfAll = int64_t{1} << 30;  // no edge: tokens that no memory holds

bool has_entry(std::span<const int64_t> map, int64_t slot) {
  return slot < static_cast<int64_t>(map.size());
}

/// What the batch lacks of the fields that its mode and its model need.
Status check_fields(const ForwardBatch& b, const Limits& limits) {
  Status status;
  if (b.size() == 0) return status;
  const auto need = [&](bool there, const char* field, const char* expected) {
    if (!there) status.add(make_finding("batch.field", at(field), expected, "empty"));
  };
  need(b.req_pool_indices.size() == b.seq_lens.size() && b.req_to_token.width > 0, "req_to_token",
       "a table, and a row for each request");
  need(!limits.model.swa_pool || !b.full_to_swa.empty(), "full_to_swa",
       "the window pool's slot of every slot");
  need(!is_draft_tree(limits) || !b.out_cache_loc.empty(), "out_cache_loc",
       "the slots of every branch");
  need(!is_verify_tree(limits) || !b.spec.custom_mask.empty(), "custom_mask", "the tree");
  return status;
}

/// The mode, and the shape of a speculation, that limits are for.
Status check_mode(const ForwardBatch& b, const Limits& limits) {
  Status status;
  const auto fail = [&](const char* field, std::string expected, std::string got) {
    status.add(make_finding("batch.mode", at(field), std::move(expected), std::move(got)));
  };
  const bool idle = b.mode == ForwardMode::kIdle && is_decode(limits.mode);
  if (b.mode != limits.mode && !idle)
    fail("mode", std::string(name_of(limits.mode)), std::string(name_of(b.mode)));
  if (limits.mode != ForwardMode::kDraftDecode || b.mode != limits.mode) return status;
  const auto same = [&](const char* field, int32_t expected, int32_t got) {
    if (expected != got) fail(field, std::to_string(expected), std::to_string(got));
  };
  same("spec.topk", std::max(1, limits.model.topk), b.spec.topk);
  same("spec.step", limits.step, b.spec.step);
  return status;
}

/// The lengths of every request, and of padding, fit; and all tokens together.
class LengthCheck {
 public:
  explicit LengthCheck(const Limits& limits) : limits_(limits) {}

  Status run(const ForwardBatch& b) {
    const int32_t branches = limits_.mode == ForwardMode::kDraftDecode ? b.spec.topk : 1;
    int64_t tokens = 0, keys = 0;
    for (int64_t i = 0; i < b.size(); ++i) {
      const RequestExtent e = b.extent(i);
      tokens += int64_t{e.q_len} * branches;
      keys += e.kv_len;
      check_queries(e.q_len, i);
      if (e.kv_len > limits_.max_kv_len) too_many("seq_lens", i, limits_.max_kv_len, e.kv_len);
      if (const int32_t items = items_len(b, i); items > limits_.max_items_len)
        too_many("item_delimiters", i, limits_.max_items_len, items);
      if (!b.encoder_lens.empty()) check_encoder(b.encoder_lens[static_cast<size_t>(i)], i);
    }
    if (!limits_.is_bucket() && keys > limits_.sum_kv_lens)
      too_many("seq_lens", {}, limits_.sum_kv_lens, keys);
    if (tokens > limits_.tokens) too_many("extend_lens", {}, limits_.tokens, tokens);
    const int32_t padding = row_of(b, limits_, b.size()).extent.kv_len;
    if (b.size() < limits_.rows && padding > limits_.max_kv_len)
      too_many("seq_len_fill", {}, limits_.max_kv_len, padding);
    const int64_t encoded = int64_t{limits_.rows} * limits_.model.max_encoder_len;
    if (static_cast<int64_t>(b.encoder_out_cache_loc.size()) > encoded)
      too_many("encoder_out_cache_loc", {}, encoded,
               static_cast<int64_t>(b.encoder_out_cache_loc.size()));
    return std::move(status_);
  }

 private:
  void too_many(const char* field, std::optional<int64_t> request, int64_t limit, int64_t got) {
    status_.add(make_finding("batch.capacity", at(field, request), "<= " + std::to_string(limit),
                             std::to_string(got)));
  }
  void check_queries(int32_t q_len, int64_t i) {
    if (q_len > limits_.max_q_len) too_many("extend_lens", i, limits_.max_q_len, q_len);
    const bool all = is_decode(limits_.mode) || is_verify_tree(limits_);
    if (all && q_len < limits_.max_q_len)
      status_.add(make_finding("batch.mode", at("extend_lens", i),
                               std::to_string(limits_.max_q_len), std::to_string(q_len)));
  }
  void check_encoder(int32_t len, int64_t i) {
    if (len > limits_.model.max_encoder_len)
      too_many("encoder_lens", i, limits_.model.max_encoder_len, len);
  }

  const Limits& limits_;
  Status status_;
};

/// What a planner multiplies.
void check_splits(const SplitConfig& s, Status* status) {
  const auto within = [&](const char* field, int32_t least, int32_t most, int32_t value) {
    if (value < least || value > most)
      refuse(status, field, std::to_string(least) + " to " + std::to_string(most), value);
  };
  constexpr int32_t kMost = 1 << 20;  // no edge: more than any GPU has
  within("split.fixed_size", 0, INT32_MAX, s.fixed_size);
  within("split.min_size", 1, INT32_MAX, s.min_size);
  within("split.max_splits", 1, kMost, s.max_splits);
  within("split.num_sms", 1, kMost, s.num_sms);
  within("split.blocks_per_sm", 1, 1 << 10, s.blocks_per_sm);
}

/// The backend has kernels for the layer.
bool serves_layer(const BackendInfo& info, const LayerKind& kind) {
  if (const RecurrentLayer* layer = recurrent_of(kind))
    return std::ranges::find(info.recurrent, layer->family) != info.recurrent.end();
  if (sparse_of(kind) != nullptr) return info.sparse;
  if (const V4Layer* layer = v4_of(kind))
    return std::ranges::find(info.v4, layer->pools) != info.v4.end();
  return info.dense;
}

/// What a kind of layer needs of the model.
void check_kinds(const BackendInfo& info, const ModelConfig& m, Status* status) {
  for (size_t i = 0; i < m.layers.size(); ++i) {
    const LayerKind& kind = m.layers[i];
    const auto layer = static_cast<int64_t>(i);
    if (!serves_layer(info, kind))
      status->add(make_finding("backend.limits", at("layers", layer),
                               "a layer that " + std::string(info.name) + " computes", "another"));
    if ((kind.cross || kind.local) && !info.encoder && !info.local && !info.dual_chunk)
      refuse(status, "layers", "neither cross-attention nor local", layer);
    const auto need = [&](bool asked, const char* field, int32_t value) {
      if (asked && value <= 0)
        refuse(status, field, "> 0 for layer kind " + std::to_string(i), value);
    };
    need(kind.local, "attention_chunk", m.attention_chunk);
    need(kind.cross, "max_encoder_len", m.max_encoder_len);
  }
}

/// All layers are dual-chunk ones, or none is; chunks are whole pages, none of whose keys is hidden
/// but by causality.
void check_dual_chunks(const BackendInfo& info, const ModelConfig& m, Status* status) {
  for (size_t i = 0; i < m.layers.size(); ++i) {
    const LayerKind& k = m.layers[i];
    const std::string kind = "layer kind " + std::to_string(i);
    if (k.dual_chunk != info.dual_chunk)
      refuse(status, "dual_chunk", std::string(info.dual_chunk ? "yes" : "no") + " for " + kind,
             k.dual_chunk ? "yes" : "no");
    const AttentionParams& p = k.params;
    const bool other = k.cross || k.local || k.mla || !p.causal || p.window_left >= 0 ||
                       p.window_right >= 0 || !p.sinks.empty();
    if (k.dual_chunk && other)
      refuse(status, "dual_chunk", "only causal attention for " + kind,
             "a window, sinks, or another kind");
  }
  if (!info.dual_chunk) return;
  const DualChunkConfig& c = m.dual_chunk;
  if (c.local_size < 0 || c.local_size >= c.chunk_size)
    refuse(status, "dual_chunk.local_size",
           "0 to less than chunk_size " + std::to_string(c.chunk_size), c.local_size);
  else if (m.page_size > 0 && c.chunk_len() % m.page_size != 0)
    refuse(status, "dual_chunk.chunk_size", "local_size plus whole pages", c.chunk_size);
  if (c.original_max_position < 0)
    refuse(status, "dual_chunk.original_max_position", ">= 0", c.original_max_position);
}

}  // namespace

Status fits(const ForwardBatch& batch, const Limits& limits) {
  for (const LawId law : {LawId("batch.mode"), LawId("batch.field"), LawId("batch.capacity")})
    judged(law);
  Status status = validate(batch);
  status.add(check_mode(batch, limits));
  status.add(check_fields(batch, limits));
  if (batch.size() > limits.rows)
    status.add(make_finding("batch.capacity", at("seq_lens"),
                            "<= " + std::to_string(limits.rows) + " requests",
                            std::to_string(batch.size())));
  if (status.ok()) status = LengthCheck(limits).run(batch);
  return status;
}

Status translates(const ForwardBatch& batch, const Limits& limits, int32_t unit) {
  Status status;
  if (!limits.model.swa_pool) return status;
  judged("table.page_id");
  judged("slot.range");
  const std::span<const int64_t> map = batch.full_to_swa;
  const auto fail = [&](LawId law, Where where, int64_t slot) {
    status.add(make_finding(law, std::move(where),
                            "< " + std::to_string(map.size()) + " slots of full_to_swa",
                            std::to_string(slot)));
  };
  for (int64_t i = 0; i < batch.size(); ++i) {
    const RequestRow row = row_of(batch, limits, i);
    const int32_t branch = is_draft_tree(limits) ? limits.step + 1 : 0;  // not in req_to_token
    for (int32_t t = 0; t < row.extent.kv_len - branch; t += unit) {
      const int32_t slot = row.slots[static_cast<size_t>(t)];
      if (!has_entry(map, slot)) fail("table.page_id", at("req_to_token", i, t), slot);
    }
  }
  for (size_t t = 0; t < batch.out_cache_loc.size(); ++t)
    if (!has_entry(map, batch.out_cache_loc[t]))
      fail("slot.range", at("out_cache_loc", static_cast<int64_t>(t)), batch.out_cache_loc[t]);
  return status;
}

void refuse(Status* status, std::string_view field, std::string expected, std::string got) {
  status->add(
      make_finding("backend.limits", at(std::string(field)), std::move(expected), std::move(got)));
}

Status serves(const BackendInfo& info, const Limits& limits) {
  Status status;
  judged("backend.limits");
  const ModelConfig& m = limits.model;
  if (!has_mode(info, limits.mode))
    refuse(&status, "mode", "a mode of " + std::string(info.name),
           std::string(name_of(limits.mode)));
  const bool listed = info.page_sizes.empty() ||
                      std::ranges::find(info.page_sizes, m.page_size) != info.page_sizes.end();
  if (m.page_size < 1 || !std::has_single_bit(static_cast<uint32_t>(m.page_size)) || !listed) {
    std::string sizes = info.page_sizes.empty() ? "a power of two" : "one of";
    for (const int32_t size : info.page_sizes) sizes += " " + std::to_string(size);
    refuse(&status, "page_size", std::move(sizes), m.page_size);
  }
  for (const Feature& f : kFeatures)
    if (const std::string asked = f.asked(limits); !asked.empty() && !(info.*f.served))
      refuse(&status, f.member, f.without, asked);
  if (limits.max_items_len > 0 && info.items && limits.mode != ForwardMode::kExtend)
    refuse(&status, "max_items_len", "0", limits.max_items_len);
  if (m.attention_chunk > 0 && m.page_size > 0 && m.attention_chunk % m.page_size != 0)
    refuse(&status, "attention_chunk", "a multiple of page_size", m.attention_chunk);
  const auto positive = [&](const char* field, int64_t value, int64_t least) {
    if (value < least) refuse(&status, field, ">= " + std::to_string(least), value);
    if (value > kMostOfAll) refuse(&status, field, "<= " + std::to_string(kMostOfAll), value);
  };
  positive("rows", limits.rows, 0);
  positive("tokens", limits.tokens, 0);
  positive("max_q_len", limits.max_q_len, 0);
  positive("max_kv_len", limits.max_kv_len, 0);
  positive("max_items_len", limits.max_items_len, 0);
  positive("topk", m.topk, 0);
  positive("page_size", std::max<int64_t>(0, m.page_size) * std::max(1, m.dcp_size), 0);
  positive("seq_len_fill", m.seq_len_fill, info.engine->padding_len);
  positive("prefix_chunk_tokens", m.prefix_chunk_tokens, 0);
  check_kinds(info, m, &status);
  check_dual_chunks(info, m, &status);
  if (!info.batch_splits.empty()) check_splits(m.split, &status);
  const int64_t width = is_draft_tree(limits) ? m.topk : limits.max_q_len;
  if ((is_draft_tree(limits) || is_verify_tree(limits)) && limits.tokens != limits.rows * width)
    refuse(&status, "tokens",
           std::to_string(limits.rows * width) + ", " + std::to_string(width) + " a row",
           limits.tokens);
  if (is_decode_or_idle(limits.mode) && !is_draft_tree(limits) && limits.tokens != limits.rows)
    refuse(&status, "tokens", std::to_string(limits.rows) + ", one a row", limits.tokens);
  if (is_decode_or_idle(limits.mode) && limits.max_q_len != 1)
    refuse(&status, "max_q_len", "1", limits.max_q_len);
  return status;
}

}  // namespace shadowgraph
