// pack_latents: new latents into their slots, quantised by group where the pool is packed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attn/validate/validate_sparse.h"
#include "core/e4m3_scale.h"
#include "core/float_formats.h"
#include "core/parallel.h"
#include "kernels/checked_call.h"
#include "kernels/sparse/sparse_attention.h"

namespace shadowgraph {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLeastV4Amax = 1e-8F;

/// NaN where an element is not finite.
float largest_of(const std::byte* x, DType t, int64_t first, int64_t count) {
  float largest = 0;
  for (int64_t i = first; i < first + count; ++i) {
    const float a = std::abs(load_float(x, t, i));
    if (!std::isfinite(a)) return kNaN;
    largest = std::max(largest, a);
  }
  return largest;
}

/// The exponent of the scale, + 127.
uint32_t exponent_byte(float amax) {
  if (std::isnan(amax)) return 255;
  return static_cast<uint32_t>(e4m3_exponent(std::max(amax, kLeastV4Amax)) + 127);
}

class TokenPack {
 public:
  TokenPack(const PackLatents& call, int64_t token, int64_t slot)
      : from_(call.latents.at(token)), type_(call.latents.dtype), pool_(call.pool), slot_(slot) {
    const auto size = static_cast<int64_t>(size_of(pool_.data.dtype));
    to_ = pool_.data.data + pool_.latent_at(slot) * size;
  }

  void run() const {
    if (pool_.layout == LatentLayout::kDsa) return pack_dsa();
    if (pool_.layout == LatentLayout::kV4) return pack_v4();
    copy(0, pool_.head_dim(), to_, pool_.data.dtype);
  }

 private:
  void pack_dsa() const {
    for (int64_t g = 0; g * kDsaGroup < kDsaCodes; ++g) {
      const float scale = largest_of(from_, type_, g * kDsaGroup, kDsaGroup) * (1 / kLargestE4M3);
      std::memcpy(to_ + kDsaCodes + g * 4, &scale, sizeof scale);
      for (int64_t i = g * kDsaGroup; i < (g + 1) * kDsaGroup; ++i) {
        const float x = load_float(from_, type_, i);
        store_float(to_, DType::kE4M3, i, scale == 0 ? 0 : x / scale);
      }
    }
    copy(kDsaCodes, kRopeDim, to_ + kDsaCodes + kDsaCodes / kDsaGroup * 4, DType::kBF16);
  }

  void pack_v4() const {
    std::byte* scales = pool_.data.data + pool_.scales_at(slot_);
    for (int64_t g = 0; g < kV4Codes / kV4Group; ++g) {
      const uint32_t byte = exponent_byte(largest_of(from_, type_, g * kV4Group, kV4Group));
      scales[g] = static_cast<std::byte>(byte);
      const int exponent = 127 - static_cast<int>(byte);
      for (int64_t i = g * kV4Group; i < (g + 1) * kV4Group; ++i) {
        const float x = load_float(from_, type_, i);
        store_float(to_, DType::kE4M3, i, byte == 255 ? kNaN : std::ldexp(x, exponent));
      }
    }
    scales[kV4Scales - 1] = std::byte{0};
    copy(kV4Codes, kRopeDim, to_ + kV4Codes, DType::kBF16);
  }

  void copy(int64_t first, int64_t count, std::byte* to, DType t) const {
    for (int64_t i = 0; i < count; ++i) store_float(to, t, i, load_float(from_, type_, first + i));
  }

  const std::byte* from_;
  const DType type_;
  const WritableLatentPool& pool_;
  const int64_t slot_;
  std::byte* to_;
};

void run(const PackLatents& call) {
  const auto tokens = std::ssize(call.out_cache_loc);
  parallel_for(tokens, team_size(call.options.num_threads, tokens), [&](int64_t token, int) {
    const int64_t slot = call.out_cache_loc[static_cast<size_t>(token)];
    if (!call.drops(slot)) TokenPack(call, token, slot).run();
  });
}

}  // namespace

Status pack_latents(const PackLatents& call) noexcept {
  return checked(call, [&] { run(call); });
}

}  // namespace shadowgraph
