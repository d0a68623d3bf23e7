// Faults of padding: rows and tokens that are nobody's.

#include <algorithm>
#include <bit>

#include "backends/fill/csr_rows.h"
#include "faults/plant.h"

namespace shadowgraph {
namespace {

/// Elements behind the first of them, where there are any.
template <class T>
std::span<T> behind(std::span<T> all, int64_t first) {
  return all.subspan(std::min(all.size(), static_cast<size_t>(first)));
}

/// The slot of the first request's first text token, in the pool that is asked for.
int64_t first_slot(const ForwardBatch& batch, bool swa) {
  const int32_t encoder_len = batch.encoder_len(0);
  const int32_t slot =
      batch.req_to_token.row(batch.req_pool_indices[0])[static_cast<size_t>(encoder_len)];
  return swa ? translate(batch.full_to_swa, slot) : slot;
}

constexpr Fault kPaddingsFaults[] = {
    // A warm-up's padding names rows that the pools' table has not got, where a launch gathers
    // tables: the row's number, behind the last.
    {"K10", "OOBR", "A warm-up's padding names rows that the table of requests has not got",
     "vllm#55637 fa.I-54", "values.no_number",
     on_buffers<"pool_rows">(
         [](Tap& tap, const ForwardBatch& batch, const Meta& m, const Buffer& b) {
           const int64_t real = real_rows(batch, m.limits).rows;
           auto row = static_cast<int32_t>(batch.req_to_token.rows() + real);
           for (int32_t& of_padding : behind(staged<int32_t>(m, b), real)) {
             of_padding = row++;
             tap.act();
           }
         })},
    // The dummy request's row of a table is allocated, and nobody writes it.
    {"K25", "UNINIT", "The dummy request's row of a table is not initialised",
     "mini-sglang@0e5f1e7 fa.I-54 fa.I-71", "values.no_number",
     on_buffers<"page_table", "swa_page_table">(
         [](Tap& tap, const ForwardBatch& batch, const Meta& m, const Buffer& b) {
           const int64_t real = real_rows(batch, m.limits).rows, rows = b.shape[0];
           if (b.lifetime != Lifetime::kPerStep || real == rows) return;
           keep_staged(m, b, b.rows(0, real));
           Arena arena = m.arena;
           (void)arena.retire(b, b.rows(real, rows - real));
           tap.act();
         })},
    // A replay fills the slots of real tokens only: the rest are a larger batch's.
    {"K26", "PADROW", "Slots of padding stay those of a larger batch", "vllm#21196 fa.I-55 fi.I-77",
     "table.stale", on_filled([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
       if (!is_replay(batch, meta)) return;
       for_buffers(meta, {"out_cache_loc", "swa_out_cache_loc"},
                   [&](const Meta& m, const Buffer& b) {
                     const int64_t real = real_rows(batch, m.limits).tokens;
                     if (real >= b.numel()) return;
                     keep_staged(m, b, {0, real});
                     tap.act();
                   });
     })},
    // Padding has no key, where the kernel needs one, and was planned with one.
    {"K27", "PADROW", "Padding has length 0 where the kernel needs at least 1",
     "sglang#1779 sglang#1571 fa.I-59", "",
     on_filled([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
       if (!meta.limits.is_bucket() || meta.limits.model.seq_len_fill == 0) return;
       for_buffers(meta, {"cache_seqlens", "kv_lens", "seq_lens_k", "kv_len_arr"},
                   [&](const Meta& m, const Buffer& b) {
                     const int64_t real = real_rows(batch, m.limits).rows;
                     for (int32_t& len : behind(staged<int32_t>(m, b), real)) {
                       if (len != 0) tap.act();
                       len = 0;
                     }
                   });
       for_endings(meta, {"kv_indptr"}, [&](const Meta& m, const Buffer& b) {
         const std::span<int32_t> indptr = staged<int32_t>(m, b);
         const int64_t real = real_rows(batch, m.limits).rows * lists_a_row(m.limits);
         for (int32_t& end : behind(indptr, real + 1)) {
           if (end != indptr[static_cast<size_t>(real)]) tap.act();
           end = indptr[static_cast<size_t>(real)];
         }
       });
     })},
    // Outside of graphs the last offset of queries is a graph's: the tokens, padded.
    {"K29", "PADROW", "Outside of graphs queries are counted with a graph's padding",
     "vllm#55458 vllm#36626 fa.I-16 fi.I-3", "row.query values.no_number",
     on_filled([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
       if (meta.limits.is_bucket() || batch.size() == 0) return;
       for_buffers(meta, {"cu_seqlens_q", "qo_indptr"}, [&](const Meta& m, const Buffer& b) {
         if (b.lifetime != Lifetime::kPerStep || b.numel() == 0) return;
         int32_t& tokens = staged<int32_t>(m, b).back();
         const auto padded = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(tokens)));
         if (padded != tokens) tap.act();
         tokens = padded;
       });
     })},
    // A graph's padding stores where the first request has its first token.
    {"K30", "PADROW", "A graph's padding stores in a live slot", "rvllm#32 fa.I-55 fi.I-75", "",
     on_filled([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
       // A rank's slots are its own share of these.
       if (!is_replay(batch, meta) || meta.limits.model.dcp_size > 1) return;
       for_buffers(meta, {"out_cache_loc", "swa_out_cache_loc"},
                   [&](const Meta& m, const Buffer& b) {
                     const int64_t slot = first_slot(batch, own_name(b) == "swa_out_cache_loc");
                     for (int64_t& of_padding :
                          behind(staged<int64_t>(m, b), real_rows(batch, m.limits).tokens)) {
                       if (slot != 0) tap.act();
                       of_padding = slot;
                     }
                   });
     })},
};

}  // namespace

std::span<const Fault> themes::paddings() { return kPaddingsFaults; }

}  // namespace shadowgraph
