#include "check/worlds/v4_reference.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "attn/tensor_rows.h"
#include "backends/sparse/deepseek_v4.h"
#include "shadowgraph/layers/indexer.h"

namespace shadowgraph {
namespace {

/// A request's part of a layer, in order: what is stored first, then what is seen.
class V4Alone {
 public:
  V4Alone(const V4Layer& layer, const V4Tensors& tensors, const ConstTensorView& q,
          const V4Request& request, const V4Places& places, HostLatents* pools)
      : l_(layer), t_(tensors), q_(q), r_(request), e_(request.extent), places_(places) {
    tokens_ = in_host(t_.tokens, &pools->tokens);
    blocks_ = is_unified() ? tokens_ : in_host(t_.blocks, &pools->blocks);
    state_ = t_.state;
    state_.data = pools->state.data();
  }

  std::vector<float> run() {
    const bool later = is_unified() && r_.prefill && r_.attends;
    if (!later) store(e_.q_len);
    if (l_.has_blocks()) store_blocks();
    if (!r_.attends) return {};
    std::vector<float> out = attend(later);
    if (later) store(l_.window);
    return out;
  }

 private:
  bool is_unified() const { return l_.pools == V4Pools::kUnified; }
  int64_t tokens() const { return e_.q_len; }
  ConstTensorView part(const ConstTensorView& t) const { return rows_of(t, r_.first, tokens()); }

  static void pack(const ConstTensorView& latents, std::span<const int64_t> slots,
                   const WritableLatentPool& pool) {
    PackLatents c;
    c.latents = latents, c.out_cache_loc = slots, c.pool = pool;
    [[maybe_unused]] const Status status = pack_latents(c);
    assert(status.ok());
  }

  /// The last so many of its tokens; a ring keeps as many as it has slots.
  void store(int32_t count) {
    count = std::min(count, places_.kept());
    std::vector<int64_t> slots;
    for (int32_t p = e_.prefix_len; p < e_.kv_len; ++p)
      slots.push_back(p < e_.kv_len - count ? -1 : places_.token(p));
    pack(part(t_.latents), slots, tokens_);
  }

  void store_blocks() {
    std::vector<int32_t> lens, pages, before;
    for (int32_t p = e_.prefix_len; p < e_.kv_len; ++p) {
      const int32_t block = p / l_.ratio;
      lens.push_back(p + 1);
      pages.push_back(places_.state(block));
      const bool both = (p + 1) % l_.ratio == 0 && l_.shape().overlaps() && block > 0;
      before.push_back(both ? places_.state(block - 1) : 0);
    }
    const int32_t offsets[2] = {0, e_.q_len};
    std::vector<float> pooled(static_cast<size_t>(tokens() * l_.head_dim));
    Compress c;
    c.shape = l_.shape();
    c.kv_score = part(t_.kv_score), c.ape = t_.ape;
    c.cu_seqlens_q = offsets, c.seq_lens = lens, c.indices = pages, c.extra = before;
    c.state = state_;
    c.out = TensorView(pooled.data(), DType::kF32, {tokens(), l_.head_dim});
    [[maybe_unused]] const Status status = compress(c);
    assert(status.ok());
    for (size_t i = 0; i < lens.size(); ++i)
      if (lens[i] % l_.ratio == 0) store_block(lens[i], rows_of(c.out, static_cast<int64_t>(i), 1));
  }

  void store_block(int32_t len, const ConstTensorView& pooled) {
    std::vector<float> normed(static_cast<size_t>(l_.head_dim));
    NormRope c;
    c.x = pooled, c.weight = t_.weight, c.eps = l_.eps;
    c.freqs = rows_of(t_.freqs, len - l_.ratio, 1);
    c.out = TensorView(normed.data(), DType::kF32, {1, l_.head_dim});
    [[maybe_unused]] const Status status = norm_rope(c);
    assert(status.ok());
    const int64_t slot = places_.block(len / l_.ratio - 1);
    pack(c.out, {&slot, 1}, blocks_);
  }

  /// Blocks that a token sees, ascending.
  std::vector<int32_t> chosen(int32_t position) const {
    if (!l_.has_blocks()) return {};
    const int32_t whole = (position + 1) / l_.ratio;
    std::vector<int32_t> all(static_cast<size_t>(whole));
    std::iota(all.begin(), all.end(), 0);
    if (!t_.index_scores.defined() || whole <= l_.index_topk) return all;
    std::vector<int32_t> best(static_cast<size_t>(l_.index_topk));
    SelectIndices c;
    c.logits = rows_of(t_.index_scores, r_.first + position - e_.prefix_len, 1);
    c.ke = {&whole, 1};
    c.indices = TensorView(best.data(), DType::kI32, {1, l_.index_topk});
    [[maybe_unused]] const Status status = select_indices(c);
    assert(status.ok());
    return best;
  }

  /// ours: keys of this step are its own rows.
  std::vector<float> attend(bool ours) {
    std::vector<int32_t> window, blocks, own;
    std::vector<int32_t> window_ends = {0}, block_ends = {0}, own_ends = {0};
    for (int32_t p = e_.prefix_len; p < e_.kv_len; ++p) {
      for (int32_t k = p; k >= std::max(0, p + 1 - l_.window); --k) {
        if (ours && k >= e_.prefix_len) {
          own.push_back(k - e_.prefix_len);
        } else {
          window.push_back(static_cast<int32_t>(places_.token(k)));
        }
      }
      for (const int32_t b : chosen(p))
        (ours ? window : blocks).push_back(static_cast<int32_t>(places_.block(b)));
      window_ends.push_back(static_cast<int32_t>(window.size()));
      block_ends.push_back(static_cast<int32_t>(blocks.size()));
      own_ends.push_back(static_cast<int32_t>(own.size()));
    }
    std::vector<float> out(static_cast<size_t>(tokens() * l_.num_heads * l_.head_dim));
    SparseAttention c;
    c.q = part(q_);
    c.keys.pool = tokens_, c.keys.indices = window, c.keys.indptr = window_ends;
    if (ours) {
      c.extra.pool.data = part(t_.latents), c.extra.indices = own, c.extra.indptr = own_ends;
    } else if (l_.has_blocks()) {
      c.extra.pool = blocks_, c.extra.indices = blocks, c.extra.indptr = block_ends;
    }
    c.head_dim_v = l_.head_dim, c.sm_scale = l_.sm_scale, c.sinks = t_.sinks;
    c.out = TensorView(out.data(), DType::kF32, {tokens(), l_.num_heads, l_.head_dim});
    [[maybe_unused]] const Status status = sparse_attention(c);
    assert(status.ok());
    return out;
  }

  const V4Layer& l_;
  const V4Tensors& t_;
  const ConstTensorView q_;
  const V4Request& r_;
  const RequestExtent& e_;
  const V4Places& places_;
  WritableLatentPool tokens_, blocks_;
  TensorView state_;
};

}  // namespace

V4Places::V4Places(const V4Layer& layer, const ModelConfig& model, const ForwardBatch& batch,
                   int64_t request)
    : layer_(layer),
      model_(model),
      full_to_swa_(model.swa_pool ? batch.full_to_swa : std::span<const int64_t>{}),
      row_(batch.req_pool_indices[static_cast<size_t>(request)]) {
  slots_ = batch.req_to_token.row(row_);
}

int64_t V4Places::token(int32_t position) const {
  if (layer_.pools == V4Pools::kUnified) {
    const int32_t ring = layer_.ring(DeepseekV4::drafts(model_));
    return int64_t{row_} * ring + position % ring;
  }
  const auto slot = static_cast<size_t>(slots_[static_cast<size_t>(position)]);
  return full_to_swa_.empty() ? static_cast<int64_t>(slot) : full_to_swa_[slot];
}

int32_t V4Places::kept() const {
  if (layer_.pools == V4Pools::kUnified) return layer_.ring(DeepseekV4::drafts(model_));
  return static_cast<int32_t>(slots_.size());
}

/// By its last token, which writes it.
int64_t V4Places::block(int32_t block) const {
  const auto last = static_cast<size_t>((block + 1) * layer_.ratio - 1);
  return rings(layer_, model_) + slots_[last] / layer_.ratio;
}

int32_t V4Places::state(int32_t block) const {
  const int32_t states = states_a_page(layer_, model_);
  if (layer_.pools == V4Pools::kUnified) return row_ * states + block % states;
  const int64_t first = token(block * layer_.ratio);
  const int64_t of_page = first % model_.page_size / layer_.ratio;
  return static_cast<int32_t>(first / model_.page_size * states + of_page % states);
}

int64_t V4Places::rings(const V4Layer& layer, const ModelConfig& model) {
  if (layer.pools != V4Pools::kUnified) return 0;
  return int64_t{layer.rows} * layer.ring(DeepseekV4::drafts(model));
}

int64_t V4Places::first_token(const V4Layer& layer, const ModelConfig& model) {
  return layer.pools == V4Pools::kUnified ? layer.ring(DeepseekV4::drafts(model)) : model.page_size;
}

int64_t V4Places::first_block(const V4Layer& layer, const ModelConfig& model) {
  return rings(layer, model) + model.page_size / layer.ratio;
}

int32_t V4Places::states_a_page(const V4Layer& layer, const ModelConfig& model) {
  const int32_t drafts = DeepseekV4::drafts(model);
  return layer.pools == V4Pools::kUnified ? layer.live_blocks(drafts)
                                          : layer.page_states(model.page_size, drafts);
}

std::vector<float> v4_alone(const V4Layer& layer, const V4Tensors& tensors,
                            const ConstTensorView& q, const V4Request& request,
                            const V4Places& places, HostLatents* pools) {
  return V4Alone(layer, tensors, q, request, places, pools).run();
}

}  // namespace shadowgraph
