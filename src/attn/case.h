// Case: one experiment with a kernel as plain data. Everything that a run needs follows from it, so
// the same Case gives the same bits on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attn/linear_case.h"
#include "attn/sparse_case.h"
#include "shadowgraph/attention.h"
#include "shadowgraph/batch.h"

namespace shadowgraph {

/// What q, K and V hold; of calls over states in brackets; of the sparse family the same, see
/// fuzz/sparse_data.cc.
enum class CaseData : uint8_t {
  // T0: q = 0, V small integers: every weight is exactly 1 [small integers, decays 1 and 0]
  kUniform,
  // T0: a few keys score far above the rest: weights exactly 1 and 0 [the same; q has two ones]
  kSelector,
  kRandom,  // T1: uniform in [-1, 1)
  kPeaked,  // T1: the same with q eight times as large [and decays near 1]
};

/// Is the result known bit for bit (T0)?
constexpr bool is_exact(CaseData d) { return d == CaseData::kUniform || d == CaseData::kSelector; }

/// kLinear, kSparse: one of the calls of Case::linear, of Case::sparse.
enum class CaseKernel : uint8_t {
  kDecodePaged,
  kPrefillPaged,
  kPrefillRagged,
  kMergeStates,
  kLinear,
  kSparse
};

/// Has it queries over a cache?
constexpr bool is_attention(CaseKernel k) { return k <= CaseKernel::kPrefillRagged; }

/// kMlaLatent: one KV head, whose V is the first head_dim_vo of its K, in the same memory.
/// kPanels: page_size is a multiple of 16.
enum class CaseLayout : uint8_t { kNhd, kHnd, kStackedNhd, kStackedHnd, kMlaLatent, kPanels };

struct Case {
  CaseKernel kernel = CaseKernel::kDecodePaged;
  CaseData data = CaseData::kUniform;
  uint64_t seed = 0;                    // of the values
  std::vector<RequestExtent> requests;  // merges: one entry, q_len = rows, kv_len = states
  int32_t num_qo_heads = 1, num_kv_heads = 1, head_dim_qk = 16, head_dim_vo = 16;
  // kv_dtype i8 is not for kPrefillRagged, where scales have no place
  DType q_dtype = DType::kF32, kv_dtype = DType::kF32, out_dtype = DType::kF32;
  float k_scale = 1, v_scale = 1;

  float sm_scale = 1;
  bool causal = false;
  int32_t window_left = -1, window_right = -1;
  float logits_soft_cap = 0;
  bool sinks = false;
  CustomMask::Kind mask = CustomMask::Kind::kNone;
  LseSink lse_sink = LseSink::kExcluded;
  LseBase lse_base = LseBase::kNatural;  // merges

  // How it lies in memory. No result may depend on these.
  int32_t page_size = 1;
  CaseLayout layout = CaseLayout::kNhd;
  PageTable::Form table = PageTable::Form::kDense;
  bool through_store_kv = false;  // K and V are written by store_kv instead of by hand

  // Of kLinear, of kSparse, which have nothing else but data and seed
  LinearCase linear;
  SparseCase sparse;

  /// One line a person can read.
  std::string to_string() const;
};

}  // namespace shadowgraph
