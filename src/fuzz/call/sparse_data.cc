#include "fuzz/call/sparse_data.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/float_formats.h"
#include "fuzz/call/guarded.h"

namespace shadowgraph {
namespace {

using Call = SparseCase::Call;
constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();
/// Every element of a group is a multiple of its scale where the largest is 448.
constexpr float kLargestCode = 448;
constexpr int64_t kLeastGroup = 64;
constexpr float kHotKey = 8;

float exact_integer(Rng& rng, int largest) {
  return static_cast<float>(static_cast<int>(rng.below(static_cast<uint32_t>(2 * largest + 1))) -
                            largest);
}

int64_t count_of(const LogicalTensor& t) {
  return static_cast<int64_t>(t.bytes.size() / size_of(t.dtype));
}
void set(LogicalTensor& t, int64_t i, float value) {
  store_float(t.bytes.data(), t.dtype, i, value);
}
template <class Next>
void fill(LogicalTensor& t, const Next& next) {
  for (int64_t i = 0; i < count_of(t); ++i) set(t, i, next(i));
}

/// Any e4m3 but NaN.
void fill_codes(LogicalTensor& t, Rng& rng) {
  for (std::byte& b : t.bytes) b = static_cast<std::byte>(rng.below(2) * 128 + rng.below(0x7f));
}

/// Rows of small integers, one 448 in each group: codes and scales are exact.
void fill_integers(LogicalTensor& t, Rng& rng) {
  fill(t, [&](int64_t i) {
    return i % t.dim % kLeastGroup == 1 ? (rng.below(2) != 0 ? kLargestCode : -kLargestCode)
                                        : exact_integer(rng, 8);
  });
}

void fill_values(const Case& c, LogicalTensor& t, float peak, Rng& rng) {
  is_exact(c.data) ? fill_integers(t, rng)
                   : fill_random(t, c.data == CaseData::kPeaked ? peak : 1, rng);
}

// ---- attention

/// Exact: q is 0, or selects by the last element; a latent's last element is kHotKey or 0. Shifted:
/// it is kHotKey in all, and logits are above 0 beside a sink.
void make_attention(const Case& c, SparseData& d, Rng& rng) {
  const auto& x = std::get<SparseCase>(c.call);
  const bool selector = c.data == CaseData::kSelector, shifted = is_shifted(c.data);
  d.sm_scale = selector || shifted ? 0.25F : 0.0721F;
  d.x = LogicalTensor(x.dtype, std::ssize(x.rows), x.heads, x.head_dim);
  if (is_exact(c.data)) {
    const float select = x.dtype == DType::kE4M3 ? kLargestCode : 8192;
    fill(d.x, [&](int64_t i) {
      if (i % x.head_dim != x.head_dim - 1) return 0.F;
      if (!shifted) return selector ? select : 0.F;
      const float far = far_factor(c.data, x.dtype, std::ilogb(kHotKey * d.sm_scale), rng);
      return x.sinks ? std::abs(far) : far;
    });
  } else {
    fill_random(d.x, c.data == CaseData::kPeaked ? 8 : 1, rng);
  }
  for (size_t list = 0; list < 2; ++list) {
    const int64_t keys = d.first[list].back() + SparseData::kForeign;
    LogicalTensor& latents = d.latents[list] = LogicalTensor(DType::kF32, keys, 1, x.head_dim);
    fill_values(c, latents, 1, rng);
    d.hot[list].assign(static_cast<size_t>(keys), 0);
    for (int64_t key = 0; key < keys && is_exact(c.data); ++key) {
      const bool hot = shifted || (selector && rng.below(4) == 0);
      d.hot[list][static_cast<size_t>(key)] = hot ? 1 : 0;
      set(latents, (key + 1) * x.head_dim - 1, hot ? kHotKey : 0);
    }
  }
  // Exact data has sinks of logit 0, which weigh 1 if no hot key is seen, and nothing otherwise.
  for (int32_t h = 0; x.sinks && h < x.heads; ++h)
    d.sinks.push_back(is_exact(c.data) ? 0.F : 4 * rng.signed_unit());
}

// ---- the indexer

/// Blocks of integers of which the largest is 448 2^k: scales are 2^k, and codes exact.
void make_activations(const Case& c, SparseData& d, Rng& rng) {
  const auto& x = std::get<SparseCase>(c.call);
  d.x = LogicalTensor(x.dtype, std::ssize(x.rows), 1, x.head_dim);
  if (is_exact(c.data)) {
    fill_integers(d.x, rng);
    for (int64_t block = 0; block * kIndexDim < count_of(d.x); ++block) {
      const int exponent = static_cast<int>(rng.below(8)) - 4;
      for (int64_t i = block * kIndexDim; i < (block + 1) * kIndexDim; ++i)
        set(d.x, i, std::ldexp(load_float(d.x.bytes.data(), x.dtype, i), exponent));
    }
    return;
  }
  fill_random(d.x, 1, rng);
  for (int64_t block = 0; block * kIndexDim < count_of(d.x); ++block) {
    // Values of any magnitude, and some zeros.
    const uint32_t kind = rng.below(8);
    const float factor = kind == 0   ? 0
                         : kind == 1 ? 1e-5F
                                     : std::ldexp(1.F, static_cast<int>(rng.below(20)) - 10);
    for (int64_t i = block * kIndexDim; i < (block + 1) * kIndexDim; ++i)
      set(d.x, i, factor * load_float(d.x.bytes.data(), x.dtype, i));
  }
}

void make_keys(const Case& c, SparseData& d, int64_t count, Rng& rng) {
  d.keys = LogicalTensor(DType::kE4M3, count, 1, kIndexDim);
  d.key_scales = LogicalTensor(DType::kF32, count, 1, 1);
  if (is_exact(c.data)) {
    fill(d.keys, [&](int64_t) { return exact_integer(rng, 3); });
    fill(d.key_scales, [&](int64_t) { return std::ldexp(1.F, -static_cast<int>(rng.below(4))); });
  } else {
    fill_codes(d.keys, rng);
    fill(d.key_scales, [&](int64_t) { return 0.01F + std::abs(rng.signed_unit()); });
  }
}

void make_logits(const Case& c, SparseData& d, Rng& rng) {
  const auto& x = std::get<SparseCase>(c.call);
  d.first_of_request = {0};
  for (int64_t r = 0; r < x.requests; ++r)
    d.first_of_request.push_back(d.first_of_request.back() + request_keys(x, r));
  make_keys(c, d, d.first_of_request.back(), rng);
  d.x = LogicalTensor(DType::kE4M3, std::ssize(x.rows), x.heads, kIndexDim);
  d.head_weights = LogicalTensor(DType::kF32, std::ssize(x.rows), x.heads, 1);
  if (is_exact(c.data)) {
    fill(d.x, [&](int64_t) { return exact_integer(rng, 2); });
    fill(d.head_weights, [&](int64_t) { return exact_integer(rng, 3); });
  } else {
    fill_codes(d.x, rng);
    fill(d.head_weights, [&](int64_t) { return rng.signed_unit(); });
  }
}

/// Many that are equal, and what is no number.
void make_scores(const Case& c, SparseData& d, Rng& rng) {
  constexpr float kOdd[] = {
      kFloatInfinity, -kFloatInfinity, std::numeric_limits<float>::quiet_NaN(), 0, -0.F, 1e-45F};
  d.scores = LogicalTensor(DType::kF32, d.first[0].back(), 1, 1);
  fill(d.scores, [&](int64_t) {
    if (rng.below(8) == 0) return kOdd[rng.below(std::size(kOdd))];
    return is_exact(c.data) ? exact_integer(rng, 4) : 100 * rng.signed_unit();
  });
}

/// Rows with as many entries as they say, -1 and what else is none between them.
void make_lists(const SparseCase& x, SparseData& d, Rng& rng) {
  d.table_width = x.topk + rng.below(40);
  const auto width = static_cast<uint32_t>(d.table_width);
  for (const SparseCase::Row& row : x.rows) {
    int32_t left = row.count;
    for (int32_t j = 0; j < x.topk; ++j) {
      const bool one = rng.below(static_cast<uint32_t>(x.topk - j)) < static_cast<uint32_t>(left);
      left -= one ? 1 : 0;
      d.indices.push_back(one                 ? static_cast<int32_t>(rng.below(width))
                          : rng.below(4) != 0 ? -1
                                              : -2 - static_cast<int32_t>(rng.below(9)));
    }
    d.offsets.push_back(static_cast<int32_t>(rng.below(1000)));
  }
  for (int64_t i = 0; i < x.requests * d.table_width; ++i)
    d.table.push_back(static_cast<int32_t>(rng.below(1u << 20)));
}

// ---- the compressor

/// The number that a channel's scores are added to, so that all are equal (0, or shifted a number
/// of the channel), or one of a block's is far above the rest: of token `slot` of its block, as a
/// member of half `half`.
float exact_score(const Case& c, float ape, int64_t block, int64_t half, int64_t channel,
                  int64_t slot) {
  if (is_shifted(c.data)) {
    Rng rng = Rng::stream(c.seed, static_cast<uint64_t>(channel));
    return far_factor(c.data, std::get<SparseCase>(c.call).dtype, 0, rng);
  }
  if (c.data != CaseData::kSelector) return -ape;
  const int64_t hot = (7 * block + 3 * half + channel) % std::get<SparseCase>(c.call).ratio;
  return slot == hot ? -ape : -16384;
}

/// Beside shifted scores it would be lost.
float any_ape(const Case& c, Rng& rng) {
  if (is_shifted(c.data)) return 0;
  return is_exact(c.data) ? exact_integer(rng, 5) : rng.signed_unit();
}

float ape_of(const SparseData& d, int64_t row, int64_t i) {
  return load_float(d.ape.bytes.data(), DType::kF32, row * d.ape.dim + i);
}

void make_stream(const Case& c, SparseData& d, Rng& rng) {
  const auto& x = std::get<SparseCase>(c.call);
  const CompressShape shape = x.shape();
  const int64_t dim = x.head_dim;
  d.ape = LogicalTensor(DType::kF32, shape.window(), 1, dim);
  fill(d.ape, [&](int64_t) { return any_ape(c, rng); });
  d.first_in_stream = {0};
  for (const SparseCase::Row& r : x.rows) {
    const int64_t block = r.first / x.ratio - (shape.overlaps() ? 1 : 0);
    d.first_position.push_back(std::max<int64_t>(0, block * x.ratio));
    d.first_in_stream.push_back(d.first_in_stream.back() + r.first - d.first_position.back() +
                                r.count);
  }
  d.stream = LogicalTensor(x.dtype, d.first_in_stream.back(), 1, shape.channels() * dim);
  if (!is_exact(c.data)) {
    fill_random(d.stream, c.data == CaseData::kPeaked ? 8 : 2, rng);
    return;
  }
  for (size_t r = 0; r < x.rows.size(); ++r) {
    for (int64_t i = d.first_in_stream[r]; i < d.first_in_stream[r + 1]; ++i) {
      const int64_t position = d.first_position[r] + i - d.first_in_stream[r];
      const int64_t block = position / x.ratio, slot = position % x.ratio;
      for (int64_t e = 0; e < d.stream.dim; ++e) {
        const int64_t half = e / dim % shape.halves(), channel = e % dim;
        const bool score = e >= shape.halves() * dim;
        const float ape = ape_of(d, half * x.ratio + slot, channel);
        set(d.stream, i * d.stream.dim + e,
            score ? exact_score(c, ape, block, half, channel, slot) : exact_integer(rng, 15));
      }
    }
  }
}

/// Exact: x of magnitude 1 and eps of 3, so that the root is 2; rotations by quarters.
void make_norm(const Case& c, SparseData& d, Rng& rng) {
  const auto& x = std::get<SparseCase>(c.call);
  d.weight = LogicalTensor(DType::kF32, 1, 1, x.head_dim);
  d.freqs = LogicalTensor(DType::kF32, std::ssize(x.rows), 1, x.rope_dim);
  if (!is_exact(c.data)) {
    fill(d.weight, [&](int64_t) { return 2 * rng.signed_unit(); });
    fill(d.freqs, [&](int64_t) { return rng.signed_unit(); });
    d.eps = rng.below(2) != 0 ? 1e-6F : 0.1F;
    return;
  }
  d.eps = 3;
  fill(d.weight, [&](int64_t) { return exact_integer(rng, 7); });
  for (int64_t i = 0; i + 1 < count_of(d.freqs); i += 2) {
    const float unit = rng.below(2) != 0 ? 1.F : -1.F;
    const int64_t cos = rng.below(2);
    set(d.freqs, i, cos != 0 ? unit : 0), set(d.freqs, i + 1, cos != 0 ? 0 : unit);
  }
}

/// A block's windows: each channel's mean, or that of its hot members, is 1 or -1.
void make_exact_windows(const Case& c, SparseData& d, Rng& rng) {
  const auto& x = std::get<SparseCase>(c.call);
  const CompressShape shape = x.shape();
  const int64_t dim = x.head_dim, window = shape.window();
  fill(d.x, [&](int64_t) { return exact_integer(rng, 15); });
  for (int64_t block = 0; block < std::ssize(x.rows); ++block) {
    for (int64_t channel = 0; channel < dim; ++channel) {
      const float sign = rng.below(2) != 0 ? 1.F : -1.F;
      float off = 0;
      for (int64_t i = 0; i < window; ++i) {
        const int64_t half = i / x.ratio, slot = i % x.ratio;
        const int64_t row = (block * window + i) * d.x.dim, at = half * dim + channel;
        const float ape = ape_of(d, slot, at);
        const float score = exact_score(c, ape, block, half, channel, slot);
        // Two members each balance: of the window, or of the halves' hot ones.
        const bool uniform = c.data != CaseData::kSelector, hot = score == -ape;
        if (uniform) off = i % 2 != 0 ? -off : exact_integer(rng, 7);
        if (!uniform && hot && shape.overlaps()) off = half != 0 ? -off : exact_integer(rng, 7);
        if (uniform || hot) set(d.x, row + at, sign + off);
        set(d.x, row + shape.halves() * dim + at, score);
      }
    }
  }
}

void make_windows(const Case& c, SparseData& d, Rng& rng) {
  const auto& x = std::get<SparseCase>(c.call);
  const CompressShape shape = x.shape();
  d.ape = LogicalTensor(DType::kF32, x.ratio, 1, shape.halves() * x.head_dim);
  fill(d.ape, [&](int64_t) { return any_ape(c, rng); });
  d.x = LogicalTensor(x.dtype, std::ssize(x.rows), shape.window(), shape.channels() * x.head_dim);
  if (is_exact(c.data)) return make_exact_windows(c, d, rng);
  fill_random(d.x, c.data == CaseData::kPeaked ? 8 : 2, rng);
  // A score of -inf counts for nothing, and a channel may have no other.
  for (int64_t i = 0; i < count_of(d.x); ++i) {
    const int64_t e = i % d.x.dim, window = i / d.x.dim / shape.window();
    if (e < shape.halves() * x.head_dim) continue;
    if (rng.below(16) == 0 || (e + window) % 29 == 0) set(d.x, i, -kFloatInfinity);
  }
}

void count_keys(const SparseCase& x, SparseData& d) {
  d.first[0] = d.first[1] = {0};
  for (const SparseCase::Row& r : x.rows) {
    d.first[0].push_back(d.first[0].back() + r.count);
    d.first[1].push_back(d.first[1].back() + (x.has_extra ? r.extra : 0));
  }
}

}  // namespace

int64_t request_keys(const SparseCase& x, int64_t request) {
  int64_t keys = 0;
  for (int64_t t = request; t < std::ssize(x.rows); t += x.requests) {
    const SparseCase::Row& r = x.rows[static_cast<size_t>(t)];
    keys = std::max<int64_t>(keys, r.first + r.count);
  }
  return keys;
}

int64_t compress_pages(const SparseCase& x, const SparseCase::Row& row) {
  if (x.ring) return x.shape().overlaps() ? 2 : 1;
  const int64_t first = std::max(0, row.first / x.ratio - 1);
  return (row.first + std::max(row.count, 1) - 1) / x.ratio - first + 1;
}

int64_t compress_page(const SparseCase& x, const SparseCase::Row& row, int64_t position) {
  const int64_t block = position / x.ratio;
  if (x.ring) return block % (x.shape().overlaps() ? 2 : 1);
  return block - std::max(0, row.first / x.ratio - 1);
}

SparseData make_sparse_data(const Case& c) {
  const auto& x = std::get<SparseCase>(c.call);
  Rng rng(c.seed);
  SparseData d;
  count_keys(x, d);
  const int64_t rows = std::ssize(x.rows);
  switch (x.call) {
    case Call::kAttention: make_attention(c, d, rng); break;
    case Call::kPack:
      d.x = LogicalTensor(x.dtype, rows, 1, x.head_dim);
      fill_values(c, d.x, 1000, rng);
      break;
    case Call::kActQuant: make_activations(c, d, rng); break;
    case Call::kStoreKeys: make_keys(c, d, rows, rng); break;
    case Call::kGatherKeys: make_keys(c, d, d.first[0].back(), rng); break;
    case Call::kLogits: make_logits(c, d, rng); break;
    case Call::kSelect: make_scores(c, d, rng); break;
    case Call::kTransform:
    case Call::kCompact: make_lists(x, d, rng); break;
    case Call::kCompress: make_stream(c, d, rng); break;
    case Call::kPoolNormRope:
      make_windows(c, d, rng);
      make_norm(c, d, rng);
      break;
    case Call::kNormRope:
      d.x = LogicalTensor(x.dtype, rows, 1, x.head_dim);
      fill_random(d.x, c.data == CaseData::kPeaked ? 100 : 1, rng);
      if (is_exact(c.data)) fill(d.x, [&](int64_t) { return rng.below(2) != 0 ? 1.F : -1.F; });
      make_norm(c, d, rng);
  }
  return d;
}

}  // namespace shadowgraph
