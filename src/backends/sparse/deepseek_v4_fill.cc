// Fills DeepSeek-V4's metadata: windows, blocks and compressor states of every token.
#include <algorithm>

#include "attn/page_table.h"
#include "backends/sparse/deepseek_v4.h"

namespace shadowgraph {

V4TokenRules DeepseekV4::rules_of(const Limits& limits) const {
  const ModelConfig& m = limits.model;
  const V4Layer& first = first_layer(m);
  const bool unified = pools() == V4Pools::kUnified;
  V4TokenRules r{};
  r.page_size = m.page_size;
  r.window = first.window;
  r.window_columns = unified ? 0 : static_cast<int32_t>(v4_columns(first.window));
  r.table_columns = static_cast<int32_t>(pages_for(limits.max_kv_len, m.page_size));
  r.ring = unified ? first.ring(drafts(m)) : 0;
  r.rings = int64_t{r.ring} * first.rows;
  for (const V4Group g : kV4Groups) {
    const V4Layer* l = layer_of(m, g);
    if (l == nullptr) continue;
    V4TokenRules::Blocks& blocks = r.blocks[static_cast<size_t>(g)];
    blocks.ratio = l->ratio;
    blocks.overlaps = l->shape().overlaps() ? 1 : 0;
    blocks.index_topk = l->index_topk;
    blocks.states = unified ? l->live_blocks(drafts(m)) : l->page_states(m.page_size, drafts(m));
    // Those of c4 a launch makes of the page table.
    blocks.columns = unified || g == V4Group::kC4 ? 0 : block_columns(limits, *l);
  }
  return r;
}

void DeepseekV4::fill_lists(Scene& /*s*/, Writer& writer, const V4Token& t) const {
  writer.write_lists(t);
}

void DeepseekV4::fill_tokens(Scene& s) const {
  const std::span<const int32_t> offsets = s.ints[kTokenOffsets];
  Writer writer(rules_of(s.limits()), &s);
  for (int32_t i = 0; i < s.limits().rows; ++i) {
    const auto at = static_cast<size_t>(i);
    const RequestRow row = row_of(s.batch, s.limits(), i);
    const int32_t pool_row = row.padding() ? 0 : s.batch.req_pool_indices[at];
    s.slots = row.slots;
    for (int64_t index = offsets[at]; index < offsets[at + 1]; ++index) {
      const V4Token t = v4_token(index, offsets[at], i, !row.padding(), pool_row,
                                 row.extent.prefix_len, row.extent.kv_len);
      writer.write(t);
      (void)s.f.row(kPageTable, index, pages_for(t.kv_len, s.limits().model.page_size));
      fill_lists(s, writer, t);
    }
  }
  end_lists(s);
}

/// What launches expand.
void DeepseekV4::fill_raw(const Scene& s) {
  for (int32_t i = 0; i < s.limits().rows; ++i) {
    const auto at = static_cast<size_t>(i);
    const RequestRow row = row_of(s.batch, s.limits(), i);
    s.ints[kRawPoolRows][at] = row.padding() ? 0 : s.batch.req_pool_indices[at];
    s.ints[kRawPrefixLens][at] = row.extent.prefix_len;
    s.ints[kRawLens][at] = row.extent.kv_len;
  }
  s.f.out_cache_loc(s.batch, kRawOutLoc, -1);
}

Status DeepseekV4::fill(const ForwardBatch& batch, Meta& meta) const {
  const Limits& limits = meta.limits;
  Status status = fits(batch, limits);
  if (status.ok()) status = translates(batch, limits, 1);
  if (!status.ok()) return status;
  Filler f(meta);
  Scene s{batch, meta, f};
  for (size_t b = 0; b < kFirstOwn; ++b) {
    if (!meta.has(b) || meta[b].lifetime != Lifetime::kPerStep || b == kRawOutLoc) continue;
    if (is_long(b)) {
      s.longs[b] = f.slots(static_cast<int>(b));
    } else {
      s.ints[b] = f.ints(static_cast<int>(b));
    }
  }
  const std::span<int32_t> offsets = s.ints[kTokenOffsets];
  offsets[0] = 0;
  for (int32_t i = 0; i < limits.rows; ++i) {
    const auto at = static_cast<size_t>(i);
    offsets[at + 1] = std::min(limits.tokens, offsets[at] + row_of(batch, limits, i).extent.q_len);
  }
  offsets[static_cast<size_t>(limits.rows)] = limits.tokens;
  if (limits.model.in_graph_tables) {
    fill_raw(s);
  } else {
    fill_tokens(s);
  }
  return f.take_status();
}

}  // namespace shadowgraph
