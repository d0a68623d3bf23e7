#include "io/recorded/flashinfer_batch.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "attn/page_table.h"

namespace shadowgraph {
namespace {

/// A cache plane; fp8 is stored as bytes.
TensorView read_plane(CaseReader& reader, const FlashInferBatch& b, std::string_view name) {
  const char* const shape = b.hnd ? "pages kv_heads page_size dim" : "pages page_size kv_heads dim";
  return cache_view(read_keys(reader, name, b.kv_dtype, shape));
}

void read_lengths(CaseReader& reader, int32_t batch, FlashInferBatch* b) {
  if (reader.has("extend_lens")) {
    b->q_lens = reader.lengths("extend_lens", batch);
    b->prefix_lens = reader.lengths("prefix_lens", batch);
    if (!reader.ok()) return;
    std::ranges::transform(b->q_lens, b->prefix_lens, std::back_inserter(b->kv_lens),
                           std::plus<>());
  } else {
    b->kv_lens = reader.lengths("kv_lens", batch);
    if (!b->decode || reader.has("q_lens")) b->q_lens = reader.lengths("q_lens", batch);
    if (!reader.ok()) return;
    if (b->decode && std::ranges::any_of(b->q_lens, [](int32_t n) { return n != 1; }))
      reader.bad_field("q_lens", "1 everywhere in a decode batch", "other lengths");
    if (b->decode) b->q_lens.assign(static_cast<size_t>(batch), 1);
  }
  bind_packed(reader, "rows", kPaddedQueries, b->q_lens);
}

}  // namespace

FlashInferBatch read_flashinfer_batch(CaseReader& reader, FlashInferKind kind, RecordedCase* c) {
  FlashInferBatch b;
  const bool has_lengths = kind != FlashInferKind::kMerge;
  const bool has_heads = kind == FlashInferKind::kPaged;
  const bool has_pages = has_heads || kind == FlashInferKind::kLatent;
  b.decode = c->kind.find("decode") != std::string::npos;
  b.params = read_params(reader, {"causal", "window_left", "window_right", "softcap"});
  c->dtype =
      reader.has("dtype") ? read_query_dtype(reader) : reader.tensor_dtype(has_lengths ? "q" : "v");
  b.kv_dtype = read_kv_dtype(reader, c->dtype);
  if (has_lengths && reader.has("k_scale")) b.k_scale = reader.positive("k_scale");
  if (has_lengths && reader.has("v_scale")) b.v_scale = reader.positive("v_scale");
  if (has_heads && reader.has("kv_layout")) b.hnd = reader.one_of("kv_layout", {"NHD", "HND"}) == 1;
  const int32_t batch = reader.count("batch");
  if (has_pages || reader.has("page_size"))
    b.page_size = reader.integer("page_size", 1, kMaxVectorTokens);
  reader.integer("lse_base", 2, 2);
  if (reader.ok() && has_lengths) read_lengths(reader, batch, &b);  // lists of batch entries
  return b;
}

PageTable read_csr(CaseReader& reader, const FlashInferBatch& b, const std::string& prefix,
                   const std::string& last_page_len, std::span<const int32_t> kv_lens) {
  std::vector<int32_t> pages;
  for (const int32_t n : kv_lens) pages.push_back(static_cast<int32_t>(pages_for(n, b.page_size)));
  const std::vector<int32_t> indptr = indptr_of(pages);
  const std::span<const int32_t> offsets = reader.indices(prefix + "kv_indptr", indptr);
  PageTable table =
      PageTable::csr(offsets, reader.i32(prefix + "kv_indices", std::to_string(indptr.back())), {});
  if (last_page_len.empty()) return table;
  table.last_page_len = reader.i32(last_page_len, std::to_string(kv_lens.size()));
  const auto expected = [&](size_t i) {
    return kv_lens[i] == 0 ? table.last_page_len[i] : last_page_len_for(kv_lens[i], b.page_size);
  };
  reader.all_as(last_page_len, table.last_page_len, expected, "the metadata says");
  return table;
}

PagedAttention read_paged_call(CaseReader& reader, const FlashInferBatch& b,
                               const RecordedCase& c) {
  PagedAttention call;
  call.params = b.params;
  read_terms(reader, b.kv_lens, &call.params);
  call.q = read_rows(reader, {}, "q", {c.dtype}, "dim");
  const TensorView k = read_plane(reader, b, "k_cache"), v = read_plane(reader, b, "v_cache");
  call.cache = b.hnd ? KvCache::hnd(k, v) : KvCache::nhd(k, v);
  call.cache.k_scale = b.k_scale;
  call.cache.v_scale = b.v_scale;
  call.pages = read_csr(reader, b, "", "kv_last_page_len", b.kv_lens);
  if (!b.decode || reader.has_tensor("qo_indptr")) {
    const std::span<const int32_t> qo_indptr =
        read_offsets(reader, "qo_indptr", kPaddedQueries, b.q_lens, &call.params.terms.seqused_q);
    if (!b.decode || !call.params.terms.seqused_q.empty()) call.cu_seqlens_q = qo_indptr;
  }
  return call;
}

void read_log2_answer(CaseReader& reader, const std::string& prefix, Recorded* answer) {
  read_answer(reader, {}, prefix + "out", prefix + "lse", answer);
  answer->lse_base = LseBase::kLog2;
}

}  // namespace shadowgraph
