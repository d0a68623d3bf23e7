#include <algorithm>

#include "io/case_tensors.h"
#include "io/vector_families.h"

namespace shadowgraph {
namespace {

struct FlashMlaCase {
  DType dtype = DType::kBF16;
  int32_t batch = 0, q_len = 0, page_size = 0;
  std::vector<int32_t> kv_lens, splits;  // of each request
  AttentionParams params;
};

FlashMlaCase read_metadata(CaseReader& reader) {
  FlashMlaCase c;
  c.dtype = reader.dtype("dtype");
  if (is_fp8(c.dtype)) reader.bad_field("dtype", "f16, bf16 or f32", "e4m3fn");
  AttentionParams& p = c.params;
  p.num_qo_heads = reader.integer("num_qo_heads", 1, kMaxVectorTokens);
  p.num_kv_heads = reader.integer("num_kv_heads", 1, 1);  // every head reads the one latent
  p.head_dim_qk = reader.integer("head_dim_qk", 1, kMaxVectorTokens);
  p.head_dim_vo = reader.integer("head_dim_v", 1, kMaxVectorTokens);
  p.sm_scale = reader.positive("sm_scale");
  p.causal = reader.flag("causal");
  reader.known_text("lse_base", "e");
  reader.known_text("lse_layout", "(B,Hq,s_q)");
  c.batch = reader.integer("batch", 0, INT16_MAX);
  c.q_len = reader.integer("q_len", 1, INT16_MAX);
  c.page_size = reader.integer("page_size", 1, kMaxVectorTokens);
  if (!reader.ok()) return c;  // the lists have batch entries
  c.kv_lens = reader.lengths("kv_lens", c.batch);
  c.splits = reader.lengths("splits_per_request", c.batch);
  return c;
}

/// [rows, num_qo_heads, dim]
ConstTensorView read_rows(CaseReader& reader, const FlashMlaCase& c, std::string_view name,
                          DType dtype, int64_t dim) {
  return merge_leading(
      reader.tensor(name, {dtype}, {c.batch, c.q_len, c.params.num_qo_heads, dim}));
}

/// [rows, num_qo_heads]
ConstTensorView read_lse(CaseReader& reader, const FlashMlaCase& c, std::string_view name,
                         DType dtype) {
  return rows_before_heads(reader,
                           reader.tensor(name, {dtype}, {c.batch, c.params.num_qo_heads, c.q_len}));
}

}  // namespace

bool is_flashmla_kind(std::string_view kind) { return kind.starts_with("dense_"); }

void read_flashmla_vector(CaseReader& reader, KernelVector* vector) {
  vector->kind = reader.text("kind");
  const FlashMlaCase c = read_metadata(reader);
  if (!reader.ok()) return;
  PagedAttention call;
  call.q = read_rows(reader, c, "q", c.dtype, c.params.head_dim_qk);
  const ConstTensorView kv =
      reader.tensor("kv_cache", {c.dtype}, {-1, c.page_size, 1, c.params.head_dim_qk});
  if (kv.defined()) {
    const ConstTensorView latent(kv.data, kv.dtype, {kv.shape[0], kv.shape[1], kv.shape[3]});
    call.cache = KvCache::mla_latent(cache_view(latent), c.params.head_dim_vo);
  }
  const PageIds table = read_page_ids(reader, "block_table", c.batch);
  call.pages =
      PageTable::dense(table.ids, table.max_pages, reader.indices("cache_seqlens", c.kv_lens));
  if (c.q_len != 1) {  // else a decode batch, which says so by giving no offsets
    call.cu_seqlens_q =
        reader.own(indptr_of(std::vector<int32_t>(static_cast<size_t>(c.batch), c.q_len)));
  }
  call.params = c.params;
  reader.indices("num_splits", indptr_of(c.splits));

  vector->dtype = c.dtype;
  vector->calls.emplace_back(call);
  const bool split = std::any_of(c.splits.begin(), c.splits.end(), [](int n) { return n > 1; });
  Recorded gpu = recorded_by(split ? "flashmla_split" : "flashmla", "gpu");
  gpu.out = read_rows(reader, c, "out", c.dtype, c.params.head_dim_vo);
  gpu.lse = read_lse(reader, c, "lse", DType::kF32);
  vector->recorded.push_back(gpu);
  vector->out_ref = read_rows(reader, c, "out_ref", DType::kF32, c.params.head_dim_vo);
  vector->lse_ref = read_lse(reader, c, "lse_ref", DType::kF64);
}

}  // namespace shadowgraph
