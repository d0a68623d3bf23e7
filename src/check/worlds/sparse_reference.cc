#include "check/worlds/sparse_reference.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "attn/index_page.h"
#include "attn/tensor_rows.h"

namespace shadowgraph {
namespace {

TensorView pages_of(HostSparsePools& pools) {
  const int64_t pages = std::ssize(pools.index_pages) / kIndexPageBytes;
  return {pools.index_pages.data(), DType::kU8, {pages, kIndexPageBytes}};
}

void must([[maybe_unused]] const Status& status) { assert(status.ok()); }

/// A request's keys, one after the other.
class SparseAlone {
 public:
  SparseAlone(const SparseLayer& layer, const SparseInputs& inputs, const SparseRequest& request,
              HostSparsePools& pools)
      : l_(layer), in_(inputs), r_(request), keys_(std::ssize(request.slots)) {
    for (int64_t t = 0; t < r_.tokens; ++t)
      seen_.push_back(static_cast<int32_t>(keys_ - r_.tokens + t + 1));
    const ConstTensorView pages = pages_of(pools);
    const auto width = static_cast<size_t>(latent_bytes(l_));
    index_k_.resize(static_cast<size_t>(keys_) * kIndexDim);
    scale_.resize(static_cast<size_t>(keys_));
    latents_.resize(static_cast<size_t>(keys_) * width);
    for (size_t s = 0; s < r_.slots.size(); ++s) {
      const int32_t slot = r_.slots[s];
      const IndexKeyPlace at =
          place_in_pages(pages, slot / kIndexPageTokens, slot % kIndexPageTokens);
      std::memcpy(&index_k_[s * kIndexDim], pages.data + at.key, kIndexDim);
      std::memcpy(&scale_[s], pages.data + at.scale, sizeof(float));
      std::memcpy(&latents_[s * width], &pools.latents[static_cast<size_t>(slot) * width], width);
    }
  }

  SparseResult run() {
    score();
    choose();
    return attend();
  }

 private:
  ConstTensorView part(const ConstTensorView& t) const { return rows_of(t, r_.first, r_.tokens); }
  TensorView logits() { return {logits_.data(), DType::kF32, {r_.tokens, keys_}}; }

  void score() {
    logits_.resize(static_cast<size_t>(r_.tokens * keys_));
    IndexerLogits c;
    c.q = part(in_.tensors.index_q), c.weights = part(in_.tensors.index_weights);
    c.k = ConstTensorView(index_k_.data(), DType::kE4M3, {keys_, kIndexDim});
    c.k_scale = ConstTensorView(scale_.data(), DType::kF32, {keys_});
    c.ke = seen_;
    c.logits = logits();
    must(indexer_logits(c));
  }

  void choose() {
    chosen_.resize(static_cast<size_t>(r_.tokens) * static_cast<size_t>(l_.topk));
    SelectIndices c;
    c.logits = logits();
    c.ke = seen_;
    c.indices = TensorView(chosen_.data(), DType::kI32, {r_.tokens, l_.topk});
    must(select_indices(c));
  }

  SparseResult attend() {
    std::vector<int32_t> lengths = seen_;
    for (int32_t& n : lengths) n = std::min(n, l_.topk);
    SparseResult result;
    const auto rows = static_cast<size_t>(r_.tokens * l_.num_heads);
    result.out.resize(rows * static_cast<size_t>(l_.head_dim_v));
    result.lse.resize(rows);
    SparseAttention c;
    c.q = part(in_.q);
    c.keys.pool = latent_pool(l_, latents_.data(), keys_);
    c.keys.indices = chosen_, c.keys.width = l_.topk, c.keys.lengths = lengths;
    c.head_dim_v = l_.head_dim_v, c.sm_scale = l_.sm_scale;
    c.out = TensorView(result.out.data(), DType::kF32, {r_.tokens, l_.num_heads, l_.head_dim_v});
    c.lse = NaturalLse(TensorView(result.lse.data(), DType::kF32, {r_.tokens, l_.num_heads}));
    must(sparse_attention(c));
    return result;
  }

  const SparseLayer& l_;
  const SparseInputs& in_;
  const SparseRequest& r_;
  const int64_t keys_;
  std::vector<int32_t> seen_, chosen_;
  std::vector<std::byte> index_k_, latents_;
  std::vector<float> scale_, logits_;
};

}  // namespace

WritableLatentPool latent_pool(const SparseLayer& layer, std::byte* memory, int64_t slots) {
  const bool packed = layer.latents == LatentLayout::kDsa;
  const DType type = packed ? DType::kU8 : layer.latent_dtype;
  const int64_t width = packed ? kDsaBytes : layer.head_dim;
  return {TensorView(memory, type, {slots, width}), layer.latents};
}

void store_alone(const SparseLayer& layer, const SparseInputs& inputs,
                 std::span<const int32_t> slots, HostSparsePools* pools) {
  const std::vector<int64_t> wide(slots.begin(), slots.end());
  const auto tokens = std::ssize(slots);
  StoreIndexKeys keys;
  keys.k = rows_of(inputs.tensors.index_k, 0, tokens);
  keys.k_scale = rows_of(inputs.tensors.index_k_scale, 0, tokens);
  keys.out_cache_loc = wide, keys.pages = pages_of(*pools);
  must(store_index_keys(keys));
  PackLatents pack;
  pack.latents = rows_of(inputs.latents, 0, tokens);
  pack.out_cache_loc = wide;
  const int64_t all = std::ssize(pools->latents) / latent_bytes(layer);
  pack.pool = latent_pool(layer, pools->latents.data(), all);
  must(pack_latents(pack));
}

SparseResult run_alone(const SparseLayer& layer, const SparseInputs& inputs,
                       const SparseRequest& request, HostSparsePools& pools) {
  return SparseAlone(layer, inputs, request, pools).run();
}

}  // namespace shadowgraph
