// KernelVector: one recorded case of somebody else's kernel, as plain data: the calls that it
// answers, what the kernel returned, and the float64 result beside it where the file has one.
// src/io reads them, src/check judges them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "shadowgraph/attention.h"
#include "shadowgraph/sparse.h"

namespace shadowgraph {

using AnyCall =
    std::variant<PagedAttention, RaggedAttention, MergeStates<LseBase::kLog2>, SparseAttention>;

/// What a kernel returned for one of the calls.
struct Recorded {
  std::string name;  // "gpu", "mask_merged": the tensor it comes from, without _out / _lse
  std::string
      kernel;  // whose arithmetic: a line of src/check/arithmetics.inc, "fa2", "flashinfer_prefill"
  size_t call = 0;      // index into KernelVector::calls
  ConstTensorView out;  // [rows, num_qo_heads, head_dim_vo]
  ConstTensorView lse;  // [rows, num_qo_heads] by strides, f32; may be undefined
  LseBase lse_base = LseBase::kNatural;
  ConstTensorView max_logits;  // [rows, num_qo_heads], f32, natural; may be undefined
  std::string known_wrong;     // not empty: recorded as a wrong variant on purpose, and why
                               // ("sglang#26513 ...")
};

/// Keys that the recorded kernel stored before it attended.
struct AppendedKeys {
  StoreKv store;                     // into the cache as it was before: only copies are written
  ConstTensorView k_after, v_after;  // NHD: the whole cache as the kernel left it
};

struct KernelVector {
  std::string id;             // "case007"
  std::string kind;           // as in the file: "decode", "swa_merge", ...
  DType dtype = DType::kF32;  // of q
  // Inputs only: out and lse of a call are not set. calls[0] is what the case is about
  std::vector<AnyCall> calls;
  std::optional<AppendedKeys> appended;  // paged calls read the cache that our store makes
  std::vector<Recorded> recorded;
  ConstTensorView
      out_ref;  // of calls[0]: f32 [rows, heads, dv] (rounded from float64); may be undefined
  ConstTensorView
      lse_ref;  // of calls[0]: f64 [rows, heads] by strides, natural log; may be undefined
  ConstTensorView max_logits_ref;  // of calls[0], f64 as lse_ref; may be undefined
  LseSink lse_ref_sink = LseSink::kExcluded;
  ConstTensorView latents_ref;  // of calls[0].keys: [slots, head_dim], as its packed ones are read;
                                // may be undefined
  std::vector<std::shared_ptr<const void>> storage;  // keeps the memory behind the views
};

}  // namespace shadowgraph
