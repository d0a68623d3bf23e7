// What a step's metadata says of each token.
#include <algorithm>

#include "backends/deepseek_v4.h"

namespace shadowgraph {
namespace {

int32_t window_slot(const ForwardBatch& batch, const Limits& limits, int32_t slot) {
  return limits.model.swa_pool ? translate(batch.full_to_swa, slot) : slot;
}

}  // namespace

std::span<int32_t> DeepseekV4::Scene::row(size_t buffer, const Token& t) const {
  const auto columns = static_cast<size_t>(meta[buffer].shape[1]);
  return ints[buffer].subspan(static_cast<size_t>(t.index) * columns, columns);
}

int64_t DeepseekV4::block_slot(const Scene& s, const Token& t, const V4Layer& l,
                               int32_t block) const {
  const int32_t page = t.slot(block * l.ratio) / s.limits().model.page_size;
  const int32_t a_page = s.limits().model.page_size / l.ratio;
  return int64_t{page} * a_page + block % a_page;
}

/// A page of the window's pool has as many states as can be live at a time, block by block in turn.
int32_t DeepseekV4::state_page(const Scene& s, const Token& t, const V4Layer& l,
                               int32_t block) const {
  const ModelConfig& m = s.limits().model;
  const int32_t page = window_slot(s.batch, s.limits(), t.slot(block * l.ratio)) / m.page_size;
  const int32_t states = l.page_states(m.page_size, drafts(m));
  return page * states + block % (m.page_size / l.ratio) % states;
}

void DeepseekV4::fill_lists(const Scene& s, const Token& t) const {
  const auto at = static_cast<size_t>(t.index);
  const auto slot_at = [&](int32_t p) { return window_slot(s.batch, s.limits(), t.slot(p)); };
  s.slots[kWindowOutLoc][at] = t.slots.empty() ? 0 : slot_at(t.position());
  const std::span<int32_t> window = s.row(kWindow, t);
  const int32_t seen = std::min(t.len, s.layer.window);
  std::ranges::fill(window, -1);
  for (int32_t j = 0; j < seen; ++j) window[static_cast<size_t>(j)] = slot_at(t.position() - j);
  s.ints[kWindowLens][at] = seen;
  for (const V4Group g : kV4Groups) {
    const V4Layer* l = layer_of(s.limits().model, g);
    if (l == nullptr) continue;
    const std::span<int32_t> blocks = s.row(of(g, kBlocks), t);
    std::ranges::fill(blocks, -1);
    for (int32_t j = 0; j < t.len / l->ratio; ++j)
      blocks[static_cast<size_t>(j)] = static_cast<int32_t>(block_slot(s, t, *l, j));
  }
}

void DeepseekV4::fill_group(const Scene& s, const Token& t, V4Group g) const {
  const V4Layer* l = layer_of(s.limits().model, g);
  if (l == nullptr) return;
  const auto at = static_cast<size_t>(t.index);
  const int32_t block = t.position() / l->ratio, whole = t.len / l->ratio;
  const bool ends = t.len % l->ratio == 0, real = !t.slots.empty();
  s.slots[of(g, kOutLoc)][at] = real && ends ? block_slot(s, t, *l, block) : 0;
  s.ints[of(g, kLensRaw)][at] = whole;
  s.ints[of(g, kLensClamp1)][at] = std::max(1, whole);
  if (g == V4Group::kC4) s.ints[of(g, kTopkLens)][at] = std::min(std::max(1, whole), l->index_topk);
  s.ints[of(g, kStatePages)][at] = real ? state_page(s, t, *l, block) : 0;
  const bool pools_both = real && ends && l->shape().overlaps() && block > 0;
  s.ints[of(g, kExtraPages)][at] = pools_both ? state_page(s, t, *l, block - 1) : 0;
}

void DeepseekV4::fill_token(const Scene& s, const Token& t) const {
  const auto at = static_cast<size_t>(t.index);
  s.ints[kSeqLens][at] = t.len;
  s.ints[kPositions][at] = t.position();
  s.ints[kPoolRows][at] = t.pool_row;
  s.f.table_row(kPageTable, t.index, t.slots, t.slots.empty() ? 1 : t.kv_len);
  fill_lists(s, t);
  for (const V4Group g : kV4Groups) fill_group(s, t, g);
}

Status DeepseekV4::fill(const ForwardBatch& batch, Meta& meta) const {
  const Limits& limits = meta.limits;
  Status status = fits(batch, limits);
  if (status.ok()) status = translates(batch, limits, 1);
  if (!status.ok()) return status;
  Filler f(meta);
  Scene s{batch, meta, first_layer(limits.model), f};
  for (size_t b = 0; b < kFirstOwn; ++b) {
    if (!meta.has(b) || b == kPageTable || meta[b].lifetime != Lifetime::kPerStep) continue;
    if (meta[b].dtype == DType::kI64) s.slots[b] = f.slots(static_cast<int>(b));
    if (meta[b].dtype == DType::kI32) s.ints[b] = f.ints(static_cast<int>(b));
  }
  const std::span<int32_t> offsets = s.ints[kTokenOffsets];
  offsets[0] = 0;
  Token t;
  for (int32_t i = 0; i < limits.rows; ++i) {
    const RequestRow row = row_of(batch, limits, i);
    for (int32_t j = 0; j < row.extent.q_len && t.index < limits.tokens; ++j, ++t.index) {
      const int64_t index = t.index;
      t = {.index = index};
      if (!row.padding()) {
        t.len = row.extent.prefix_len + j + 1;
        t.pool_row = batch.req_pool_indices[static_cast<size_t>(i)];
        t.prefix_len = row.extent.prefix_len, t.kv_len = row.extent.kv_len;
        t.slots = row.slots;
      }
      fill_token(s, t);
    }
    offsets[static_cast<size_t>(i) + 1] = static_cast<int32_t>(t.index);
  }
  for (t = {.index = t.index}; t.index < limits.tokens; ++t.index) fill_token(s, t);
  offsets[static_cast<size_t>(limits.rows)] = limits.tokens;
  end_lists(s);
  return f.take_status();
}

}  // namespace shadowgraph
