// FlashInfer: paged and packed keys, latents, custom masks, merges.
#include <algorithm>

#include "attn/page_table.h"
#include "io/recorded/flashinfer_batch.h"
#include "io/recorded/recorded_cases.h"

namespace shadowgraph {
namespace {

void finish(CaseReader& reader, const AnyCall& call, RecordedCase* c) {
  c->attention().calls.push_back(call);
  read_log2_answer(reader, "", &c->gpu());
  read_references(reader, {}, c);
}

/// pairs per byte: 8 packed, 1 as bools.
CustomMask read_mask(CaseReader& reader, const FlashInferBatch& b, CustomMask::Kind kind,
                     std::string_view name, int64_t pairs_per_byte) {
  const int32_t most = b.params.num_qo_heads;
  const int32_t heads = reader.has("mask_heads") ? reader.integer("mask_heads", 1, most) : 1;
  if (heads != 1 && heads != most)
    reader.bad_field("mask_heads", "1, or num_qo_heads", std::to_string(heads));
  std::vector<int64_t> indptr(1, 0);
  for (size_t r = 0; r < b.q_lens.size(); ++r) {
    const int64_t pairs = int64_t{heads} * b.q_lens[r] * b.kv_lens[r];
    indptr.push_back(indptr.back() + (pairs + pairs_per_byte - 1) / pairs_per_byte);
  }
  return {kind, reader.bytes(name, std::to_string(indptr.back())), reader.own(std::move(indptr)),
          heads};
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

}  // namespace

void read_flashinfer_paged(CaseReader& reader, RecordedCase* c) {
  const FlashInferBatch b = read_flashinfer_batch(reader, FlashInferKind::kPaged, c);
  if (reader.ok()) finish(reader, read_paged_call(reader, b, *c), c);
}

void read_flashinfer_ragged(CaseReader& reader, RecordedCase* c) {
  const FlashInferBatch b = read_flashinfer_batch(reader, FlashInferKind::kPacked, c);
  if (!reader.ok()) return;
  constexpr std::string_view kPaddedKeys = "kv_indptr_padded";
  bind_packed(reader, "keys", kPaddedKeys, b.kv_lens);
  RaggedAttention call;
  call.params = b.params;
  read_terms(reader, b.kv_lens, &call.params);
  call.q = read_rows(reader, {}, "q", {c->dtype}, "dim");
  call.k = read_keys(reader, "k", b.kv_dtype, "keys kv_heads dim");
  call.v = read_keys(reader, "v", b.kv_dtype, "keys kv_heads dim_v");
  call.k_scale = b.k_scale, call.v_scale = b.v_scale;
  AttentionTerms& t = call.params.terms;
  call.cu_seqlens_q = read_offsets(reader, "qo_indptr", kPaddedQueries, b.q_lens, &t.seqused_q);
  call.cu_seqlens_k = read_offsets(reader, "kv_indptr", kPaddedKeys, b.kv_lens, &t.seqused_k);
  finish(reader, call, c);
}

/// Two calls with one answer: the mask as bits, and the same mask with a byte a pair.
void read_flashinfer_mask(CaseReader& reader, RecordedCase* c) {
  const FlashInferBatch b = read_flashinfer_batch(reader, FlashInferKind::kPaged, c);
  if (!reader.ok()) return;
  PagedAttention packed = read_paged_call(reader, b, *c);
  // As recorded: the mask takes the place of causal masking, while the window holds beside it. With
  // causal kept, rows lose keys that the recorded ones saw; with the window dropped, they gain
  // some.
  packed.params.causal = false;
  PagedAttention bools = packed;
  packed.params.custom_mask = read_mask(reader, b, CustomMask::Kind::kPacked, "packed_mask", 8);
  bools.params.custom_mask = read_mask(reader, b, CustomMask::Kind::kBool, "custom_mask", 1);
  if (reader.ok()) check_same_mask(reader, packed.params.custom_mask, bools.params.custom_mask);
  finish(reader, packed, c);
  c->attention().calls.emplace_back(bools);
  c->recorded.push_back(c->gpu());
  c->recorded[1].name = "bool_mask", c->recorded[1].call = 1;
}

/// Only v tells how many rows are merged.
void read_flashinfer_merge(CaseReader& reader, RecordedCase* c) {
  read_flashinfer_batch(reader, FlashInferKind::kMerge, c);
  reader.integer("num_states", 1, kMaxVectorTokens);
  if (!reader.ok()) return;
  MergeStates<LseBase::kLog2> call;
  call.v = reader.tensor("v", {c->dtype}, "rows num_states heads dim_v");
  call.s = reader.f32("s", "rows num_states heads");
  c->gpu().empty_mark.nan_out = true;  // many empty states, version 0.3.1
  finish(reader, call, c);
}

/// Latent and rope parts lie in tensors of their own; one latent cache takes them side by side.
void read_flashinfer_mla(CaseReader& reader, RecordedCase* c) {
  const FlashInferBatch b = read_flashinfer_batch(reader, FlashInferKind::kLatent, c);
  if (!reader.ok()) return;
  const auto read = [&](const char* name, DType dtype, const char* shape) {
    return read_keys(reader, name, dtype, shape);
  };
  const ConstTensorView q_nope = read("q_nope", c->dtype, "rows heads head_dim_ckv");
  const ConstTensorView q_pe = read("q_pe", c->dtype, "rows heads head_dim_kpe");
  const ConstTensorView latent = read("ckv_cache", b.kv_dtype, "pages page_size head_dim_ckv");
  const ConstTensorView rope = read("kpe_cache", b.kv_dtype, "pages page_size head_dim_kpe");
  PagedAttention call;
  call.q = side_by_side(reader, q_nope, q_pe);
  if (reader.ok())
    call.cache =
        KvCache::mla_latent(cache_view(side_by_side(reader, latent, rope)), b.params.head_dim_vo);
  call.params = b.params;
  read_terms(reader, b.kv_lens, &call.params);
  call.cache.k_scale = b.k_scale, call.cache.v_scale = b.v_scale;
  call.pages = read_csr(reader, b, "", "", b.kv_lens);
  reader.indices("kv_len", b.kv_lens);
  std::vector<int32_t> last_page_len;
  for (const int32_t n : b.kv_lens)
    last_page_len.push_back(static_cast<int32_t>(last_page_len_for(n, b.page_size)));
  call.pages.last_page_len = reader.own(std::move(last_page_len));
  const std::span<const int32_t> qo_indptr =
      read_offsets(reader, "qo_indptr", kPaddedQueries, b.q_lens, &call.params.terms.seqused_q);
  if (!b.decode || !call.params.terms.seqused_q.empty()) call.cu_seqlens_q = qo_indptr;
  finish(reader, call, c);
}

}  // namespace shadowgraph
