// What the driver of sparse attention (sparse_attention.cc) hands to the instruction-set units
// (kernels/isa/*_sparse.cc): plain data, f32, rows padded to whole vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shadowgraph/layers/sparse.h"

namespace shadowgraph {

/// Keys that are taken together: a token's first 64, its next 64, and so on.
constexpr int kSparseTile = 64;  // edge: keys

/// One latent, as f32 [dim, padded to 16].
struct LatentRow {
  LatentLayout layout = LatentLayout::kRows;
  DType dtype = DType::kF32;          // of kRows
  int64_t dim = 0;                    // of kRows
  const std::byte* data = nullptr;    // its elements or codes
  const std::byte* scales = nullptr;  // of kV4
  float* to = nullptr;
};

/// A tile of keys, and what some heads of one token have seen so far:
///
///   p_j := 2^(scale <q, k_j> - m), o := o 2^(m_before - m) + sum_j p_j k_j
struct SparseTile {
  int32_t heads = 0, keys = 0;
  int32_t dim_k = 0, dim_v = 0;  // padded to 16, dim_v <= dim_k
  const float* q = nullptr;      // [heads, dim_k]
  const float* k = nullptr;      // [kSparseTile, dim_k]
  float scale = 0;               // in base 2
  float* m = nullptr;            // [heads]: the largest logit
  float* d = nullptr;            // [heads, 16]: sums of weights, by lane
  float* o = nullptr;            // [heads, dim_v]
  float* p = nullptr;            // [heads, kSparseTile]
};

struct SparseIsa {
  void (*load)(const LatentRow&);
  void (*attend)(const SparseTile&);
  float (*sum)(const float* lanes);  // of 16
};

extern const SparseIsa kGenericSparse;
extern const SparseIsa kAvx2Sparse;
extern const SparseIsa kAvx512Sparse;

/// By name of an instruction set that this machine has; empty: the current default.
const SparseIsa& sparse_isa(std::string_view name);

}  // namespace shadowgraph
