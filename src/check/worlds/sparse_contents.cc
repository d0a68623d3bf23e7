#include "check/worlds/sparse_contents.h"

#include "attn/index_page.h"
#include "core/float_formats.h"

namespace shadowgraph {

std::vector<std::byte> sparse_numbers(DType dtype, int64_t count, bool positive, Rng& rng) {
  std::vector<std::byte> bytes(static_cast<size_t>(count) * size_of(dtype));
  for (int64_t i = 0; i < count; ++i) {
    const float x = rng.signed_unit();
    store_float(bytes.data(), dtype, i, positive ? 1.5f + x : x);
  }
  return bytes;
}

void SparseContents::clear(uint64_t salt) {
  salt_ = salt;
  numbers_.clear(), given_.clear();
  pools_ = {};
}

int32_t SparseContents::number(const TokenContent& content) {
  const auto [number, fresh] = numbers_.add(content.chain, content);
  if (!fresh) return number;
  Rng rng = Rng::stream(salt_, content.chain);
  Given& g = given_.emplace_back();
  g.index_k = sparse_numbers(DType::kE4M3, kIndexDim, false, rng);
  g.index_k_scale = sparse_numbers(DType::kF32, 1, true, rng);
  g.latent = sparse_numbers(DType::kF32, layer_.head_dim, false, rng);
  const auto pages = static_cast<size_t>(number / kIndexPageTokens + 1);
  pools_.index_pages.resize(pages * kIndexPageBytes);
  pools_.latents.resize(pages * kIndexPageTokens * static_cast<size_t>(latent_bytes(layer_)));
  SparseInputs one;
  one.tensors.index_k = ConstTensorView(g.index_k.data(), DType::kE4M3, {1, kIndexDim});
  one.tensors.index_k_scale = ConstTensorView(g.index_k_scale.data(), DType::kF32, {1});
  one.latents = ConstTensorView(g.latent.data(), DType::kF32, {1, layer_.head_dim});
  store_alone(layer_, one, {&number, 1}, &pools_);
  return number;
}

}  // namespace shadowgraph
