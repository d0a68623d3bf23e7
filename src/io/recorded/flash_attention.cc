// FlashAttention-2 of PyTorch, FlashAttention-3 and FlashMLA's dense decode: page tables of whole
// requests, LSE natural.
#include <algorithm>
#include <functional>
#include <numeric>

#include "io/recorded/attention_fields.h"
#include "io/recorded/recorded_cases.h"

namespace shadowgraph {
namespace {

using Lse = RowAxes::Lse;
constexpr RowAxes kPackedRows = {.lse = Lse::kHeadsRows};
constexpr RowAxes kRowsOfRequests = {.rows = "(batch q_len)", .lse = Lse::kBatchHeadsRows};

/// A cache plane; the first read says how many pages both have.
TensorView read_plane(CaseReader& reader, std::string_view name, DType dtype) {
  return cache_view(read_keys(reader, name, dtype, "pages page_size kv_heads dim"));
}

/// Queries, packed or by requests.
constexpr std::string_view kPadded = "qo_indptr_padded";

/// Slots of the appended keys, request by request; empty if the table has no column for one.
std::vector<int64_t> append_slots(const PageIds& table, std::span<const int32_t> kv_lens_before,
                                  int32_t append_len, int32_t page_size) {
  std::vector<int64_t> slots;
  for (size_t r = 0; r < kv_lens_before.size(); ++r) {
    const int32_t first = kv_lens_before[r];
    for (int64_t token = first; token < int64_t{first} + append_len; ++token) {
      const int64_t column = token / page_size;
      if (column >= table.max_pages) return {};
      const int64_t page =
          table.ids[r * static_cast<size_t>(table.max_pages) + static_cast<size_t>(column)];
      slots.push_back(page * page_size + token % page_size);
    }
  }
  return slots;
}

void read_append(CaseReader& reader, const KvCache& cache, DType dtype,
                 std::span<const int64_t> slots, AttentionCalls* calls) {
  constexpr std::string_view kNew = "(batch append_len) kv_heads dim";
  AppendedKeys appended;
  appended.store.k = read_keys(reader, "k_new", dtype, kNew);
  appended.store.v = read_keys(reader, "v_new", dtype, kNew);
  appended.k_after = read_plane(reader, "k_cache_after", dtype);
  appended.v_after = read_plane(reader, "v_cache_after", dtype);
  if (!reader.ok()) return;
  if (slots.empty())
    return reader.bad_tensor("page_table", "a column for every appended key", "too few");
  appended.store.out_cache_loc = slots;
  appended.store.cache = cache;
  calls->appended = appended;
}

}  // namespace

void read_fa2(CaseReader& reader, RecordedCase* c) {
  const bool decode = reader.has("mode") && reader.text("mode") == "decode";
  c->dtype = read_query_dtype(reader);
  const DType kv_dtype = read_kv_dtype(reader, c->dtype);
  const int32_t batch = reader.count("batch");
  reader.integer("page_size", 1, kMaxVectorTokens);
  PagedAttention call;
  call.params = read_params(reader, {"window_left", "window_right", "softcap"});
  const bool sinks = reader.has("sinks") ? reader.flag("sinks") : reader.has_tensor("sinks");
  const bool gpu = !reader.has("gpu") || reader.flag("gpu");
  if (!reader.ok()) return;  // the lists have batch entries
  const std::vector<int32_t> q_lens = reader.lengths("q_lens", batch);
  const std::vector<int32_t> kv_lens = reader.lengths("kv_lens", batch);
  if (!reader.ok()) return;
  bind_packed(reader, "rows", kPadded, q_lens);
  read_terms(reader, kv_lens, &call.params);
  call.q = read_rows(reader, kPackedRows, "q", {c->dtype}, "dim");
  const TensorView k = read_plane(reader, "k_cache", kv_dtype);
  call.cache = KvCache::nhd(k, read_plane(reader, "v_cache", kv_dtype));
  const PageIds table = read_page_ids(reader, "page_table");
  call.pages =
      PageTable::dense(table.ids, table.max_pages, reader.indices("cache_seqlens", kv_lens));
  const std::span<const int32_t> cu_seqlens_q =
      read_offsets(reader, "cu_seqlens_q", kPadded, q_lens, &call.params.terms.seqused_q);
  // A decode batch is one query a request, and says so by giving no offsets.
  if (!decode || !call.params.terms.seqused_q.empty() ||
      std::ranges::any_of(q_lens, [](int32_t n) { return n != 1; }))
    call.cu_seqlens_q = cu_seqlens_q;
  if (sinks) call.params.sinks = read_sinks(reader, "sinks");
  c->attention().calls.emplace_back(call);
  read_references(reader, kPackedRows, c);
  // Found by recomputing: where there are sinks, a reference counts them in the LSE.
  if (sinks) c->reference.lse_sink = LseSink::kIncluded;
  if (!gpu) return c->recorded.clear();
  read_answer(reader, kPackedRows, "out_gpu", "lse_gpu", &c->gpu());
  if (sinks) read_lse_sink(reader, c);
}

void read_fa3(CaseReader& reader, RecordedCase* c) {
  reader.text("kind");  // any name
  PagedAttention call;
  call.params = read_params(reader);
  reader.integer("attention_chunk", 0, INT32_MAX);
  c->dtype = read_query_dtype(reader);
  const DType kv_dtype = read_kv_dtype(reader, c->dtype);
  // Requests one after the other, or all of one length.
  const bool packed = reader.one_of("q_layout", {"thd", "bshd"}) == 0;
  reader.known_text("lse_layout", packed ? "(Hq,total_q)" : "(B,Hq,s_q)");
  reader.known_text("lse_base", "e");
  if (reader.integer("num_splits_launched", 1, INT32_MAX) > 1) c->gpu().kernel += "_split";
  const int32_t batch = reader.integer("batch", 1, kMaxVectorTokens);
  const int32_t page_size = reader.integer("page_size", 1, kMaxVectorTokens);
  const int32_t append_len = reader.count("append_len");
  if (!reader.ok()) return;  // the lists have batch entries
  const std::vector<int32_t> q_lens = reader.lengths("q_lens", batch);
  const std::vector<int32_t> before = reader.lengths("kv_lens_before", batch);
  const std::vector<int32_t> kv_lens = reader.lengths("kv_lens", batch);
  if (!reader.ok()) return;
  const auto grown = [&](int32_t was, int32_t is) { return is - was == append_len; };
  if (!std::ranges::equal(before, kv_lens, grown))
    reader.bad_field("kv_lens", "kv_lens_before + append_len", "other lengths");
  if (!packed && std::ranges::adjacent_find(q_lens, std::not_equal_to<>()) != q_lens.end())
    reader.bad_field("q_lens", "one length in bshd", "several");
  if (!reader.ok()) return;
  bind_packed(reader, "rows", packed ? kPadded : "", q_lens), reader.bind("q_len", q_lens[0]);
  read_terms(reader, kv_lens, &call.params);
  const RowAxes& axes = packed ? kPackedRows : kRowsOfRequests;
  call.q = read_rows(reader, axes, "q", {c->dtype}, "dim");
  const TensorView k = read_plane(reader, "k_cache", kv_dtype);
  call.cache = KvCache::nhd(k, read_plane(reader, "v_cache", kv_dtype));
  const PageIds table = read_page_ids(reader, "page_table");
  reader.indices("cache_seqlens", before);
  if (append_len > 0) {
    const auto slots = reader.own(append_slots(table, before, append_len, page_size));
    read_append(reader, call.cache, kv_dtype, slots, &c->attention());
  }
  call.pages = PageTable::dense(table.ids, table.max_pages, reader.own(kv_lens));
  const std::vector<int32_t> q_indptr = indptr_of(q_lens);
  if (packed) {
    call.cu_seqlens_q =
        read_offsets(reader, "cu_seqlens_q", kPadded, q_lens, &call.params.terms.seqused_q);
  } else if (q_lens[0] != 1) {  // else a decode batch, which says so by giving no offsets
    call.cu_seqlens_q = reader.own(q_indptr);
  }
  c->attention().calls.emplace_back(call);
  read_answer(reader, axes, "out", "lse", &c->gpu());
  read_references(reader, axes, c);
}

void read_flashmla(CaseReader& reader, RecordedCase* c) {
  PagedAttention call;
  c->dtype = read_query_dtype(reader);
  const DType kv_dtype = read_kv_dtype(reader, c->dtype);
  call.params = read_params(reader, {"window_left", "window_right", "softcap"});
  reader.known_text("lse_base", "e");
  reader.known_text("lse_layout", "(B,Hq,s_q)");
  const int32_t batch = reader.integer("batch", 0, INT16_MAX);
  const int32_t q_len = reader.dim("q_len");
  reader.integer("page_size", 1, kMaxVectorTokens);
  if (!reader.ok()) return;  // the lists have batch entries
  const std::vector<int32_t> kv_lens = reader.lengths("kv_lens", batch);
  if (read_splits(reader)) c->gpu().kernel += "_split";
  if (!reader.ok()) return;
  read_terms(reader, kv_lens, &call.params);
  call.q = read_rows(reader, kRowsOfRequests, "q", {c->dtype}, "dim");
  const ConstTensorView latents =
      read_keys(reader, "kv_cache", kv_dtype, "pages page_size (1 dim)");
  if (latents.defined())
    call.cache = KvCache::mla_latent(cache_view(latents), call.params.head_dim_vo);
  const PageIds table = read_page_ids(reader, "block_table");
  call.pages =
      PageTable::dense(table.ids, table.max_pages, reader.indices("cache_seqlens", kv_lens));
  if (q_len != 1)  // else a decode batch, which says so by giving no offsets
    call.cu_seqlens_q =
        reader.own(indptr_of(std::vector<int32_t>(static_cast<size_t>(batch), q_len)));
  c->attention().calls.emplace_back(call);
  read_answer(reader, kRowsOfRequests, "out", "lse", &c->gpu());
  read_references(reader, kRowsOfRequests, c);
}

}  // namespace shadowgraph
