#include <algorithm>
#include <cassert>
#include <utility>

#include "attn/page_table.h"
#include "io/flashinfer_case.h"
#include "io/flashinfer_swa.h"
#include "io/vector_families.h"

namespace shadowgraph {
namespace {

void record_gpu(CaseReader& reader, const FlashInferCase& c, KernelVector* vector) {
  read_recorded(reader, c, "", recorded_by(c.kind->kernel, "gpu"), vector);
}

void read_paged(CaseReader& reader, const FlashInferCase& c, KernelVector* vector) {
  vector->calls.emplace_back(read_paged_call(reader, c));
  record_gpu(reader, c, vector);
}

void read_ragged(CaseReader& reader, const FlashInferCase& c, KernelVector* vector) {
  const std::vector<int32_t> kv_indptr = indptr_of(c.kv_lens);
  const int64_t keys = kv_indptr.back(), heads = c.params.num_kv_heads;
  RaggedAttention call;
  call.q = read_query(reader, c);
  call.k = reader.tensor("k", {c.kv_dtype}, {keys, heads, c.params.head_dim_qk});
  call.v = reader.tensor("v", {c.kv_dtype}, {keys, heads, c.params.head_dim_vo});
  call.cu_seqlens_q = reader.indices("qo_indptr", indptr_of(c.q_lens));
  call.cu_seqlens_k = reader.indices("kv_indptr", kv_indptr);
  call.params = c.params;
  vector->calls.emplace_back(call);
  record_gpu(reader, c, vector);
}

/// pairs per byte: 8 packed, 1 as bools.
CustomMask read_mask(CaseReader& reader, const FlashInferCase& c, CustomMask::Kind kind,
                     std::string_view name, int64_t pairs_per_byte) {
  std::vector<int64_t> indptr(1, 0);
  for (size_t r = 0; r < c.q_lens.size(); ++r) {
    const int64_t pairs = int64_t{c.q_lens[r]} * c.kv_lens[r];
    indptr.push_back(indptr.back() + (pairs + pairs_per_byte - 1) / pairs_per_byte);
  }
  return {kind, reader.bytes(name, indptr.back()), reader.own(std::move(indptr))};
}

void check_same_mask(CaseReader& reader, const CustomMask& packed, const CustomMask& bools) {
  for (size_t r = 0; r + 1 < bools.mask_indptr.size(); ++r) {
    const int64_t first = bools.mask_indptr[r];
    for (int64_t pair = 0; pair < bools.mask_indptr[r + 1] - first; ++pair) {
      const int64_t byte = packed.mask_indptr[r] + pair / 8;
      const bool bit = packed.data[static_cast<size_t>(byte)] >> (pair % 8) & 1;
      if (bit == (bools.data[static_cast<size_t>(first + pair)] != 0)) continue;
      return reader.bad_tensor(
          "packed_mask", "the bits of custom_mask",
          "another bit for pair " + std::to_string(pair) + " of request " + std::to_string(r),
          byte);
    }
  }
}

/// Two calls with one answer: the mask as bits, and the same mask with a byte a pair.
void read_custom_mask(CaseReader& reader, const FlashInferCase& c, KernelVector* vector) {
  PagedAttention packed = read_paged_call(reader, c);
  // As recorded: the mask takes the place of causal masking, while the window holds beside it. With
  // causal kept, rows lose keys that the recorded ones saw; with the window dropped, they gain
  // some.
  packed.params.causal = false;
  PagedAttention bools = packed;
  packed.params.custom_mask = read_mask(reader, c, CustomMask::Kind::kPacked, "packed_mask", 8);
  bools.params.custom_mask = read_mask(reader, c, CustomMask::Kind::kBool, "custom_mask", 1);
  if (reader.ok()) check_same_mask(reader, packed.params.custom_mask, bools.params.custom_mask);
  vector->calls = {packed, bools};
  record_gpu(reader, c, vector);
  read_recorded(reader, c, "", recorded_by(c.kind->kernel, "bool_mask", 1), vector);
}

void read_merge(CaseReader& reader, const FlashInferCase& c, KernelVector* vector) {
  const int64_t states = reader.integer("num_states", 1, kMaxVectorTokens),
                heads = c.params.num_qo_heads;
  if (!reader.ok()) return;
  MergeStates<LseBase::kLog2> call;
  call.v = reader.tensor("v", {c.dtype}, {c.rows, states, heads, c.params.head_dim_vo});
  call.s = reader.tensor("s", {DType::kF32}, {c.rows, states, heads});
  vector->calls.emplace_back(call);
  record_gpu(reader, c, vector);
}

/// [a, b, n] and [a, b, m] side by side: [a, b, n + m].
ConstTensorView concat(CaseReader& reader, const ConstTensorView& left,
                       const ConstTensorView& right) {
  if (!left.defined() || !right.defined()) return {};
  const int64_t rows = left.shape[0] * left.shape[1],
                item = static_cast<int64_t>(size_of(left.dtype));
  const int64_t n = left.shape[2] * item, m = right.shape[2] * item;
  std::vector<std::byte> both;
  both.reserve(static_cast<size_t>(rows * (n + m)));
  for (int64_t row = 0; row < rows; ++row) {
    both.insert(both.end(), left.data + row * n, left.data + (row + 1) * n);
    both.insert(both.end(), right.data + row * m, right.data + (row + 1) * m);
  }
  return {reader.own(std::move(both)).data(),
          left.dtype,
          {left.shape[0], left.shape[1], left.shape[2] + right.shape[2]}};
}

/// Latent and rope parts lie in tensors of their own; one latent cache takes them side by side.
void read_mla(CaseReader& reader, const FlashInferCase& c, KernelVector* vector) {
  const int64_t heads = c.params.num_qo_heads, ckv = c.params.head_dim_vo,
                kpe = c.params.head_dim_qk - ckv;
  const ConstTensorView q_nope = reader.tensor("q_nope", {c.dtype}, {c.rows, heads, ckv});
  const ConstTensorView q_pe = reader.tensor("q_pe", {c.dtype}, {c.rows, heads, kpe});
  const ConstTensorView latent = reader.tensor("ckv_cache", {c.dtype}, {-1, c.page_size, ckv});
  const ConstTensorView rope = reader.tensor(
      "kpe_cache", {c.dtype}, {latent.defined() ? latent.shape[0] : -1, c.page_size, kpe});
  PagedAttention call;
  call.q = concat(reader, q_nope, q_pe);
  if (reader.ok()) {
    call.cache =
        KvCache::mla_latent(cache_view(concat(reader, latent, rope)), c.params.head_dim_vo);
  }
  call.pages = read_csr(reader, c, "", c.kv_lens);
  reader.indices("kv_len", c.kv_lens);
  std::vector<int32_t> last_page_len;
  for (const int32_t n : c.kv_lens) {
    last_page_len.push_back(static_cast<int32_t>(last_page_len_for(n, c.page_size)));
  }
  call.pages.last_page_len = reader.own(std::move(last_page_len));
  const std::span<const int32_t> qo_indptr = reader.indices("qo_indptr", indptr_of(c.q_lens));
  if (c.kind->lengths != Lengths::kDecode) call.cu_seqlens_q = qo_indptr;
  call.params = c.params;
  vector->calls.emplace_back(call);
  record_gpu(reader, c, vector);
}

constexpr FlashInferKind kKinds[] = {
    {"paged_prefill", "flashinfer_prefill", Lengths::kVarlen, read_paged},
    {"ragged_prefill", "flashinfer_prefill", Lengths::kVarlen, read_ragged},
    {"decode", "flashinfer_decode", Lengths::kDecode, read_paged},
    {"custom_mask", "flashinfer_prefill", Lengths::kVarlen, read_custom_mask},
    {"merge", "flashinfer_merge", Lengths::kNone, read_merge},
    {"swa_merge", "flashinfer_prefill", Lengths::kExtend, read_swa_merge},
    {"mla_decode", "flashinfer_mla", Lengths::kDecode, read_mla},
    {"mla_extend", "flashinfer_mla", Lengths::kVarlen, read_mla},
    {"fp8_decode", "flashinfer_decode", Lengths::kDecode, read_paged},
    {"fp8_prefill", "flashinfer_prefill", Lengths::kVarlen, read_paged},
    {"hnd_prefill", "flashinfer_prefill", Lengths::kVarlen, read_paged},
    {"window_decode_", "flashinfer_decode", Lengths::kDecode, read_paged},
};

const FlashInferKind* find_kind(std::string_view name) {
  const auto is_it = [&](const FlashInferKind& kind) {
    return kind.name.ends_with('_') ? name.starts_with(kind.name) : name == kind.name;
  };
  const auto* at = std::find_if(std::begin(kKinds), std::end(kKinds), is_it);
  return at == std::end(kKinds) ? nullptr : at;
}

}  // namespace

bool is_flashinfer_kind(std::string_view kind) { return find_kind(kind) != nullptr; }

void read_flashinfer_vector(CaseReader& reader, KernelVector* vector) {
  const std::string name = reader.text("kind");
  const FlashInferKind* kind = find_kind(name);
  assert(kind != nullptr);  // is_flashinfer_kind
  const FlashInferCase c = read_flashinfer_case(reader, *kind);
  if (!reader.ok()) return;
  vector->kind = name;
  vector->dtype = c.dtype;
  kind->read(reader, c, vector);
  // A reference is there in the later files only.
  const int64_t heads = c.params.num_qo_heads;
  if (reader.has_tensor("out_ref")) {
    vector->out_ref =
        reader.tensor("out_ref", {DType::kF32}, {c.rows, heads, c.params.head_dim_vo});
  }
  if (reader.has_tensor("lse_ref")) {
    vector->lse_ref = reader.tensor("lse_ref", {DType::kF64}, {c.rows, heads});
  }
}

}  // namespace shadowgraph
