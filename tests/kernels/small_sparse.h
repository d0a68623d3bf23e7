// Small calls over chosen keys, with all their memory.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "core/float_formats.h"
#include "shadowgraph/layers/sparse.h"

namespace shadowgraph {

struct SparseShape {
  int64_t tokens = 3, heads = 5, dim = 48, slots = 90, width = 75;
  int32_t dim_v = 40, page_size = 1;  // of kV4
  LatentLayout layout = LatentLayout::kRows, extra_layout = LatentLayout::kRows;
  DType dtype = DType::kF32, rows = DType::kF32, out = DType::kF32;
  bool extra = false, sinks = false, ragged = false, lengths = false;
  LseSink counted = LseSink::kExcluded;
};

inline SparseShape dsa_shape() {
  SparseShape s;
  s.layout = LatentLayout::kDsa, s.dim = 576, s.dim_v = 512, s.dtype = DType::kBF16;
  s.out = DType::kBF16, s.lengths = true;
  return s;
}
inline SparseShape v4_shape() {
  SparseShape s = dsa_shape();
  s.layout = LatentLayout::kV4, s.extra_layout = LatentLayout::kV4, s.dim = s.dim_v = 512;
  s.page_size = 4, s.slots = 88, s.extra = s.sinks = true, s.counted = LseSink::kIncluded;
  return s;
}

/// A pool of latents with random contents, none of which is NaN.
class SmallPool {
 public:
  SmallPool(LatentLayout layout, DType rows, int64_t slots, int64_t dim, int32_t page_size,
            std::mt19937_64& random) {
    std::normal_distribution<float> normal;
    const auto number = [&] { return normal(random); };
    pool_.layout = layout;
    pool_.page_size = layout == LatentLayout::kV4 ? page_size : 1;
    if (layout == LatentLayout::kRows) {
      bytes.resize(static_cast<size_t>(slots * dim) * size_of(rows));
      for (int64_t i = 0; i < slots * dim; ++i) store_float(bytes.data(), rows, i, number());
      pool_.data = TensorView(bytes.data(), rows, {slots, dim});
      return;
    }
    const bool dsa = layout == LatentLayout::kDsa;
    const int64_t rows_of = dsa ? slots : slots / page_size;
    const int64_t width = dsa ? kDsaBytes : v4_page_bytes(page_size);
    bytes.resize(static_cast<size_t>(rows_of * width));
    pool_.data = TensorView(bytes.data(), DType::kU8, {rows_of, width});
    for (int64_t slot = 0; slot < slots; ++slot) fill_packed(slot, number);
  }
  SmallPool(const SmallPool&) = delete;
  SmallPool& operator=(const SmallPool&) = delete;

  const WritableLatentPool& pool() const { return pool_; }
  std::vector<std::byte> bytes;

 private:
  template <class Number>
  void fill_packed(int64_t slot, const Number& number) {
    const bool dsa = pool_.layout == LatentLayout::kDsa;
    std::byte* latent = bytes.data() + pool_.latent_at(slot);
    const int64_t codes = dsa ? kDsaCodes : kV4Codes;
    for (int64_t i = 0; i < codes; ++i) store_float(latent, DType::kE4M3, i, 100 * number());
    for (int64_t g = 0; g < codes / (dsa ? kDsaGroup : kV4Group); ++g) {
      if (dsa) {
        store_float(latent + kDsaCodes, DType::kF32, g, 0.01F + 0.001F * number());
      } else {
        bytes[static_cast<size_t>(pool_.scales_at(slot) + g)] = static_cast<std::byte>(119 + g % 4);
      }
    }
    std::byte* rope = latent + (dsa ? kDsaBytes - 2 * kRopeDim : kV4Codes);
    for (int64_t i = 0; i < kRopeDim; ++i) store_float(rope, DType::kBF16, i, number());
  }

  WritableLatentPool pool_;
};

/// Every token has a list of its own: some slots, -1 between them; the second token none at all.
struct SmallSparse {
  explicit SmallSparse(const SparseShape& shape, uint64_t seed = 1)
      : s(shape),
        random(seed),
        first(s.layout, s.rows, s.slots, s.dim, s.page_size, random),
        second(s.extra_layout, s.rows, s.slots, s.dim, s.page_size, random) {
    std::normal_distribution<float> normal;
    q.resize(static_cast<size_t>(s.tokens * s.heads * s.dim) * size_of(s.dtype));
    for (int64_t i = 0; i < s.tokens * s.heads * s.dim; ++i)
      store_float(q.data(), s.dtype, i, normal(random));
    out.assign(static_cast<size_t>(s.tokens * s.heads * s.dim_v) * size_of(s.out), std::byte{0x7e});
    lse.assign(static_cast<size_t>(s.tokens * s.heads), 777);
    for (int64_t h = 0; s.sinks && h < s.heads; ++h) sinks.push_back(normal(random));
    call.q = ConstTensorView(q.data(), s.dtype, {s.tokens, s.heads, s.dim});
    list(first, keys_list, &call.keys);
    if (s.extra) list(second, extra_list, &call.extra);
    call.head_dim_v = s.dim_v;
    call.sm_scale = 0.05F;
    call.sinks = sinks;
    call.out = TensorView(out.data(), s.out, {s.tokens, s.heads, s.dim_v});
    call.lse = NaturalLse(TensorView(lse.data(), DType::kF32, {s.tokens, s.heads}));
    call.options.lse_sink = s.counted;
  }
  SmallSparse(const SmallSparse&) = delete;
  SmallSparse& operator=(const SmallSparse&) = delete;

  std::string run() { return sparse_attention(call).to_string(); }

  struct List {
    std::vector<int32_t> indices, lengths, indptr;
  };

  SparseShape s;
  std::mt19937_64 random;
  SmallPool first, second;
  List keys_list, extra_list;
  std::vector<std::byte> q, out;
  std::vector<float> lse, sinks;
  SparseAttention call;

 private:
  void list(const SmallPool& pool, List& l, ChosenKeys* keys) {
    std::vector<int32_t> slots(static_cast<size_t>(s.slots));
    std::iota(slots.begin(), slots.end(), 0);
    l.indptr = {0};
    for (int64_t t = 0; t < s.tokens; ++t) {
      std::shuffle(slots.begin(), slots.end(), random);
      std::vector<int32_t> row(slots.begin(), slots.begin() + s.width);
      const auto length = static_cast<int32_t>(t % 3 == 1 ? 1 : s.width - t);
      for (int32_t& slot : row)
        if (random() % 4 == 0 || t % 3 == 1) slot = -1;
      if (s.ragged) row.resize(static_cast<size_t>(length));
      // What is behind a length is not looked at.
      if (s.lengths) std::fill(row.begin() + length, row.end(), 1 << 30);
      l.indices.insert(l.indices.end(), row.begin(), row.end());
      l.indptr.push_back(static_cast<int32_t>(l.indices.size()));
      l.lengths.push_back(length);
    }
    keys->pool = pool.pool();
    keys->indices = l.indices;
    keys->width = s.ragged ? 0 : s.width;
    if (s.ragged) keys->indptr = l.indptr;
    if (s.lengths && !s.ragged) keys->lengths = l.lengths;
  }
};

}  // namespace shadowgraph
