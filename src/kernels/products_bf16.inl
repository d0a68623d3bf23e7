// The two products with the machine's bf16 dot product (vdpbf16ps: two bf16 products added to an
// f32), for units whose q, K and V are bf16. Included after attend.inl by the unit that has it.
//
// K panels are [head_dim / 2][16][2]; V is [tile / 2][head_dim][2], pairs of tokens at even
// absolute positions. P is rounded to bf16. Where a row sees one token of a pair, that token is
// added alone: which way a pair goes follows from the row's own mask, so a row's bits are still its
// own. Sizes fit the f32 scratch: half the bytes, odd dims padded.

int64_t pairs(int64_t n) { return (n + 1) / 2; }

/// Two bf16 values, the first in the low half.
__m512bh load_pairs(const void* p) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p)); }
__m512bh broadcast_pair(uint32_t bits) {
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(bits)));
}
Vec dot_pairs(Vec sum, __m512bh a, __m512bh b) { return {_mm512_dpbf16_ps(sum.x, a, b)}; }

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

struct Bf16Products {
  static constexpr int64_t kSize = 2;  // bytes of a bf16

  static void pack_q(const AttendUnit& u, const std::byte* q, float* row) {
    if (u.k.head_dim % 2 == 1) row[u.k.head_dim / 2] = 0;
    std::memcpy(row, q, static_cast<size_t>(u.k.head_dim * kSize));
  }

  static void pack_k(const AttendUnit& u, int64_t tile, KvBounds keys, float* panels, float*) {
    const int64_t dim = u.k.head_dim, panel_floats = pairs(dim) * kPanel;
    const int64_t first = (keys.begin - tile) / kPanel, last = (keys.end - 1 - tile) / kPanel;
    for (int64_t i = first * panel_floats; i < (last + 1) * panel_floats; i += kPanel)
      store(panels + i, set1(0));
    for (int64_t token = keys.begin; token < keys.end; ++token) {
      const std::byte* key = token_address(u, u.k, token);
      const int64_t lane = (token - tile) % kPanel;
      auto* panel =
          reinterpret_cast<std::byte*>(panels + (token - tile) / kPanel * panel_floats + lane);
      for (int64_t i = 0; i < dim / 2; ++i) std::memcpy(panel + i * kPanel * 4, key + i * 4, 4);
      if (dim % 2 == 1) std::memcpy(panel + dim / 2 * kPanel * 4, key + (dim - 1) * kSize, kSize);
    }
  }

  static Vec dot(const AttendUnit& u, const float* q, const float* panels, int64_t p) {
    const int64_t steps = pairs(u.k.head_dim);
    const float* panel = panels + p * steps * kPanel;
    Vec sum = set1(0);
    for (int64_t i = 0; i < steps; ++i) {
      sum = dot_pairs(sum, broadcast_pair(bits_of(q[i])), load_pairs(panel + i * kPanel));
    }
    return sum;
  }

  static void pack_v(const AttendUnit& u, int64_t tile, KvBounds keys, float* values) {
    for (int64_t token = keys.begin; token < keys.end; ++token) {
      const std::byte* value = token_address(u, u.v, token);
      const int64_t at = token - tile;
      auto* pair = reinterpret_cast<std::byte*>(values + at / 2 * u.o_stride) + at % 2 * kSize;
      for (int64_t i = 0; i < u.v.head_dim; ++i)
        std::memcpy(pair + i * 4, value + i * kSize, kSize);
    }
  }

  /// To bf16, kept as f32.
  static Vec round_weight(Vec weight) {
    const auto narrow = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(weight.x));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16))};
  }

  /// Tokens t and t + 1 for even t, of which those in [begin, end) with a weight count.
  static Vec add_pair(Vec o, float low, float high, const float* pair) {
    if (low != 0 && high != 0) {
      return dot_pairs(o, broadcast_pair(bits_of(high) | bits_of(low) >> 16), load_pairs(pair));
    }
    const __m512i both = _mm512_loadu_si512(pair);
    if (low != 0) return fma(set1(low), {_mm512_castsi512_ps(_mm512_slli_epi32(both, 16))}, o);
    if (high == 0) return o;
    const __m512i upper = _mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
    return fma(set1(high), {_mm512_castsi512_ps(upper)}, o);
  }

  static void add_values(const float* weights, const float* values, int64_t begin, int64_t end,
                         float* o, int64_t width) {
    for (int64_t i = 0; i < width; i += kPanel) {
      Vec sum = load(o + i);
      for (int64_t t = begin / 2 * 2; t < end; t += 2) {
        const float low = t >= begin ? weights[t] : 0, high = t + 1 < end ? weights[t + 1] : 0;
        sum = add_pair(sum, low, high, values + t / 2 * width + i);
      }
      store(o + i, sum);
    }
  }
};
