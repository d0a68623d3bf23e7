#include "check/worlds/dense_contents.h"

#include <bit>
#include <cmath>

#include "core/float_formats.h"

namespace shadowgraph {
namespace {

constexpr float kSelectorKeys = 1 << 19;  // selectors are integers below twice that
constexpr float kShiftedKey = 64;         // times any scale a number of every type

size_t elements(int32_t heads, int32_t dim) {
  return static_cast<size_t>(heads) * static_cast<size_t>(dim);
}

}  // namespace

DenseContents::DenseContents(const LayerKind& kind, const RunnerOptions& options,
                             const LayerValues& values, uint64_t salt)
    : kind_(kind),
      options_(options),
      values_(values),
      k_size_(elements(kind.params.num_kv_heads, kind.params.head_dim_qk)),
      v_size_(kind.mla ? 0 : elements(kind.params.num_kv_heads, kind.params.head_dim_vo)),
      element_(size_of(options.kv_dtype)),
      salt_(salt) {}

void DenseContents::clear(uint64_t salt) {
  salt_ = salt;
  numbers_.clear(), selectors_.clear();
  given_k_.clear(), given_v_.clear(), stored_k_.clear(), stored_v_.clear();
}

int32_t DenseContents::number(const TokenContent& content, float key_factor) {
  const uint64_t key = Rng(content.chain ^ std::bit_cast<uint32_t>(key_factor)).next();
  const auto [number, fresh] = numbers_.add(key, content);
  if (fresh) make(content.chain, key_factor);
  return number;
}

/// Selectors: an integer that no other key begins with, so that each query selects one key.
/// Shifted: one number.
float DenseContents::first_of_key(float x) {
  if (options_.data == RunnerData::kShifted) return kShiftedKey;
  if (options_.data != RunnerData::kSelector) return x;
  auto integer = static_cast<int64_t>(std::floor((1 + x) * kSelectorKeys));
  while (!selectors_.insert(integer).second)
    integer = (integer + 1) % (2 * static_cast<int64_t>(kSelectorKeys));
  return static_cast<float>(integer);
}

void DenseContents::make(uint64_t chain, float key_factor) {
  Rng rng = Rng::stream(salt_, chain);
  const DType type = options_.kv_dtype;
  const auto add = [&](size_t size, float scale, float factor, std::vector<float>* given,
                       std::vector<std::byte>* stored) {
    const size_t first = given->size();
    stored->resize((first + size) * element_);
    for (size_t i = first; i < first + size; ++i) {
      float x = rng.signed_unit();
      std::byte element[sizeof(float)];
      if (type != DType::kF32) {
        store_float(element, type, 0, x / scale);
        x = load_float(element, type, 0) * scale;
      }
      const bool begins = (i - first) % static_cast<size_t>(kind_.params.head_dim_qk) == 0;
      if (given == &given_k_ && begins) x = first_of_key(x);
      given->push_back(x);
      store_float(stored->data(), type, static_cast<int64_t>(i), x * factor / scale);
    }
  };
  add(k_size_, values_.k_scale, key_factor, &given_k_, &stored_k_);
  add(v_size_, values_.v_scale, 1, &given_v_, &stored_v_);
}

KvCache DenseContents::cache() {
  const AttentionParams& p = kind_.params;
  const int64_t pages = numbers_.size();
  const TensorView k(stored_k_.data(), options_.kv_dtype,
                     {pages, 1, p.num_kv_heads, p.head_dim_qk});
  const TensorView v(stored_v_.data(), options_.kv_dtype,
                     {pages, 1, p.num_kv_heads, p.head_dim_vo});
  return dense_cache(kind_, values_, k, v);
}

KvCache dense_cache(const LayerKind& kind, const LayerValues& values, const TensorView& k,
                    const TensorView& v) {
  KvCache cache;
  if (kind.mla) {
    TensorView latent = k;
    latent.rank = 3;
    latent.shape[2] = latent.shape[3];
    latent.stride[2] = 1;
    cache = KvCache::mla_latent(latent, kind.params.head_dim_vo);
    cache.k_scale = cache.v_scale = values.k_scale;
    return cache;
  }
  cache = KvCache::nhd(k, v);
  cache.k_scale = values.k_scale, cache.v_scale = values.v_scale;
  return cache;
}

}  // namespace shadowgraph
