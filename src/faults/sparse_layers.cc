// Faults of DeepSeek sparse attention: what a token sees, the tables it is found by, what is
// chosen, and index keys.

#include <algorithm>
#include <cstring>

#include "attn/index_page.h"
#include "attn/page_table.h"
#include "backends/sparse/dsa.h"
#include "faults/plant.h"
#include "launch/index_launch.h"
#include "launch/sparse_launch.h"

namespace shadowgraph {
namespace {

constexpr std::string_view kTokenTables[] = {"page_table_1", "real_page_table"};

/// How many each token chooses, and the running sums.
template <class Count>
void put_counts(const Meta& m, Count count_of) {
  const std::span<int32_t> counts = staged_ints(m, "dsa_cache_seqlens_int32");
  const std::span<int32_t> offsets = staged_ints(m, "dsa_cu_seqlens_k");
  for (size_t t = 0; t < counts.size() && t + 1 < offsets.size(); ++t) {
    counts[t] = count_of(t);
    offsets[t + 1] = offsets[t] + counts[t];
  }
}

int32_t topk_of(const Meta& m) { return sparse_layer_of(m.limits.model)->topk; }

/// A verify's table has a row for each request: the rows behind them are as they were bound.
void keep_rows_of_requests(const Meta& m, const Buffer& table, std::span<const int32_t> lens) {
  const int64_t drafts = m.limits.max_q_len, requests = std::ssize(lens);
  const int64_t unit = m.units[static_cast<size_t>(&table - m.buffers.data())];
  const auto row = [&](int64_t t, int64_t request) {
    const int64_t count = pages_for(lens[static_cast<size_t>(request)], unit);
    return staged<int32_t>(m, table, {t * table.shape[1], count});
  };
  for (int64_t t = 0; t < std::min(requests * drafts, table.shape[0]); ++t) {
    if (t < requests) {
      std::ranges::copy(row(t * drafts, t), row(t, t).begin());
    } else {
      std::ranges::fill(row(t, t / drafts), 0);
    }
  }
}

// ---- kernels with a slip

KernelLaunch with_kernel(const KernelLaunch& launch, const Kernel& kernel) {
  KernelLaunch other = launch;
  other.kernel = &kernel;
  return other;
}

/// fn(entry of the table that -1 leads to, token); nothing before the first row.
template <class Fn>
void each_entry_before(const ChooseIndices& c, Fn fn) {
  const TransformIndices& t = c.transform;
  if (!t.page_table_1.defined()) return;
  for (int64_t token = 0; token < t.indices.shape[0]; ++token) {
    const int64_t row = t.row(token);
    if (row >= 1 && row < t.page_table_1.shape[0]) fn(t.page_table_1.offset(row) - 1, token);
  }
}

Progress choose_with_none(LaunchFrame& f) {
  const KernelLaunch clean = with_kernel(f.launch, kChooseIndices);
  LaunchFrame frame{clean};
  const Progress done = kChooseIndices.body(frame);
  const ChooseIndices c = call_of<ChooseIndices>(clean).call;
  const TransformIndices& t = c.transform;
  each_entry_before(c, [&](int64_t entry, int64_t token) {
    for (int64_t j = 0; j < t.indices.shape[1]; ++j)
      if (load_i32(t.indices, token, j) < 0)
        std::memcpy(t.out.at(token, j), t.page_table_1.data + entry * 4, 4);
  });
  return done;
}

void choose_with_none_spans(const LaunchFrame& f, Footprint* spans) {
  kChooseIndices.footprint(LaunchFrame{with_kernel(f.launch, kChooseIndices)}, spans);
  const ChooseIndices c = call_of<ChooseIndices>(with_kernel(f.launch, kChooseIndices)).call;
  // Which rows have a choice that is none shows when it runs.
  each_entry_before(c, [&](int64_t entry, int64_t /*token*/) {
    spans->push_back({c.transform.page_table_1.data, entry, 1, 4, Access::kTouch});
  });
}

constexpr Kernel kChooseWithNone{
    .name = "choose_indices", .body = choose_with_none, .footprint = choose_with_none_spans};

/// fn(token, where its scale belongs, where it goes) of every token that is stored.
template <class Fn>
void each_scale(const StoreIndexKeys& c, Fn fn) {
  for (size_t t = 0; t < c.out_cache_loc.size(); ++t) {
    const int64_t slot = c.out_cache_loc[t], page = slot / kIndexPageTokens;
    if (c.drops(slot) || page < 1 || page >= c.pages.shape[0]) continue;
    const int64_t in_page = slot % kIndexPageTokens;
    fn(t, place_in_pages(c.pages, page, in_page).scale,
       place_in_pages(c.pages, page - 1, in_page).scale);
  }
}

Progress store_before(LaunchFrame& f) {
  const KernelLaunch clean = with_kernel(f.launch, kStoreIndexKeys);
  const StoreIndexKeys c = call_of<StoreIndexKeys>(clean).call;
  std::vector<float> old(c.out_cache_loc.size());
  each_scale(c, [&](size_t t, int64_t own, int64_t) {
    std::memcpy(&old[t], c.pages.data + own, sizeof(float));
  });
  LaunchFrame frame{clean};
  const Progress done = kStoreIndexKeys.body(frame);
  each_scale(c, [&](size_t t, int64_t own, int64_t before) {
    float scale;
    std::memcpy(&scale, c.pages.data + own, sizeof scale);
    std::memcpy(c.pages.data + own, &old[t], sizeof scale);
    std::memcpy(c.pages.data + before, &scale, sizeof scale);
  });
  return done;
}

void store_before_spans(const LaunchFrame& f, Footprint* spans) {
  const KernelLaunch clean = with_kernel(f.launch, kStoreIndexKeys);
  kStoreIndexKeys.footprint(LaunchFrame{clean}, spans);
  const auto [c, tokens] = call_of<StoreIndexKeys>(clean);
  Footprint scales;
  each_scale(c, [&, pages = c.pages.data](size_t t, int64_t, int64_t before) {
    scales.push_back({pages, before, sizeof(float), 1, Access::kWrite, static_cast<int32_t>(t)});
  });
  name_requests(tokens, &scales);
  spans->insert(spans->end(), scales.begin(), scales.end());
}

constexpr Kernel kStoreBefore{
    .name = "store_index_keys", .body = store_before, .footprint = store_before_spans};

/// Metadata of graphs is kept by the number of rows only: of two modes the later capture gets what
/// is filled for either.
struct GraphsByRowsAlone final : Tap {
  void bound(Meta& meta, bool capturing) override {
    if (capturing) last_[meta.limits.rows] = {meta.limits.mode, meta.limits.step};
  }
  Status filled(const ForwardBatch& batch, Meta& meta) override {
    if (!is_replay(batch, meta)) return {};
    const auto it = last_.find(meta.limits.rows);
    if (it == last_.end() || it->second == Shape{meta.limits.mode, meta.limits.step}) return {};
    for_metas_of<DeepSeekSparse>(meta, [&](const Meta& m) {
      Arena arena = m.arena;
      for (const Buffer& b : m.buffers) {
        if (b.data == nullptr || b.lifetime != Lifetime::kPerStep || b.numel() == 0) continue;
        arena.discard(b);
        act();
      }
    });
    return {};
  }

 private:
  using Shape = std::pair<ForwardMode, int32_t>;  // and the draft's step
  std::map<int32_t, Shape> last_;                 // captured, by rows
};

constexpr Fault kSparseLayersFaults[] = {
    {"DS1", "SPARSE",
     "A verify's token of sparse attention sees what stands before it, and not itself", "fi.I-98",
     "", on_metas<DeepSeekSparse>([](Tap& tap, const ForwardBatch&, const Meta& m) {
       if (!is_target_verify(m.limits.mode)) return;
       const std::span<int32_t> seen = staged_ints(m, "dsa_seqlens_expanded");
       const std::span<int32_t> scored = staged_ints(m, "paged_mqa_ctx_lens");
       for (size_t t = 0; t < seen.size(); ++t) {
         if (seen[t] < 2) continue;
         scored[t] = --seen[t];
         tap.act();
       }
       put_counts(m, [&](size_t t) { return std::min(seen[t], topk_of(m)); });
     })},
    {"DS2", "SPARSE", "A verify's tables have a row for each request, and not for each token",
     "fi.I-103", "", on_metas<DeepSeekSparse>([](Tap& tap, const ForwardBatch&, const Meta& m) {
       const std::span<int32_t> lens = staged_ints(m, "cache_seqlens_int32");
       if (!is_target_verify(m.limits.mode) || m.limits.max_q_len < 2 || lens.empty()) return;
       for (const std::string_view name : kTokenTables)
         keep_rows_of_requests(m, *find_buffer(m, name), lens);
       tap.act();
     })},
    // The -1 behind what is chosen is looked up in the table, too, and attention reads all of a
    // row.
    {"DS3", "SPARSE", "The -1 behind what is chosen is looked up in the table of slots", "fi.I-100",
     "", on_launches([](Tap& tap, Launches& all, const Meta&) {
       for (TappedLaunch& one : all) {
         if (one.launch.kernel == &kChooseIndices) {
           const bool by_table =
               call_of<ChooseIndices>(one.launch).call.transform.page_table_1.defined();
           if (by_table) one.launch.kernel = &kChooseWithNone;
           tap.act(by_table ? 1 : 0);
         } else if (one.launch.kernel == &kSparseAttention) {
           auto [call, tokens] = call_of<SparseAttention>(one.launch);
           (call.extra.defined() ? call.extra : call.keys).lengths = {};
           one.launch = sparse_launch(call, tokens);
         }
       }
     })},
    {"DS4", "SPARSE", "Every token chooses topk keys, however few it sees", "fi.I-99 fi.I-100", "",
     on_metas<DeepSeekSparse>([](Tap& tap, const ForwardBatch&, const Meta& m) {
       const int32_t topk = topk_of(m);
       const std::span<int32_t> counts = staged_ints(m, "dsa_cache_seqlens_int32");
       if (std::ranges::any_of(counts, [&](int32_t n) { return n < topk; })) tap.act();
       put_counts(m, [&](size_t) { return topk; });
     })},
    {"DS5", "SPARSE", "Where a token's keys begin is summed up of new tokens, and not of keys",
     "fi.I-102", "", on_metas<DeepSeekSparse>([](Tap& tap, const ForwardBatch&, const Meta& m) {
       const std::span<int32_t> first = staged_ints(m, "indexer_ks");
       const std::span<int32_t> behind = staged_ints(m, "indexer_ke");
       const std::span<int32_t> seen = staged_ints(m, "dsa_seqlens_expanded");
       const std::span<int32_t> requests = staged_ints(m, "token_to_batch_idx");
       const std::span<int32_t> queries = staged_ints(m, "cu_seqlens_q");
       for (size_t t = 0; t < first.size(); ++t) {
         const int32_t begin = queries[static_cast<size_t>(requests[t])];
         if (std::exchange(first[t], begin) == begin) continue;
         behind[t] = begin + seen[t];
         tap.act();
       }
     })},
    // A graph lacks the store of index keys: replays score what lay in their slots.
    {"DS6", "STALE", "A graph lacks the store of index keys", "fi.I-76", "",
     on_launches([](Tap& tap, Launches& all, const Meta& meta) {
       if (!meta.limits.is_bucket()) return;
       tap.act(static_cast<int64_t>(std::erase_if(
           all, [](const TappedLaunch& one) { return one.launch.kernel == &kStoreIndexKeys; })));
     })},
    {"DS7", "STALE", "Metadata of graphs is kept by the number of rows, whatever the mode",
     "fi.I-87", "", make_tap<GraphsByRowsAlone>},
    {"DS8", "SPARSE", "The scale of an index key is stored in the page before its own", "fi.I-101",
     "", on_launches([](Tap& tap, Launches& all, const Meta&) {
       for (TappedLaunch& one : all) {
         if (one.launch.kernel != &kStoreIndexKeys) continue;
         one.launch.kernel = &kStoreBefore;
         tap.act();
       }
     })},
    // The table of pages has slots: every 64th, not divided.
    {"DS9", "PAGESZ", "The table of pages of sparse attention has slots", "fi.I-101", "",
     on_metas<DeepSeekSparse>([](Tap& tap, const ForwardBatch&, const Meta& m) {
       const int32_t size = m.limits.model.page_size;
       const std::span<int32_t> lens = staged_ints(m, "cache_seqlens_int32");
       const Buffer& table = *find_buffer(m, "real_page_table");
       const bool prefill = is_sparse_prefill(m.limits.mode);
       const int64_t a_request = prefill ? 1 : std::max(1, m.limits.max_q_len);
       for (int64_t row = 0; row < table.shape[0]; ++row) {
         const int64_t request = std::min<int64_t>(row / a_request, std::ssize(lens) - 1);
         const int64_t count = pages_for(lens[static_cast<size_t>(request)], size);
         for (int32_t& page : staged<int32_t>(m, table, {row * table.shape[1], count}))
           if (std::exchange(page, page * size) > 0) tap.act();
       }
     })},
};

}  // namespace

std::span<const Fault> themes::sparse_layers() { return kSparseLayersFaults; }

}  // namespace shadowgraph
