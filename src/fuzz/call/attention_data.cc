#include "fuzz/call/attention_data.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/float_formats.h"

namespace shadowgraph {
namespace {

constexpr float kHotScale = 0.5f;  // i8

/// A latent's key has the scale of its value.
float exact_scale(const AttentionCase& x, Rng& rng) {
  if (x.layout == CaseLayout::kMlaLatent) return kHotScale;
  return std::ldexp(kHotScale, static_cast<int>(rng.below(3)));
}

/// Small integers that every type holds exactly. The first five columns spell (token, request) in
/// octal, so that a wrong sum names the key that was read instead. In i8 each has a scale, and a
/// last element of 127.
void fill_codes(const AttentionCase& x, LogicalTensor& v, int64_t request, Rng& rng) {
  const int span = is_fp8(v.dtype) ? 8 : 64;
  for (int64_t t = 0; t < v.tokens(); ++t) {
    for (int64_t head = 0; head < v.heads; ++head) {
      if (v.dtype == DType::kI8) v.scale(t, head) = exact_scale(x, rng);
      for (int64_t d = 0; d < v.dim; ++d) {
        int64_t value = static_cast<int64_t>(rng.below(static_cast<uint32_t>(2 * span + 1))) - span;
        if (is_fp8(v.dtype) && value > 4) value &= ~int64_t{1};
        if (is_fp8(v.dtype) && value < -4) value = -(-value & ~int64_t{1});
        if (d < 4) value = t >> (3 * d) & 7;
        if (d == 4) value = request & 7;
        if (v.dtype == DType::kI8 && d == v.dim - 1) value = 127;
        store_float(v.row(t, head), v.dtype, d, static_cast<float>(value));
      }
    }
  }
}

/// Exact in every type; in i8 the largest code times kHotScale.
float hot_key(DType t) { return t == DType::kI8 ? 127 * kHotScale : 64; }

/// q and K such that a hot key's logit is at least 256 (natural, before the cap) and every other
/// one's is 0. It is the last element that tells: a latent's first ones are V.
void fill_selector(const AttentionCase& x, RequestData& data, const RequestExtent& r, Rng& rng) {
  data.hot.assign(static_cast<size_t>(r.kv_len), 0);
  for (int i = 0; r.kv_len > 0 && i < 3; ++i)
    data.hot[rng.below(static_cast<uint32_t>(r.kv_len))] = 1;
  const float hot = hot_key(x.kv_dtype), lead = 256 / (hot * x.sm_scale * x.k_scale);
  const float q0 = std::exp2(std::ceil(std::log2(lead)));
  for (int64_t head = 0; head < x.num_qo_heads; ++head) {
    for (int64_t q = 0; q < r.q_len; ++q) {
      store_float(data.q.row(q, head), x.q_dtype, x.head_dim_qk - 1, q0);
    }
  }
  for (int64_t head = 0; head < x.num_kv_heads; ++head) {
    for (int64_t t = 0; t < r.kv_len; ++t) {
      if (!data.hot[static_cast<size_t>(t)]) continue;
      const bool scaled = x.kv_dtype == DType::kI8;
      if (scaled) data.k.scale(t, head) = kHotScale;
      store_float(data.k.row(t, head), x.kv_dtype, x.head_dim_qk - 1,
                  scaled ? hot / kHotScale : hot);
    }
  }
}

void fill_mask(const AttentionCase& x, RequestData& data, const RequestExtent& r, Rng& rng) {
  if (x.mask == CustomMask::Kind::kNone) return;
  data.mask.resize(static_cast<size_t>(int64_t{r.q_len} * r.kv_len));
  // Whole rows and long runs hidden, not only noise.
  const uint32_t hidden_of_8 = rng.below(8);
  for (uint8_t& seen : data.mask) seen = rng.below(8) >= hidden_of_8 ? 1 : 0;
  if (r.q_len > 0 && rng.below(4) == 0) {
    const auto row = static_cast<int64_t>(rng.below(static_cast<uint32_t>(r.q_len)));
    for (int64_t k = 0; k < r.kv_len; ++k) data.mask[static_cast<size_t>(row * r.kv_len + k)] = 0;
  }
}

void find_visible(const AttentionCase& x, RequestData& data, const RequestExtent& r) {
  data.visible.assign(static_cast<size_t>(r.kv_len), 0);
  data.reachable = data.visible;
  const MaskShape mask = mask_of(x, r);
  for (int64_t q = 0; q < r.q_len; ++q) {
    for (int64_t k = 0; k < r.kv_len; ++k) {
      if (attends(mask, q, k)) data.reachable[static_cast<size_t>(k)] = 1;
      if (sees(x, data, r, q, k)) data.visible[static_cast<size_t>(k)] = 1;
    }
  }
}

/// V becomes the first elements of K.
void share_latent(RequestData& data, int64_t tokens) {
  for (int64_t t = 0; t < tokens; ++t) {
    std::memcpy(data.k.row(t, 0), data.v.row(t, 0), static_cast<size_t>(data.v.row_bytes()));
    if (data.v.scales.empty()) continue;
    data.k.scale(t, 0) = data.v.scale(t, 0);
    if (data.v.scale(t, 0) == 0)
      std::memset(data.k.row(t, 0), 0, static_cast<size_t>(data.k.row_bytes()));
  }
}

RequestData make_request(const AttentionCase& x, CaseData kind, int64_t index, Rng& rng) {
  const RequestExtent& r = x.requests[static_cast<size_t>(index)];
  RequestData data;
  data.q = LogicalTensor(x.q_dtype, r.q_len, x.num_qo_heads, x.head_dim_qk);
  data.k = LogicalTensor(x.kv_dtype, r.kv_len, x.num_kv_heads, x.head_dim_qk);
  data.v = LogicalTensor(x.kv_dtype, r.kv_len, x.num_kv_heads, x.head_dim_vo);
  fill_mask(x, data, r, rng);
  find_visible(x, data, r);
  if (is_exact(kind)) {
    fill_codes(x, data.v, index, rng);
    // Uniform: q = 0, and K is anything.
    if (kind == CaseData::kUniform) fill_random(data.k, 1, rng);
    if (kind == CaseData::kSelector) fill_selector(x, data, r, rng);
  } else {
    fill_random(data.q, kind == CaseData::kPeaked ? 8 : 1, rng);
    fill_random(data.k, 1, rng);
    fill_random(data.v, 1, rng);
  }
  if (x.layout == CaseLayout::kMlaLatent) share_latent(data, r.kv_len);
  return data;
}

}  // namespace

bool sees(const AttentionCase& x, const RequestData& data, const RequestExtent& r, int64_t q,
          int64_t key) {
  const MaskShape mask = mask_of(x, r);
  if (!attends(mask, q, key)) return false;
  return data.mask.empty() || data.mask[static_cast<size_t>(q * r.kv_len + key)] != 0;
}

void shift_logits(const AttentionCase& x, bool below, AttentionData* data) {
  constexpr float kQuery = 4096;
  const float key = below ? -hot_key(x.kv_dtype) : hot_key(x.kv_dtype);
  const auto set_last = [](LogicalTensor& t, float value) {
    for (int64_t token = 0; token < t.tokens(); ++token)
      for (int64_t head = 0; head < t.heads; ++head)
        store_float(t.row(token, head), t.dtype, t.dim - 1, value);
  };
  for (RequestData& d : data->requests) {
    set_last(d.q, kQuery), set_last(d.k, key);
    d.hot.assign(static_cast<size_t>(d.k.tokens()), 1);
  }
}

bool plant_nan(const AttentionCase& x, Rng& rng, AttentionData* data) {
  RequestData& d = data->requests[rng.below(static_cast<uint32_t>(data->requests.size()))];
  std::vector<int64_t> seen;
  for (size_t key = 0; key < d.visible.size(); ++key)
    if (d.visible[key] != 0) seen.push_back(static_cast<int64_t>(key));
  if (seen.empty()) return false;
  const int64_t token = seen[rng.below(static_cast<uint32_t>(seen.size()))];
  const int64_t head = rng.below(static_cast<uint32_t>(x.num_kv_heads));
  const bool latent = x.layout == CaseLayout::kMlaLatent, key = rng.below(2) == 0;
  const int64_t at =
      rng.below(static_cast<uint32_t>(key && !latent ? x.head_dim_qk : x.head_dim_vo));
  for (LogicalTensor* t : {&d.k, &d.v}) {
    if (latent || key == (t == &d.k))
      store_float(t->row(token, head), t->dtype, at, std::numeric_limits<float>::quiet_NaN());
  }
  return true;
}

AttentionData make_attention_data(const Case& c) {
  const auto& x = std::get<AttentionCase>(c.call);
  Rng rng(c.seed);
  AttentionData data;
  for (size_t i = 0; i < x.requests.size(); ++i) {
    data.requests.push_back(make_request(x, c.data, static_cast<int64_t>(i), rng));
  }
  if (x.sinks) {
    data.sinks.reserve(static_cast<size_t>(x.num_qo_heads));  // a read past the end shows in ASan
    // On exact data a sink weighs exactly 1 or nothing; on other data it may rule the row.
    for (int32_t h = 0; h < x.num_qo_heads; ++h) {
      const float nothing = -std::numeric_limits<float>::infinity();
      data.sinks.push_back(is_exact(c.data) ? (rng.below(2) ? 0.f : nothing)
                                            : 6 * rng.signed_unit());
    }
  }
  return data;
}

}  // namespace shadowgraph
