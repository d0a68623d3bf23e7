// What the driver of linear attention (linear_attention.cc) hands to the instruction-set units
// (kernels/isa/*_linear.cc): plain data, f32, rows padded with zeros to whole vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shadowgraph/dtype.h"

namespace shadowgraph {

/// Tokens of one row, one value head, one after the other. With a = diag(decay) and both dots taken
/// of the state as it was:
///
///   r := S (a k)            of the delta rule, else 0
///   u := beta (v - r)
///   out := S (a q) + u (k.q)
///   S := S a + u k^T
///
/// which is the recurrence, S read once a token. Strides in floats; those of token arrays are the
/// padded dims.
struct RecurUnit {
  bool delta = false;
  int32_t tokens = 0;
  int32_t dim_k = 0, dim_v = 0;      // padded to 16, but for the one that counts the state's rows
  int64_t k_stride = 0;              // dim_k padded to 16
  const float* k = nullptr;          // [tokens, k_stride]
  const float* decayed_k = nullptr;  // [tokens, k_stride]: a k
  const float* decayed_q = nullptr;  // [tokens, k_stride]: a q
  const float* v = nullptr;          // [tokens, dim_v]
  const float* decay = nullptr;      // [tokens, decay_step]: one for all channels, or dim_k
  int64_t decay_step = 1;
  const float* beta = nullptr;  // [tokens]
  const float* kq = nullptr;    // [tokens]: k.q
  float* state = nullptr;       // rows of values [dim_v, dim_k], or of keys [dim_k, dim_v]
  int64_t state_stride = 0;     // between rows
  float* out = nullptr;         // [tokens, dim_v]
};

/// Tokens' q or k of one head, made ready: times scale, over sqrt(sum of squares + 1e-6) where
/// l2norm; in double, rounded once.
struct VectorUnit {
  const std::byte* from = nullptr;
  int64_t stride = 0;  // bytes from token to token
  DType dtype = DType::kF32;
  int32_t tokens = 0, dim = 0;
  double scale = 1;
  bool l2norm = false;
  float* to = nullptr;  // [tokens, wide], wide: dim padded to 16 with zeros
};

/// dots[t] = x_t.y_t, summed in double; x, y: [tokens, wide].
struct TokenDotsUnit {
  const float *x = nullptr, *y = nullptr;
  int32_t tokens = 0, wide = 0;
  float* dots = nullptr;
};

/// What one token's step takes of its decays: q and k as `vectors` left them.
struct TokenUnit {
  const float *q = nullptr, *k = nullptr;  // [dim_k], padded to 16 with zeros
  // Decays of channels, natural: [dim_k]; nullptr: `decay` holds one for all
  const float* log_decay = nullptr;
  int32_t dim_k = 0;
  float* decay = nullptr;                            // of channels out, padded to 16
  float *decayed_q = nullptr, *decayed_k = nullptr;  // out, padded to 16
};

/// Rows of a matrix in a tensor and in f32; what pads a row of the latter is 0.
struct RowsUnit {
  std::byte* at = nullptr;
  DType dtype = DType::kF32;
  int64_t stride = 0;  // elements between rows
  int64_t rows = 0, columns = 0;
  float* floats = nullptr;
  int64_t floats_stride = 0;
};

/// What was read, to out: + skip v where there is a skip, rounded to its type.
struct FinishUnit {
  const float *read = nullptr, *v = nullptr;  // [dim], padded to 16
  const float* skip = nullptr;                // one, or nullptr
  int32_t dim = 0;
  DType dtype = DType::kF32;
  std::byte* out = nullptr;
};

/// Tokens that the chunked form takes together, from each row's first on; of channels' own decays.
inline constexpr int32_t kChunkTokens = 32, kChannelChunkTokens = 16;  // edge: tokens
/// A panel has so many values, or tokens, side by side; its rows are the other axis.
inline constexpr int32_t kPanelLanes = 32;  // edge: channels

/// A head's state between a tensor and panels [ceil(dim_v / 32)][wide_k][32], padded with zeros.
struct PanelUnit {
  std::byte* at = nullptr;
  DType dtype = DType::kF32;
  bool by_value = true;  // the tensor's rows are values
  int64_t stride = 0;    // elements between its rows
  int32_t dim_k = 0, dim_v = 0;
  float* panels = nullptr;
};

/// Outs of a chunk's tokens at one head: read + skip v, rounded; both in panels as values are.
struct FinishChunkUnit {
  const float *read = nullptr, *v = nullptr;
  const float* skip = nullptr;  // one, or nullptr
  int32_t tokens = 0, dim_v = 0;
  DType dtype = DType::kF32;
  std::byte* out = nullptr;
  int64_t stride = 0;  // bytes from token to token
};

/// Rows of bytes that are used soon, far from each other: asked for while a chunk is computed.
struct SoonUnit {
  const std::byte* from = nullptr;
  int64_t stride = 0;           // bytes
  int32_t rows = 0, bytes = 0;  // of each row
};

/// Tokens' values [tokens, dim_v] to panels [ceil(dim_v / 32)][kChunkTokens][32].
struct ValuesUnit {
  const std::byte* from = nullptr;
  int64_t stride = 0;  // bytes from token to token
  DType dtype = DType::kF32;
  int32_t tokens = 0, dim_v = 0;
  float* panels = nullptr;
};

/// k_i.k_j and q_i.k_j of a chunk, for j <= i; with channels' decays: of k_i G_ij, and what they
/// make of keys and queries. Token arrays are [tokens, wide_k], dots [tokens, kChunkTokens].
struct DotsUnit {
  bool delta = false;  // else no key's dots
  int32_t tokens = 0, wide_k = 0;
  const float *keys = nullptr, *queries = nullptr;
  float* across = nullptr;  // scratch, [wide_k, 32]
  float *key_dots = nullptr, *query_dots = nullptr;
  // Decays of channels, [tokens, dim_k]; nullptr: channels have no decays of their own
  const float* log_decay = nullptr;
  int64_t log_decay_stride = 0;  // elements from token to token
  int32_t dim_k = 0;
  float* decay = nullptr;                                 // scratch, [tokens, wide_k]
  float *start_keys = nullptr, *start_queries = nullptr;  // G_i k_i, G_i q_i
  float* end_keys = nullptr;                              // G_Ci k_i
  float* last_decay = nullptr;                            // G_C: [wide_k]
};

/// Decays of a chunk between tokens, of one value head, and what stands in its triangles:
///   minus_l = -beta_i G_ij (k_i.k_j), reads = G_ij (q_i.k_j)
struct TrianglesUnit {
  bool delta = false;
  int32_t tokens = 0;
  // [tokens]: sums of log_decay / ln 2 from the chunk's first token on; nullptr: the dots have them
  const double* log2_decay = nullptr;
  const float* beta = nullptr;
  const float *key_dots = nullptr, *query_dots = nullptr;
  float *minus_l = nullptr, *reads = nullptr;
  float *from_start = nullptr, *to_end = nullptr;  // [kChunkTokens]: G_i, G_Ci
};

/// The tokens of a chunk taken together, at one value head (check/bounds/chunk_bound.h has the
/// algebra):
///
///   (I + L) U = beta (V - G (K S))    of the delta rule; U = beta V of the other
///   out := G (Q S) + reads U
///   S := last_decay S + K^T (to_end U)
///
/// Each number is one chain of fused multiply-adds over channels, then over tokens, ascending.
struct ChunkUnit {
  bool delta = false;
  int32_t tokens = 0, wide_k = 0, panels = 0;
  const float *keys = nullptr, *queries = nullptr, *end_keys = nullptr;  // [tokens, wide_k]
  const float *from_start = nullptr, *to_end = nullptr, *beta = nullptr;
  const float* last_decay = nullptr;                 // [wide_k]
  const float *minus_l = nullptr, *reads = nullptr;  // [tokens, kChunkTokens]
  const float* values = nullptr;                     // panels [kChunkTokens][32]
  float *u = nullptr, *end_u = nullptr;              // scratch, a panel each
  float* state = nullptr;                            // panels [wide_k][32]
  float* out = nullptr;                              // panels [kChunkTokens][32]
  SoonUnit soon[5];
};

struct LinearIsa {
  void (*recur_values)(const RecurUnit&);  // the state's rows are values
  void (*recur_keys)(const RecurUnit&);    // the state's rows are keys
  void (*vectors)(const VectorUnit&);
  void (*token_dots)(const TokenDotsUnit&);
  void (*token)(const TokenUnit&);
  void (*load_rows)(const RowsUnit&);
  void (*save_rows)(const RowsUnit&);
  void (*finish)(const FinishUnit&);
  void (*load_state)(const PanelUnit&);
  void (*save_state)(const PanelUnit&);
  void (*values)(const ValuesUnit&);
  void (*dots)(const DotsUnit&);
  void (*triangles)(const TrianglesUnit&);
  void (*chunk)(const ChunkUnit&);
  void (*finish_chunk)(const FinishChunkUnit&);
};

extern const LinearIsa kGenericLinear;
extern const LinearIsa kAvx2Linear;
extern const LinearIsa kAvx512Linear;

/// By name of an instruction set that this machine has; empty: the current default.
const LinearIsa& linear_isa(std::string_view name);

}  // namespace shadowgraph
