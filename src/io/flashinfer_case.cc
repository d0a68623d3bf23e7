#include "io/flashinfer_case.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "attn/page_table.h"

namespace shadowgraph {
namespace {

void read_heads(CaseReader& reader, FlashInferCase* c) {
  AttentionParams& p = c->params;
  p.num_qo_heads = reader.integer("num_qo_heads", 1, kMaxVectorTokens);
  if (reader.has("head_dim_ckv")) {  // MLA: every head reads the one latent
    p.num_kv_heads = 1;
    p.head_dim_vo = reader.integer("head_dim_ckv", 1, INT16_MAX);
    p.head_dim_qk = p.head_dim_vo + reader.integer("head_dim_kpe", 1, INT16_MAX);
    return;
  }
  p.num_kv_heads = reader.integer("num_kv_heads", 1, kMaxVectorTokens);
  p.head_dim_qk = p.head_dim_vo = reader.integer("head_dim", 1, kMaxVectorTokens);
}

void read_layout(CaseReader& reader, FlashInferCase* c) {
  c->dtype = reader.has("dtype")
                 ? reader.dtype("dtype")
                 : reader.tensor_dtype(c->kind->lengths == Lengths::kNone ? "v" : "q");
  c->kv_dtype = reader.has("kv_dtype") ? reader.dtype("kv_dtype") : c->dtype;
  if (is_fp8(c->dtype)) reader.bad_field("dtype", "f16, bf16 or f32", "e4m3fn");
  if (reader.has("k_scale")) c->k_scale = reader.positive("k_scale");
  if (reader.has("v_scale")) c->v_scale = reader.positive("v_scale");
  if (!reader.has("kv_layout")) return;
  const std::string layout = reader.text("kv_layout");
  c->hnd = layout == "HND";
  if (!c->hnd && layout != "NHD") reader.bad_field("kv_layout", "NHD or HND", "another");
}

/// After batch is known.
void read_lengths(CaseReader& reader, FlashInferCase* c) {
  const auto batch = static_cast<size_t>(c->batch);
  switch (c->kind->lengths) {
    case Lengths::kNone:  // only v tells how many rows are merged
      c->rows =
          reader.tensor("v", {c->dtype}, {-1, -1, c->params.num_qo_heads, c->params.head_dim_vo})
              .shape[0];
      return;
    case Lengths::kDecode:
      c->kv_lens = reader.lengths("kv_lens", c->batch);
      if (!reader.ok()) return;
      c->q_lens.assign(batch, 1);
      if (reader.has("q_lens") && reader.lengths("q_lens", c->batch) != c->q_lens && reader.ok()) {
        reader.bad_field("q_lens", "1 everywhere in a decode batch", "other lengths");
      }
      break;
    case Lengths::kVarlen:
      c->q_lens = reader.lengths("q_lens", c->batch);
      c->kv_lens = reader.lengths("kv_lens", c->batch);
      break;
    case Lengths::kExtend:
      c->q_lens = reader.lengths("extend_lens", c->batch);
      c->prefix_lens = reader.lengths("prefix_lens", c->batch);
      if (!reader.ok()) return;
      std::transform(c->q_lens.begin(), c->q_lens.end(), c->prefix_lens.begin(),
                     std::back_inserter(c->kv_lens), std::plus<>());
      break;
  }
  c->rows = std::accumulate(c->q_lens.begin(), c->q_lens.end(), int64_t{0});
}

/// A cache plane; fp8 is stored as bytes.
ConstTensorView read_plane(CaseReader& reader, const FlashInferCase& c, std::string_view name) {
  const int64_t heads = c.params.num_kv_heads, dim = c.params.head_dim_qk;
  const int64_t second = c.hnd ? heads : c.page_size, third = c.hnd ? c.page_size : heads;
  if (!is_fp8(c.kv_dtype)) return reader.tensor(name, {c.kv_dtype}, {-1, second, third, dim});
  ConstTensorView plane = reader.tensor(name, {DType::kU8, c.kv_dtype}, {-1, second, third, dim});
  plane.dtype = c.kv_dtype;
  return plane;
}

}  // namespace

FlashInferCase read_flashinfer_case(CaseReader& reader, const FlashInferKind& kind) {
  FlashInferCase c;
  c.kind = &kind;
  read_heads(reader, &c);
  read_layout(reader, &c);
  c.batch = reader.integer("batch", 0, kMaxVectorTokens);
  c.page_size = reader.integer("page_size", 1, kMaxVectorTokens);
  c.params.sm_scale = reader.positive("sm_scale");
  if (reader.has("causal")) c.params.causal = reader.flag("causal");
  if (reader.has("window_left"))
    c.params.window_left = reader.integer("window_left", -1, INT32_MAX);
  if (reader.has("softcap")) c.params.logits_soft_cap = reader.not_negative("softcap");
  reader.integer("lse_base", 2, 2);
  if (reader.ok()) read_lengths(reader, &c);  // lists of batch entries
  return c;
}

ConstTensorView read_query(CaseReader& reader, const FlashInferCase& c) {
  return reader.tensor("q", {c.dtype}, {c.rows, c.params.num_qo_heads, c.params.head_dim_qk});
}

PageTable read_csr(CaseReader& reader, const FlashInferCase& c, const std::string& prefix,
                   std::span<const int32_t> kv_lens) {
  std::vector<int32_t> pages;
  for (const int32_t n : kv_lens) pages.push_back(static_cast<int32_t>(pages_for(n, c.page_size)));
  const std::vector<int32_t> indptr = indptr_of(pages);
  return PageTable::csr(reader.indices(prefix + "kv_indptr", indptr),
                        reader.indices(prefix + "kv_indices", indptr.back()), {});
}

std::span<const int32_t> read_last_page_len(CaseReader& reader, const FlashInferCase& c,
                                            const std::string& name,
                                            std::span<const int32_t> kv_lens) {
  const std::span<const int32_t> found = reader.indices(name, std::ssize(kv_lens));
  for (size_t i = 0; i < found.size(); ++i) {
    const int64_t expected = last_page_len_for(kv_lens[i], c.page_size);
    if (kv_lens[i] == 0 || found[i] == expected) continue;
    reader.bad_tensor(name, std::to_string(expected) + ", as the metadata says",
                      std::to_string(found[i]), static_cast<int64_t>(i));
  }
  return found;
}

PagedAttention read_paged_call(CaseReader& reader, const FlashInferCase& c) {
  PagedAttention call;
  call.q = read_query(reader, c);
  const TensorView k = cache_view(read_plane(reader, c, "k_cache"));
  const TensorView v = cache_view(read_plane(reader, c, "v_cache"));
  if (k.defined() && v.defined() && k.shape[0] != v.shape[0]) {
    reader.bad_tensor("v_cache", std::to_string(k.shape[0]) + " pages, as k_cache",
                      std::to_string(v.shape[0]));
  }
  call.cache = c.hnd ? KvCache::hnd(k, v) : KvCache::nhd(k, v);
  call.cache.k_scale = c.k_scale;
  call.cache.v_scale = c.v_scale;
  call.pages = read_csr(reader, c, "", c.kv_lens);
  call.pages.last_page_len = read_last_page_len(reader, c, "kv_last_page_len", c.kv_lens);
  const bool decode = c.kind->lengths == Lengths::kDecode;  // says so by giving no offsets
  if (!decode || reader.has_tensor("qo_indptr")) {
    const std::span<const int32_t> qo_indptr = reader.indices("qo_indptr", indptr_of(c.q_lens));
    if (!decode) call.cu_seqlens_q = qo_indptr;
  }
  call.params = c.params;
  return call;
}

void read_recorded(CaseReader& reader, const FlashInferCase& c, const std::string& prefix,
                   Recorded recorded, KernelVector* vector) {
  const int64_t heads = c.params.num_qo_heads;
  recorded.out = reader.tensor(prefix + "out", {c.dtype}, {c.rows, heads, c.params.head_dim_vo});
  recorded.lse = reader.tensor(prefix + "lse", {DType::kF32}, {c.rows, heads});
  recorded.lse_base = LseBase::kLog2;
  vector->recorded.push_back(std::move(recorded));
}

}  // namespace shadowgraph
