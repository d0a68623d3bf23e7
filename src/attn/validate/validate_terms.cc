// The custom mask and the other terms of a layer (AttentionTerms), by its heads and by the lengths
// of a batch.
#include <cmath>
#include <limits>
#include <string>

#include "attn/validate/batch_check.h"
#include "attn/validate/cache_check.h"

namespace shadowgraph {
namespace {

constexpr LawId kTerms = "param.terms";

/// One entry for each of so many things, or none at all.
template <class T>
bool check_count(TensorCheck& c, const char* field, std::span<const T> list, int64_t count,
                 const std::string& of) {
  if (list.empty() || std::ssize(list) == count) return true;
  c.fail(kTerms, at(field), std::to_string(count) + " entries, " + of, std::to_string(list.size()));
  return false;
}

void check_slopes(TensorCheck& c, const AttentionParams& p) {
  const std::span<const float> slopes = p.terms.alibi_slopes;
  check_count(c, "alibi_slopes", slopes, p.num_qo_heads, "one per query head");
  for (size_t i = 0; i < slopes.size(); ++i) {
    if (!std::isfinite(slopes[i])) c.fail(kTerms, at("alibi_slopes", i), "finite", text(slopes[i]));
  }
}

/// A bias is a number, or hides its key.
void check_biases(TensorCheck& c, const char* field, std::span<const float> biases) {
  for (size_t i = 0; i < biases.size(); ++i) {
    if (biases[i] <= std::numeric_limits<float>::max()) continue;
    return c.fail(kTerms, at(field, i), "finite, or -inf", text(biases[i]));
  }
}

void check_tables(TensorCheck& c, const AttentionParams& p) {
  const AttentionTerms& t = p.terms;
  check_biases(c, "key_bias", t.key_bias);
  check_biases(c, "qq_bias", t.qq_bias);
  check_biases(c, "relative_bias", t.relative_bias);
  const int64_t pairs = std::ssize(t.qq_bias), distances = std::ssize(t.relative_bias);
  const auto width = static_cast<int64_t>(std::sqrt(static_cast<double>(pairs)));
  if (width * width != pairs)
    c.fail(kTerms, at("qq_bias"), "a square: one entry for each query and query's key",
           std::to_string(pairs) + " entries");
  if (distances % p.num_qo_heads != 0 || (distances > 0 && distances / p.num_qo_heads % 2 == 0))
    c.fail(kTerms, at("relative_bias"),
           std::to_string(p.num_qo_heads) + " query heads * an odd number of distances",
           std::to_string(distances) + " entries");
}

void check_head_scales(TensorCheck& c, const char* field, std::span<const float> scales) {
  for (size_t i = 0; i < scales.size(); ++i)
    check_scale(c, std::string(field) + "[" + std::to_string(i) + "]", scales[i]);
}

/// Ascending ranges, apart, of a request's positions.
bool check_ranges(TensorCheck& c, const AttentionTerms& t, std::span<const int32_t> kv_lens) {
  const auto batch = std::ssize(kv_lens);
  const int64_t ranges = std::ssize(t.bidirectional_ranges) / 2;
  if (t.bidirectional_indptr.empty() && ranges == 0) return true;
  if (std::ssize(t.bidirectional_ranges) % 2 != 0) {
    c.fail(kTerms, at("bidirectional_ranges"), "first and last position of each range",
           std::to_string(t.bidirectional_ranges.size()) + " entries");
    return false;
  }
  if (!check_indptr(c, "bidirectional_indptr", t.bidirectional_indptr, batch, {ranges, "ranges"}))
    return false;
  bool ok = true;
  for (size_t r = 0; r < kv_lens.size(); ++r) {
    int32_t least = 0;
    for (auto i = static_cast<size_t>(t.bidirectional_indptr[r]);
         i < static_cast<size_t>(t.bidirectional_indptr[r + 1]); ++i) {
      const int32_t first = t.bidirectional_ranges[2 * i], last = t.bidirectional_ranges[2 * i + 1];
      if (first >= least && last >= first && last < kv_lens[r]) {
        least = last + 1;
        continue;
      }
      c.fail(kTerms, at("bidirectional_ranges", i),
             "ascending and apart, within " + std::to_string(least) + ".." +
                 std::to_string(kv_lens[r] - 1),
             std::to_string(first) + ".." + std::to_string(last));
      ok = false;
    }
  }
  return ok;
}

/// Terms of requests. False if masks cannot be told.
bool check_request_terms(TensorCheck& c, const AttentionParams& p,
                         std::span<const int32_t> kv_lens) {
  const AttentionTerms& t = p.terms;
  const auto batch = std::ssize(kv_lens);
  bool ok = check_count(c, "request_causal", t.request_causal, batch, "one per request");
  ok &= check_count(c, "cache_leftpad", t.cache_leftpad, batch, "one per request");
  for (size_t r = 0; ok && r < t.cache_leftpad.size(); ++r) {
    if (t.cache_leftpad[r] >= 0 && t.cache_leftpad[r] <= kv_lens[r]) continue;
    c.fail(kTerms, at("cache_leftpad", r), "0.." + std::to_string(kv_lens[r]) + " keys",
           std::to_string(t.cache_leftpad[r]));
  }
  int64_t keys = 0;
  for (const int32_t n : kv_lens) keys += n;
  check_count(c, "key_bias", t.key_bias, p.num_qo_heads * keys,
              std::to_string(p.num_qo_heads) + " query heads * " + std::to_string(keys) + " keys");
  for (const auto& [field, scales] :
       {std::pair("k_scales", t.k_scales), {"v_scales", t.v_scales}}) {
    if (std::ssize(scales) != p.num_kv_heads)
      check_count(c, field, scales, batch * p.num_kv_heads,
                  "one per request and KV head, or " + std::to_string(p.num_kv_heads) +
                      ", one per KV head");
  }
  return check_ranges(c, t, kv_lens) && ok;
}

void check_custom_mask(TensorCheck& c, const AttentionParams& p,
                       std::span<const MaskShape> requests) {
  const CustomMask& mask = p.custom_mask;
  if (mask.kind == CustomMask::Kind::kNone) return;
  if (mask.heads != 1 && mask.heads != p.num_qo_heads) {
    return c.fail("mask.size", at("custom_mask.heads"),
                  "1, or " + std::to_string(p.num_qo_heads) + " query heads",
                  std::to_string(mask.heads));
  }
  if (mask.mask_indptr.size() != requests.size() + 1) {
    c.fail("len.batch", at("mask_indptr"), std::to_string(requests.size() + 1) + " entries",
           std::to_string(mask.mask_indptr.size()));
    return;
  }
  if (mask.mask_indptr[0] != 0)
    c.fail("mask.size", at("mask_indptr", 0), "0", std::to_string(mask.mask_indptr[0]));
  for (size_t i = 0; i < requests.size(); ++i) {
    const MaskShape& r = requests[i];
    const int64_t pairs = int64_t{mask.heads} * r.q_len * r.kv_len, begin = mask.mask_indptr[i];
    const bool packed = mask.kind == CustomMask::Kind::kPacked;
    const int64_t bytes = packed ? (pairs + 7) / 8 : pairs;
    int64_t room = 0;
    if (!__builtin_sub_overflow(mask.mask_indptr[i + 1], begin, &room) && room == bytes) continue;
    c.fail("mask.size", at("mask_indptr", i + 1),
           std::to_string(begin) + " + " + std::to_string(bytes) +
               (packed ? " bytes, as bits for " : " bytes, one for each of ") +
               (mask.heads > 1 ? std::to_string(mask.heads) + " heads * " : "") +
               std::to_string(r.q_len) + " queries * " + std::to_string(r.kv_len) + " keys",
           std::to_string(mask.mask_indptr[i + 1]));
  }
  if (mask.mask_indptr.back() != std::ssize(mask.data)) {
    c.fail("mask.size", at("custom_mask"),
           std::to_string(mask.mask_indptr.back()) + " bytes, where mask_indptr ends",
           std::to_string(mask.data.size()));
  }
}

}  // namespace

void check_terms(TensorCheck& c, const AttentionParams& p) {
  const AttentionTerms& t = p.terms;
  if (!t.any()) return;
  check_slopes(c, p);
  check_tables(c, p);
  if (t.temperature_len < 0 || t.temperature_len == 1)
    c.fail(kTerms, at("temperature_len"), "0, or from 2", std::to_string(t.temperature_len));
  if (t.attention_chunk < 0)
    c.fail(kTerms, at("attention_chunk"), ">= 0", std::to_string(t.attention_chunk));
  if (t.chunk_lookback < 0 || (t.chunk_lookback > 0 && t.attention_chunk == 0))
    c.fail(kTerms, at("chunk_lookback"), ">= 0, and 0 without attention_chunk",
           std::to_string(t.chunk_lookback));
  check_head_scales(c, "k_scales", t.k_scales);
  check_head_scales(c, "v_scales", t.v_scales);
  check_scale(c, "q_scale", t.q_scale);
  check_scale(c, "out_scale", t.out_scale);
}

bool use_lengths(TensorCheck& c, const char* field, std::span<const int32_t> seqused,
                 std::vector<int32_t>* lens) {
  if (!check_count(c, field, seqused, std::ssize(*lens), "one per request")) return false;
  bool ok = true;
  for (size_t i = 0; i < seqused.size(); ++i) {
    int32_t& room = (*lens)[i];
    const bool fits = seqused[i] >= 0 && seqused[i] <= room;
    if (!fits)
      c.fail(kTerms, at(field, i), "0.." + std::to_string(room) + ", the rows that it has",
             std::to_string(seqused[i]));
    ok &= fits;
    room = seqused[i];
  }
  return ok;
}

std::vector<MaskShape> check_masks(TensorCheck& c, const AttentionParams& p,
                                   std::span<const int32_t> q_lens,
                                   std::span<const int32_t> kv_lens) {
  std::vector<MaskShape> masks;
  if (p.terms.any() && !check_request_terms(c, p, kv_lens)) return masks;
  masks.reserve(q_lens.size());
  for (size_t i = 0; i < q_lens.size(); ++i)
    masks.push_back(MaskShape::of(p, static_cast<int64_t>(i), q_lens[i], kv_lens[i]));
  check_custom_mask(c, p, masks);
  return masks;
}

}  // namespace shadowgraph
