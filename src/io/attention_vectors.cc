#include <algorithm>

#include "io/case_tensors.h"
#include "io/vector_families.h"

namespace shadowgraph {
namespace {

struct AttentionCase {
  DType dtype = DType::kF32;
  int32_t batch = 0, page_size = 0;
  std::vector<int32_t> q_lens, kv_lens;
  AttentionParams params;
  bool sinks = false, gpu = false;
};

AttentionCase read_metadata(CaseReader& reader) {
  AttentionCase c;
  c.dtype = reader.dtype("dtype");
  c.batch = reader.integer("batch", 0, kMaxVectorTokens);
  c.page_size = reader.integer("page_size", 1, kMaxVectorTokens);
  c.params.num_qo_heads = reader.integer("num_qo_heads", 1, kMaxVectorTokens);
  c.params.num_kv_heads = reader.integer("num_kv_heads", 1, kMaxVectorTokens);
  c.params.head_dim_qk = c.params.head_dim_vo = reader.integer("head_dim", 1, kMaxVectorTokens);
  c.params.sm_scale = reader.positive("sm_scale");
  c.params.causal = reader.flag("causal");
  c.params.window_left = reader.integer("window_left", -1, INT32_MAX);
  c.params.window_right = reader.integer("window_right", -1, INT32_MAX);
  c.params.logits_soft_cap = reader.not_negative("softcap");
  c.sinks = reader.flag("sinks");
  c.gpu = reader.flag("gpu");
  if (is_fp8(c.dtype)) reader.bad_field("dtype", "f16, bf16 or f32", "e4m3fn");
  if (!reader.ok()) return c;  // the lists have batch entries
  c.q_lens = reader.lengths("q_lens", c.batch);
  c.kv_lens = reader.lengths("kv_lens", c.batch);
  return c;
}

}  // namespace

bool is_attention_case(const CaseReader& reader) {
  if (reader.has("kind")) return false;
  return reader.has_tensor("k_cache") || reader.has_tensor("page_table");
}

void read_attention_vector(CaseReader& reader, KernelVector* vector) {
  const std::string mode = reader.text("mode");
  AttentionCase c = read_metadata(reader);
  if (!reader.ok()) return;
  const std::vector<int32_t> q_indptr = indptr_of(c.q_lens);
  const int64_t rows = q_indptr.back(), heads = c.params.num_qo_heads, dim = c.params.head_dim_qk;

  PagedAttention call;
  call.q = reader.tensor("q", {c.dtype}, {rows, heads, dim});
  const ConstTensorView k =
      reader.tensor("k_cache", {c.dtype}, {-1, c.page_size, c.params.num_kv_heads, dim});
  const ConstTensorView v =
      reader.tensor("v_cache", {c.dtype},
                    {k.defined() ? k.shape[0] : -1, c.page_size, c.params.num_kv_heads, dim});
  call.cache = KvCache::nhd(cache_view(k), cache_view(v));
  const PageIds table = read_page_ids(reader, "page_table", c.batch);
  call.pages =
      PageTable::dense(table.ids, table.max_pages, reader.indices("cache_seqlens", c.kv_lens));
  const std::span<const int32_t> cu_seqlens_q = reader.indices("cu_seqlens_q", q_indptr);
  // A decode batch is one query a request, and says so by giving no offsets.
  const bool one_each = std::all_of(c.q_lens.begin(), c.q_lens.end(), [](int n) { return n == 1; });
  if (mode != "decode" || !one_each) call.cu_seqlens_q = cu_seqlens_q;
  if (c.sinks) {
    const ConstTensorView sinks = reader.tensor("sinks", {DType::kF32}, {heads});
    c.params.sinks = {reinterpret_cast<const float*>(sinks.data),
                      static_cast<size_t>(sinks.defined() ? heads : 0)};
  }
  call.params = c.params;

  vector->kind = mode;
  vector->dtype = c.dtype;
  vector->calls.emplace_back(call);
  vector->out_ref = reader.tensor("out_ref", {DType::kF32}, {rows, heads, dim});
  vector->lse_ref = swap_leading(reader.tensor("lse_ref", {DType::kF64}, {heads, rows}));
  // Found by recomputing: where there are sinks, the file's reference counts them in the LSE.
  if (c.sinks) vector->lse_ref_sink = LseSink::kIncluded;
  if (c.gpu) {
    Recorded gpu = recorded_by("fa2", "gpu");
    gpu.out = reader.tensor("out_gpu", {c.dtype}, {rows, heads, dim});
    gpu.lse = swap_leading(reader.tensor("lse_gpu", {DType::kF32}, {heads, rows}));
    vector->recorded.push_back(gpu);
  }
}

}  // namespace shadowgraph
