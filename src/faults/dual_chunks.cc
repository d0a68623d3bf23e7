// Faults of dual-chunk attention: its parts, their tables, and the factor of its keys.

#include <algorithm>
#include <utility>

#include "attn/dual_chunk.h"
#include "attn/page_table.h"
#include "backends/paged/dual_chunk.h"
#include "faults/plant.h"
#include "launch/scale_keys.h"
#include "launch/store_launch.h"

namespace shadowgraph {
namespace {

constexpr Fault kDualChunksFaults[] = {
    // Offsets of a decode's queries are running sums of 0, 1, 2, ..., and not of ones.
    {"DC1", "DUAL", "Offsets of a dual-chunk decode's queries are running sums of 0, 1, 2",
     "fi.I-3 fi.I-107", "", on_bound([](Tap& tap, Meta& meta, bool) {
       for_metas_of<DualChunkAttention>(meta, [&](const Meta& m) {
         const Buffer* b = find_buffer(m, "query_start_loc");
         if (b == nullptr || b->lifetime != Lifetime::kConstant) return;
         const std::span<int32_t> offsets = staged<int32_t>(m, *b);
         for (size_t i = 1; i < offsets.size(); ++i)
           offsets[i] = offsets[i - 1] + static_cast<int32_t>(i) - 1;
         tap.act();
       });
     })},
    {"DC2", "DUAL", "The chunk before a query's own is in none of its parts", "fi.I-107", "",
     on_metas<DualChunkAttention>([](Tap& tap, const ForwardBatch&, const Meta& m) {
       for (int32_t& len : staged_ints(m, "seq_lens_succ"))
         if (std::exchange(len, 0) > 0) tap.act();
     })},
    // It is in two: all chunks before a query's own are read by its last part.
    {"DC3", "DUAL", "The chunk before a query's own is in two of its parts", "fi.I-107", "",
     on_metas<DualChunkAttention>([](Tap& tap, const ForwardBatch&, const Meta& m) {
       const std::span<int32_t> inter = staged_ints(m, "seq_lens_inter");
       const std::span<int32_t> succ = staged_ints(m, "seq_lens_succ");
       for (size_t i = 0; i < inter.size() && i < succ.size(); ++i) {
         if (succ[i] == 0) continue;
         inter[i] += succ[i];
         tap.act();
       }
     })},
    // Keys are multiplied by their factor when they are in the cache already, without it.
    {"DC4", "DUAL", "Keys are multiplied by their factor after they are stored", "fi.I-107", "",
     on_launches([](Tap& tap, Launches& all, const Meta&) {
       for (size_t i = 0; i + 1 < all.size(); ++i) {
         if (all[i].launch.kernel != &kScaleKeys || all[i + 1].launch.kernel != &kStoreKv) continue;
         auto [store, rows] = call_of<StoreKv>(all[i + 1].launch);
         store.k = call_of<ScaleKeys>(all[i].launch).call.k;
         all[i + 1].launch = store_launch(store, rows);
         std::swap(all[i], all[i + 1]);
         tap.act();
       }
     })},
    // Slots become pages in one function, and those pages become pages again in the next.
    {"DC5", "DUAL", "Tables of a chunk are divided by the page size twice", "fi.I-107", "",
     on_filled([](Tap& tap, const ForwardBatch&, Meta& meta) {
       constexpr std::string_view kParts[][2] = {{"seq_lens_intra", "block_tables_intra"},
                                                 {"seq_lens_succ", "block_tables_succ"},
                                                 {"seq_lens_inter", "block_tables"}};
       for_metas_of<DualChunkAttention>(meta, [&](const Meta& m) {
         const int32_t size = m.limits.model.page_size;
         for (const auto& [lens_name, table_name] : kParts) {
           const Buffer* table = find_buffer(m, table_name);
           if (table == nullptr || size == 1) continue;
           int64_t row = 0;
           for (const int32_t len : staged_ints(m, lens_name)) {
             const Elements live{row++ * table->shape[1], pages_for(len, size)};
             for (int32_t& page : staged<int32_t>(m, *table, live))
               if (std::exchange(page, page / size) > 0) tap.act();
           }
         }
       });
     })},
    // A replay in which no request has a chunk before its own does not fill what says where it is.
    {"DC6", "STALE", "A replay without a chunk before any query's own keeps the last one's",
     "fi.I-76 fi.I-107", "", on_filled([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
       if (!is_replay(batch, meta)) return;
       for_metas_of<DualChunkAttention>(meta, [&](const Meta& m) {
         const std::span<int32_t> lens = staged_ints(m, "seq_lens_succ");
         if (lens.empty() || std::ranges::any_of(lens, [](int32_t len) { return len > 0; })) return;
         Arena arena = m.arena;
         for (const char* name : {"seq_lens_succ", "block_tables_succ"})
           arena.discard(*find_buffer(m, name));
         tap.act();
       });
     })},
    {"DC7", "DUAL", "The factor of a prompt in chunks is that of the tokens so far", "fi.I-107", "",
     on_metas<DualChunkAttention>([](Tap& tap, const ForwardBatch&, const Meta& m) {
       const Buffer* b = find_buffer(m, "scaling_factor");
       const std::span<int32_t> lens = staged_ints(m, "cache_seqlens");
       if (b == nullptr) return;
       const std::span<float> factors = staged<float>(m, *b);
       const int32_t original = m.limits.model.dual_chunk.original_max_position;
       for (size_t i = 0; i < factors.size() && i < lens.size(); ++i) {
         const auto so_far = static_cast<float>(dual_chunk_factor(lens[i], original));
         if (factors[i] == 1 || factors[i] == so_far) continue;  // padding has 1
         factors[i] = so_far;
         tap.act();
       }
     })},
};

}  // namespace

std::span<const Fault> themes::dual_chunks() { return kDualChunksFaults; }

}  // namespace shadowgraph
