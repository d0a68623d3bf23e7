#include "fuzz/call/attention_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "check/bounds/rounding.h"
#include "core/float_formats.h"

namespace shadowgraph {
namespace {

constexpr float kHotScale = 0.5f;  // i8

/// A latent's key has the scale of its value.
float exact_scale(const AttentionCase& x, Rng& rng) {
  if (x.layout == KvLayout::kMlaLatent) return kHotScale;
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

/// The last element of a key, which tells: a latent's first ones are V.
void set_last(LogicalTensor& k, int64_t token, int64_t head, float value) {
  const bool scaled = k.dtype == DType::kI8;
  if (scaled) k.scale(token, head) = kHotScale;
  store_float(k.row(token, head), k.dtype, k.dim - 1, scaled ? value / kHotScale : value);
}

/// q and K such that a hot key's logit is at least 256 (natural, before the cap) and every other
/// one's is 0.
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
      if (data.hot[static_cast<size_t>(t)]) set_last(data.k, t, head, hot);
    }
  }
}

/// Any K but its last element, which is one power of two (but in i8), and q such that the logits of
/// each row are a number of its own.
void fill_shifted(const AttentionCase& x, CaseData kind, RequestData& data, const RequestExtent& r,
                  Rng& rng) {
  constexpr int kLeast = 6, kMost = 60;
  const bool scaled = x.kv_dtype == DType::kI8;
  const int most =
      kind == CaseData::kHuge ? std::min(kMost, std::ilogb(rounding_to(x.kv_dtype).largest)) : 8;
  const int exponent =
      kLeast + (scaled ? 0 : static_cast<int>(rng.below(static_cast<uint32_t>(most - kLeast + 1))));
  const float key = scaled ? hot_key(x.kv_dtype) : std::ldexp(1.F, exponent);
  data.hot.assign(static_cast<size_t>(r.kv_len), 1);
  fill_random(data.k, 1, rng);
  for (int64_t t = 0; t < r.kv_len; ++t)
    for (int64_t head = 0; head < x.num_kv_heads; ++head) set_last(data.k, t, head, key);
  for (int64_t q = 0; q < r.q_len; ++q) {
    for (int64_t head = 0; head < x.num_qo_heads; ++head) {
      const float far =
          far_factor(kind, x.q_dtype, exponent + std::ilogb(x.sm_scale * x.k_scale), rng);
      store_float(data.q.row(q, head), x.q_dtype, x.head_dim_qk - 1, far);
      data.below.push_back(far < 0 ? 1 : 0);
    }
  }
}

void fill_mask(const AttentionCase& x, RequestData& data, const RequestExtent& r, Rng& rng) {
  if (x.mask == CustomMask::Kind::kNone) return;
  const int64_t heads = x.terms.mask_of_heads ? x.num_qo_heads : 1;
  data.mask.resize(static_cast<size_t>(heads * r.q_len * r.kv_len));
  // Whole rows and long runs hidden, not only noise.
  const uint32_t hidden_of_8 = rng.below(8);
  for (uint8_t& seen : data.mask) seen = rng.below(8) >= hidden_of_8 ? 1 : 0;
  if (r.q_len > 0 && rng.below(4) == 0) {
    const auto row = static_cast<int64_t>(rng.below(static_cast<uint32_t>(r.q_len)));
    for (int64_t k = 0; k < r.kv_len; ++k) data.mask[static_cast<size_t>(row * r.kv_len + k)] = 0;
  }
}

/// The mask of one request, without the custom one.
MaskShape mask_of(const AttentionCase& x, const RequestData& data, const RequestExtent& r) {
  MaskShape m = {r.q_len, r.kv_len, data.causal, x.window_left, x.window_right};
  m.attention_chunk = x.terms.attention_chunk, m.chunk_lookback = x.terms.chunk_lookback;
  m.first_key = data.cache_leftpad, m.bidirectional = data.bidirectional;
  return m;
}

/// The custom mask's word on a pair.
bool shows(const AttentionCase& x, const RequestData& data, const RequestExtent& r, int64_t head,
           int64_t q, int64_t key) {
  const int64_t row = (x.terms.mask_of_heads ? head * r.q_len : 0) + q;
  return data.mask.empty() || data.mask[static_cast<size_t>(row * r.kv_len + key)] != 0;
}

/// Whatever a bias hides is as visible as the rest: a kernel may read it.
void find_visible(const AttentionCase& x, RequestData& data, const RequestExtent& r) {
  data.visible.assign(static_cast<size_t>(r.kv_len), 0);
  data.reachable = data.visible;
  const MaskShape mask = mask_of(x, data, r);
  const int64_t heads = x.terms.mask_of_heads ? x.num_qo_heads : 1;
  for (int64_t q = 0; q < r.q_len; ++q) {
    for (int64_t k = 0; k < r.kv_len; ++k) {
      if (!attends(mask, q, k)) continue;
      data.reachable[static_cast<size_t>(k)] = 1;
      for (int64_t head = 0; head < heads; ++head)
        if (shows(x, data, r, head, q, k)) data.visible[static_cast<size_t>(k)] = 1;
    }
  }
}

/// On exact data a bias is 0 or hides its key; on other data it may rule a row, or be one of the
/// large numbers that models mask with.
std::vector<float> biases(size_t count, bool exact, Rng& rng) {
  constexpr float kMasks[] = {-1e9F, std::numeric_limits<float>::lowest(), -65504, -1e4F, -5e4F,
                              -1e30F};
  std::vector<float> list(count);
  for (float& bias : list) {
    const bool hides = rng.below(8) == 0, masks = rng.below(8) == 0;
    const float number = masks ? kMasks[rng.below(6)] : 4 * rng.signed_unit();
    bias = hides ? -std::numeric_limits<float>::infinity() : exact ? 0.F : number;
  }
  return list;
}

/// Ranges that are apart, of a request's positions.
std::vector<int32_t> ranges_of(int32_t kv_len, Rng& rng) {
  std::vector<int32_t> ranges;
  for (int32_t at = 0; at < kv_len;) {
    const auto first = at + static_cast<int32_t>(rng.below(12));
    const auto last = std::min(kv_len - 1, first + static_cast<int32_t>(rng.below(12)));
    if (first > last) break;
    ranges.insert(ranges.end(), {first, last});
    at = last + 1 + static_cast<int32_t>(rng.below(3)) * 20;
  }
  return ranges;
}

/// Powers of two: exact data stays exact. At least 1 of keys, whose lead must not shrink.
std::vector<float> powers(int32_t count, float least, Rng& rng) {
  std::vector<float> scales;
  for (int32_t i = 0; i < count; ++i)
    scales.push_back(least * static_cast<float>(1 << rng.below(3)));
  return scales;
}

/// Numbers of their own, so that what there was before has the same.
void make_terms(const AttentionCase& x, CaseData kind, Rng rng, AttentionData* data) {
  const CaseTerms& t = x.terms;
  const bool exact = is_exact(kind);
  const auto heads = static_cast<size_t>(x.num_qo_heads);
  for (size_t h = 0; h < heads && t.alibi; ++h)
    data->alibi_slopes.push_back(std::exp2(-0.5F * static_cast<float>(h + 1)));
  constexpr size_t kWidth = 6, kFarthest = 5;
  if (t.qq_bias) data->qq_bias = biases(kWidth * kWidth, exact, rng);
  if (t.relative_bias) data->relative_bias = biases(heads * (2 * kFarthest + 1), exact, rng);
  std::vector<float> k_scales(static_cast<size_t>(x.num_kv_heads), 1), v_scales = k_scales;
  for (const RequestExtent& r : x.requests) {
    RequestData& d = data->requests.emplace_back();
    d.causal = t.request_causal ? rng.below(2) != 0 : x.causal;
    if (t.cache_leftpad && r.kv_len > 0)
      d.cache_leftpad =
          static_cast<int32_t>(rng.below(static_cast<uint32_t>(r.kv_len + 1) / 2 + 1));
    if (t.bidirectional) d.bidirectional = ranges_of(r.kv_len, rng);
    if (t.key_bias) d.key_bias = biases(heads * static_cast<size_t>(r.kv_len), exact, rng);
    if (t.request_head_scales || (t.head_scales && data->requests.size() == 1)) {
      k_scales = powers(x.num_kv_heads, 1, rng);
      v_scales = powers(x.num_kv_heads, 0.5F, rng);
    }
    d.k_scales = k_scales, d.v_scales = v_scales;
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

/// data: with its terms.
RequestData make_request(const AttentionCase& x, CaseData kind, int64_t index, RequestData data,
                         Rng& rng) {
  const RequestExtent& r = x.requests[static_cast<size_t>(index)];
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
    if (is_shifted(kind)) fill_shifted(x, kind, data, r, rng);
  } else {
    fill_random(data.q, kind == CaseData::kPeaked ? 8 : 1, rng);
    fill_random(data.k, 1, rng);
    fill_random(data.v, 1, rng);
  }
  if (x.layout == KvLayout::kMlaLatent) share_latent(data, r.kv_len);
  return data;
}

}  // namespace

bool sees(const AttentionCase& x, const AttentionData& data, size_t request, int64_t head,
          int64_t q, int64_t key) {
  const RequestData& d = data.requests[request];
  const RequestExtent& r = x.requests[request];
  if (!attends(mask_of(x, d, r), q, key) || !shows(x, d, r, head, q, key)) return false;
  const auto hidden = [](const std::vector<float>& biases, int64_t at) {
    return std::isinf(biases[static_cast<size_t>(at)]);
  };
  const int64_t first_query = int64_t{r.kv_len} - r.q_len, ahead = key - first_query - q;
  if (!d.key_bias.empty() && hidden(d.key_bias, head * r.kv_len + key)) return false;
  const auto width = std::lround(std::sqrt(static_cast<double>(data.qq_bias.size())));
  const int64_t other = key - first_query;
  if (q < width && other >= 0 && other < width && hidden(data.qq_bias, q * width + other))
    return false;
  if (data.relative_bias.empty()) return true;
  const int64_t columns = std::ssize(data.relative_bias) / x.num_qo_heads, most = columns / 2;
  return !hidden(data.relative_bias, head * columns + most + std::clamp(ahead, -most, most));
}

bool plant_nan(const AttentionCase& x, Rng& rng, AttentionData* data) {
  RequestData& d = data->requests[rng.below(static_cast<uint32_t>(data->requests.size()))];
  std::vector<int64_t> seen;
  for (size_t key = 0; key < d.visible.size(); ++key)
    if (d.visible[key] != 0) seen.push_back(static_cast<int64_t>(key));
  if (seen.empty()) return false;
  const auto request = static_cast<size_t>(&d - data->requests.data());
  const auto some_row = [&](int64_t token, bool sees_it) {
    for (int64_t q = 0; q < d.q.tokens(); ++q)
      for (int64_t h = 0; h < x.num_qo_heads; ++h)
        if (sees(x, *data, request, h, q, token) == sees_it) return true;
    return false;
  };
  constexpr int kTries = 8;
  int64_t token = -1;
  bool apart = false;
  for (int i = 0; i < kTries && !apart; ++i) {
    const int64_t one = seen[rng.below(static_cast<uint32_t>(seen.size()))];
    if (!some_row(one, true)) continue;  // a bias hides it
    token = one, apart = some_row(one, false);
  }
  if (token < 0) return false;
  const int64_t head = rng.below(static_cast<uint32_t>(x.num_kv_heads));
  const bool latent = x.layout == KvLayout::kMlaLatent, key = rng.below(2) == 0;
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
  make_terms(x, c.data, Rng::stream(c.seed, 1), &data);
  for (size_t i = 0; i < x.requests.size(); ++i) {
    RequestData& d = data.requests[i];
    d = make_request(x, c.data, static_cast<int64_t>(i), std::move(d), rng);
  }
  Rng of_nan = Rng::stream(c.seed, 2);
  if (x.nan) plant_nan(x, of_nan, &data);
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
