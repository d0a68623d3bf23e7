// A small attention call that owns its memory, for the three attention kernels alike. q, K and V
// are functions of the logical index; whatever they do not fill is poison (NaN), and so are the
// outputs before the run. In i8, K and V take scales of 0.5 and 1 in turn.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "attn/cases/case.h"
#include "attn/page_table.h"
#include "core/float_formats.h"

namespace shadowgraph {

struct SmallShape {
  std::vector<std::pair<int32_t, int32_t>> requests;  // q_len (decode: taken as 1), kv_len
  int32_t qo_heads = 1, kv_heads = 1, dim_qk = 4, dim_vo = 4;
  DType q_dtype = DType::kF32, kv_dtype = DType::kF32, out_dtype = DType::kF32;
  int32_t page_size = 4;
  bool hnd = false, panels = false, csr = false;
};

class SmallAttention {
 public:
  using Value = std::function<float(int64_t request, int64_t token, int64_t head, int64_t dim)>;
  using Sees = std::function<bool(int64_t request, int64_t q, int64_t key)>;

  SmallAttention(CaseKernel which, std::string_view isa, SmallShape s)
      : kernel(which), shape(std::move(s)) {
    int32_t pages = 1;
    for (auto& [q_len, kv_len] : shape.requests) {
      if (kernel == CaseKernel::kDecodePaged) q_len = 1;
      cu_q_.push_back(cu_q_.back() + q_len);
      cu_k_.push_back(cu_k_.back() + kv_len);
      pages += static_cast<int32_t>(pages_for(kv_len, shape.page_size));
    }
    params.num_qo_heads = shape.qo_heads, params.num_kv_heads = shape.kv_heads;
    params.head_dim_qk = shape.dim_qk, params.head_dim_vo = shape.dim_vo;
    params.sm_scale = 1;
    options.isa = isa;
    options.num_threads = 2;
    lay_rows();
    ragged_kv() ? lay_ragged() : lay_paged(pages);
  }
  SmallAttention(const SmallAttention&) = delete;
  SmallAttention& operator=(const SmallAttention&) = delete;

  CaseKernel kernel;
  SmallShape shape;
  AttentionParams params;
  CallOptions options;
  PagedAttention paged;
  RaggedAttention ragged;
  std::vector<std::byte> q_memory, k_memory, v_memory, out_memory, lse_memory;
  std::vector<float> k_scales, v_scales;  // i8

  bool ragged_kv() const { return kernel == CaseKernel::kPrefillRagged; }
  int32_t q_len(size_t request) const { return shape.requests[request].first; }
  int32_t kv_len(size_t request) const { return shape.requests[request].second; }

  void fill_q(const Value& value) {
    for_each(cu_q_, shape.qo_heads, shape.dim_qk, [&](int64_t r, int64_t t, int64_t h, int64_t d) {
      store_float(q_memory.data(), shape.q_dtype,
                  paged.q.offset(cu_q_[static_cast<size_t>(r)] + t, h, d), value(r, t, h, d));
    });
  }
  void fill_k(const Value& value) { fill_kv(true, value); }
  void fill_v(const Value& value) { fill_kv(false, value); }
  /// i8: the scale of one token and head.
  float& scale(bool k, int64_t r, int64_t t, int64_t h) {
    const KvPlane& p = k ? paged.cache.k : paged.cache.v;
    return p.scales[p.scale_offset(page_of(r, t), t % shape.page_size, h)];
  }
  /// One key of all heads becomes NaN.
  void poison_key(int64_t r, int64_t token, bool key, bool val) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      for (int64_t d = 0; key && d < shape.dim_qk; ++d) put(true, r, token, h, d, nan);
      for (int64_t d = 0; val && d < shape.dim_vo; ++d) put(false, r, token, h, d, nan);
    }
  }
  /// q = 0, so that every key that is seen weighs exactly 1; K some numbers; V the codes.
  void fill_uniform() {
    fill_q([](auto...) { return 0.f; });
    fill_k([](int64_t, int64_t t, int64_t h, int64_t d) {
      return static_cast<float>((t + 3 * h + d) % 5 - 2);
    });
    fill_v(code);
  }
  /// Small integers (below 64) that tell request, token and head apart.
  static float code(int64_t r, int64_t t, int64_t h, int64_t d) {
    const int64_t digits[] = {
        t % 8, t / 8 % 8, t / 64 % 8, t / 512 % 8 + 8 * (r % 8), h % 64, (7 * t + 3 * d + h) % 61};
    return static_cast<float>(digits[(d + h) % 6]);
  }

  void set_sinks(std::vector<float> values) {
    sinks_ = std::move(values);
    params.sinks = sinks_;
  }
  void set_mask(CustomMask::Kind kind, const Sees& sees) {
    mask_.clear();
    mask_indptr_ = {0};
    for (size_t r = 0; r < shape.requests.size(); ++r) {
      int64_t pair = 0;
      for (int64_t q = 0; q < q_len(r); ++q) {
        for (int64_t k = 0; k < kv_len(r); ++k, ++pair) {
          const bool bit = sees(static_cast<int64_t>(r), q, k);
          if (kind == CustomMask::Kind::kBool) mask_.push_back(bit ? 1 : 0);
          if (kind != CustomMask::Kind::kPacked) continue;
          if (pair % 8 == 0) mask_.push_back(0);
          mask_.back() = static_cast<uint8_t>(mask_.back() | (bit ? 1u : 0u) << (pair % 8));
        }
      }
      mask_indptr_.push_back(static_cast<int64_t>(mask_.size()));
    }
    params.custom_mask = {kind, mask_, mask_indptr_};
  }

  /// The calls get the parameters and options as they stand.
  void settle() {
    paged.params = ragged.params = params;
    paged.options = ragged.options = options;
  }
  /// The call as it stands, into poisoned outputs.
  Status run() {
    std::fill(out_memory.begin(), out_memory.end(), std::byte{0xff});
    std::fill(lse_memory.begin(), lse_memory.end(), std::byte{0xff});
    settle();
    return ragged_kv() ? attention_varlen(ragged) : attention_with_kvcache(paged);
  }
  float out(size_t r, int64_t t, int64_t head, int64_t dim) const {
    return load_float(out_memory.data(), shape.out_dtype,
                      paged.out.offset(cu_q_[r] + t, head, dim));
  }
  float lse(size_t r, int64_t t, int64_t head) const {
    return load_float(lse_memory.data(), DType::kF32, paged.lse.tensor.offset(cu_q_[r] + t, head));
  }

 private:
  int32_t page_of(int64_t r, int64_t t) const {
    return table_.page_table[static_cast<size_t>(r * table_.max_pages + t / shape.page_size)];
  }
  template <class Visit>
  void for_each(const std::vector<int32_t>& cu, int64_t heads, int64_t dim, const Visit& visit) {
    for (size_t r = 0; r + 1 < cu.size(); ++r) {
      for (int64_t t = 0; t < cu[r + 1] - cu[r]; ++t) {
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t d = 0; d < dim; ++d) visit(static_cast<int64_t>(r), t, h, d);
        }
      }
    }
  }
  void fill_kv(bool k, const Value& value) {
    for_each(
        cu_k_, shape.kv_heads, k ? shape.dim_qk : shape.dim_vo,
        [&](int64_t r, int64_t t, int64_t h, int64_t d) { put(k, r, t, h, d, value(r, t, h, d)); });
  }
  void put(bool k, int64_t r, int64_t t, int64_t h, int64_t d, float value) {
    int64_t at = 0;
    if (ragged_kv()) {
      const ConstTensorView& tensor = k ? ragged.k : ragged.v;
      at = tensor.offset(cu_k_[static_cast<size_t>(r)] + t, h, d);
    } else {
      const KvPlane& plane = k ? paged.cache.k : paged.cache.v;
      at = plane.offset(page_of(r, t), t % shape.page_size, h, d);
      if (plane.scales != nullptr) {
        const bool half = ((k ? t : t / 2) + h + r) % 2 == 0;
        value /= scale(k, r, t, h) = std::isnan(value) ? value : half ? 0.5f : 1.f;
      }
    }
    store_float((k ? k_memory : v_memory).data(), shape.kv_dtype, at, value);
  }
  static std::byte* allocate(std::vector<std::byte>& memory, DType t, int64_t count) {
    memory.assign(static_cast<size_t>(count) * size_of(t), std::byte{0xff});
    return memory.data();
  }
  /// q dense; out and lse with gaps after each row.
  void lay_rows() {
    const int64_t rows = cu_q_.back(), heads = shape.qo_heads, dk = shape.dim_qk, dv = shape.dim_vo;
    paged.q = ConstTensorView(allocate(q_memory, shape.q_dtype, rows * heads * dk), shape.q_dtype,
                              {rows, heads, dk});
    const int64_t row_stride = heads * (dv + 1) + 2;
    paged.out = TensorView(allocate(out_memory, shape.out_dtype, rows * row_stride),
                           shape.out_dtype, {rows, heads, dv}, {row_stride, dv + 1, 1});
    paged.lse = NaturalLse(TensorView(allocate(lse_memory, DType::kF32, rows * (heads + 1)),
                                      DType::kF32, {rows, heads}, {heads + 1, 1}));
    ragged.q = paged.q, ragged.out = paged.out, ragged.lse = paged.lse;
    ragged.cu_seqlens_q = cu_q_, ragged.cu_seqlens_k = cu_k_;
    if (kernel == CaseKernel::kPrefillPaged) paged.cu_seqlens_q = cu_q_;
  }
  void lay_ragged() {
    const int64_t tokens = cu_k_.back(), heads = shape.kv_heads;
    const DType t = shape.kv_dtype;
    ragged.k = ConstTensorView(allocate(k_memory, t, tokens * heads * shape.dim_qk), t,
                               {tokens, heads, shape.dim_qk});
    ragged.v = ConstTensorView(allocate(v_memory, t, tokens * heads * shape.dim_vo), t,
                               {tokens, heads, shape.dim_vo});
  }
  /// Pages are handed out from the last one down; page 0 belongs to nobody.
  void lay_paged(int32_t pages) {
    const int64_t p = pages, s = shape.page_size, h = shape.kv_heads, dk = shape.dim_qk,
                  dv = shape.dim_vo;
    const DType t = shape.kv_dtype;
    const auto plane = [t](std::vector<std::byte>& memory, std::initializer_list<int64_t> dims) {
      TensorView view(nullptr, t, dims);
      view.data = allocate(memory, t, view.numel());
      return view;
    };
    if (shape.panels) {
      paged.cache = KvCache::panels(
          plane(k_memory, {p, h, s / kPanelTokens, key_panel_elements(t, shape.dim_qk)}),
          plane(v_memory, {p, h, s / kPanelTokens, value_panel_elements(shape.dim_vo)}),
          shape.dim_qk, shape.dim_vo);
    } else if (shape.hnd) {
      paged.cache = KvCache::hnd(plane(k_memory, {p, h, s, dk}), plane(v_memory, {p, h, s, dv}));
    } else {
      paged.cache = KvCache::nhd(plane(k_memory, {p, s, h, dk}), plane(v_memory, {p, s, h, dv}));
    }
    if (t == DType::kI8) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      k_scales.assign(static_cast<size_t>(p * s * h), nan);
      v_scales.assign(static_cast<size_t>((p * s + 3) * h), nan);
      paged.cache = paged.cache.with_scales(
          TensorView(k_scales.data(), DType::kF32, {p, s, h}),
          TensorView(v_scales.data(), DType::kF32, {p, s, h}, {s, 1, p * s + 3}));
    }
    table_.max_pages = 1;
    for (const auto& request : shape.requests) {
      table_.max_pages = std::max(table_.max_pages, pages_for(request.second, s));
      table_.cache_seqlens.push_back(request.second);
    }
    table_.page_table.assign(shape.requests.size() * static_cast<size_t>(table_.max_pages), -7);
    for (size_t r = 0; r < shape.requests.size(); ++r) {
      for (int64_t page = 0; page < pages_for(kv_len(r), s); ++page) {
        table_.page_table[r * static_cast<size_t>(table_.max_pages) + static_cast<size_t>(page)] =
            --pages;
      }
    }
    csr_ = to_csr(table_.view(), shape.page_size);
    paged.pages = shape.csr ? csr_.view() : table_.view();
  }

  std::vector<int32_t> cu_q_ = {0}, cu_k_ = {0};
  std::vector<float> sinks_;
  std::vector<uint8_t> mask_;
  std::vector<int64_t> mask_indptr_;
  DenseTable table_;
  CsrTable csr_;
};

}  // namespace shadowgraph
