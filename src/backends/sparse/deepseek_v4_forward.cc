// A layer's launches: tokens are stored, compressed, and blocks that end are stored; then each
// token meets its window and its blocks.
#include "backends/sparse/deepseek_v4.h"
#include "launch/block_launch.h"
#include "launch/compress_launch.h"
#include "launch/index_launch.h"
#include "launch/row_numbers.h"
#include "launch/sparse_launch.h"
#include "launch/v4_expand.h"

namespace shadowgraph {

void DeepseekV4::store_tokens(Stream& stream, const Meta& meta, const Layer& l,
                              int64_t first_slot) {
  PackLatents pack;
  pack.latents = l.tensors.latents;
  pack.out_cache_loc = elements<int64_t>(meta[kWindowOutLoc]);
  pack.pool = l.tensors.tokens;
  pack.first_slot = first_slot;
  stream.launch(pack_latents_launch(pack, token_rows(meta.limits)));
}

void DeepseekV4::compress_tokens(Stream& stream, const Meta& meta, const Layer& l,
                                 int32_t first_page) {
  const V4Group g = group_of(l.layer);
  Compress c;
  c.shape = l.layer.shape();
  c.kv_score = l.tensors.kv_score, c.ape = l.tensors.ape;
  c.cu_seqlens_q = elements<int32_t>(meta[kTokenOffsets]);
  c.seq_lens = elements<int32_t>(meta[kSeqLens]);
  c.indices = elements<int32_t>(meta[of(g, kStatePages)]);
  c.extra = elements<int32_t>(meta[of(g, kExtraPages)]);
  c.state = l.tensors.state;
  c.out = l.pooled.view();
  c.first_page = first_page;
  stream.launch(compress_launch(c, {.a_request = 1, .first = meta.limits.first_row}));
}

void DeepseekV4::store_block_ends(Stream& stream, const Meta& meta, const Layer& l,
                                  const WritableLatentPool& pool, int64_t first_slot) {
  StoreBlocks c;
  c.x = l.pooled.view();
  c.weight = l.tensors.weight, c.eps = l.layer.eps;
  c.freqs = l.tensors.freqs;
  c.positions = elements<int32_t>(meta[kPositions]);
  c.out_loc = elements<int64_t>(meta[of(group_of(l.layer), kOutLoc)]);
  c.pool = pool;
  c.ratio = l.layer.ratio;
  c.first_slot = first_slot;
  stream.launch(store_blocks_launch(c, token_rows(meta.limits)));
}

/// All whole blocks of c4 layers, of which each layer's scores choose.
void DeepseekV4::list_blocks(Stream& stream, const Meta& meta) const {
  const size_t blocks = of(V4Group::kC4, kBlocks);
  if (!meta.has(blocks)) return;
  const ModelConfig& m = meta.limits.model;
  BlocksOfPages c;
  c.page_table = meta[kPageTable].view();
  c.lens = elements<int32_t>(meta[of(V4Group::kC4, kLensRaw)]);
  c.out = meta[blocks].view();
  c.a_page = m.page_size / layer_of(m, V4Group::kC4)->ratio;
  stream.launch(blocks_of_pages_launch(c, token_rows(meta.limits)));
}

/// The index_topk best of a token's whole blocks; what columns have besides is not looked at.
void DeepseekV4::choose_blocks(Stream& stream, const Meta& meta, const Layer& l) {
  const Buffer& table = meta[of(V4Group::kC4, kBlocks)];
  const auto first_columns = [&](BufferId id) {
    return TensorView(meta[id].data, DType::kI32, {meta[id].shape[0], l.layer.index_topk},
                      {meta[id].shape[1], 1});
  };
  ChooseIndices c;
  c.select.logits = l.tensors.index_scores;
  c.select.ke = elements<int32_t>(meta[of(V4Group::kC4, kLensRaw)]);
  c.select.indices = first_columns(kChosen);
  c.transform.indices = c.select.indices;
  c.transform.page_table_1 = table.view();
  c.transform.out = first_columns(kChosenSlots);
  stream.launch(choose_indices_launch(c, token_rows(meta.limits)));
}

SparseAttention DeepseekV4::attention_of(const Layer& l) {
  SparseAttention c;
  c.q = l.io.q, c.out = l.io.out, c.lse = l.io.lse;
  c.head_dim_v = l.layer.head_dim;
  c.sm_scale = l.layer.sm_scale;
  c.sinks = l.tensors.sinks;
  return c;
}

void DeepseekV4::run(Stream& stream, const Meta& meta, const Layer& l) const {
  const ModelConfig& m = meta.limits.model;
  store_tokens(stream, meta, l, m.page_size);
  SparseAttention c = attention_of(l);
  c.keys.pool = l.tensors.tokens;
  c.keys.indices = elements<int32_t>(meta[kWindow]);
  c.keys.width = meta[kWindow].shape[1];
  c.keys.lengths = elements<int32_t>(meta[kWindowLens]);
  if (l.layer.has_blocks()) {
    const V4Group g = group_of(l.layer);
    const bool chosen = g == V4Group::kC4;
    compress_tokens(stream, meta, l, l.layer.page_states(m.page_size, drafts(m)));
    store_block_ends(stream, meta, l, l.tensors.blocks, m.page_size / l.layer.ratio);
    if (chosen) choose_blocks(stream, meta, l);
    const Buffer& blocks = meta[chosen ? size_t{kChosenSlots} : of(g, kBlocks)];
    c.extra.pool = l.tensors.blocks;
    c.extra.indices = elements<int32_t>(blocks);
    c.extra.width = blocks.shape[1];
    c.extra.lengths = elements<int32_t>(meta[of(g, chosen ? kTopkLens : kLensClamp1)]);
  }
  stream.launch(sparse_launch(c, token_rows(meta.limits)));
}

void DeepseekV4::expand(Stream& stream, const Meta& meta, const StepIo& step) const {
  ExpandV4 c;
  c.rules = rules_of(meta.limits);
  c.req_to_token = step.req_to_token;
  if (meta.limits.model.swa_pool) c.full_to_swa = step.full_to_swa;
  c.pool_rows = elements<int32_t>(meta[kRawPoolRows]);
  c.prefix_lens = elements<int32_t>(meta[kRawPrefixLens]);
  c.kv_lens = elements<int32_t>(meta[kRawLens]);
  c.cu_seqlens_q = elements<int32_t>(meta[kTokenOffsets]);
  c.out_cache_loc = elements<int64_t>(meta[kRawOutLoc]);
  for (size_t b = 0; b < kFirstOwn; ++b)
    if (meta.has(b) && meta[b].lifetime == Lifetime::kScratch) c.to[b] = meta[b].data;
  for (const size_t b : {size_t{kChosen}, size_t{kChosenSlots}, of(V4Group::kC4, kBlocks)})
    c.to[b] = nullptr;  // other launches make them
  stream.launch(expand_v4_launch(c, {1, meta.limits.first_row}));
}

void DeepseekV4::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  if (meta.limits.model.in_graph_tables) expand(stream, meta, step);
  list_blocks(stream, meta);
  for (const LayerIo& io : step.layers) {
    const auto kind = static_cast<size_t>(io.kind);
    const V4Layer& layer = *v4_of(meta.limits.model.layers[kind]);
    run(stream, meta,
        {layer, *std::get<const V4Tensors*>(io.own), io, meta[kFirstOwn + num_own() + kind]});
  }
}

}  // namespace shadowgraph
