// Faults of what graphs share: slices of one allocation, and the keys that metadata is kept under.

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "backends/compose/multi_step.h"
#include "faults/plant.h"

namespace shadowgraph {
namespace {

/// Metadata is kept under other keys. A tap acts where a replay finds none, or another graph's.
struct OtherKeys : Tap {
  void metadata_key(GraphKey& key, bool capturing) final {
    const GraphKey clean = key;
    change(key, capturing);
    if (capturing) {
      kept_[key] = clean;
      return;
    }
    const auto found = kept_.find(key);
    if (found == kept_.end() || found->second != clean) act();
  }

 protected:
  virtual void change(GraphKey& key, bool capturing) = 0;
  bool is_kept(const GraphKey& key) const { return kept_.contains(key); }

 private:
  std::map<GraphKey, GraphKey> kept_;
};

/// A batch is looked up by the number of rows that the largest captured bucket has.
struct LargestBucket final : OtherKeys {
  void change(GraphKey& key, bool capturing) override {
    if (capturing) return;
    for (GraphKey larger = key; ++larger.rows <= kMostRows;)
      if (is_kept(larger)) key = larger;
  }
  static constexpr int32_t kMostRows = 64;
};

struct RowsAlone final : OtherKeys {
  void change(GraphKey& key, bool /*capturing*/) override {
    key = {.mode = ForwardMode::kDecode, .step = 0, .rows = key.rows, .q_len = 1};
  }
};

/// The metadata of a composed backend is not kept by its capture.
struct PartsAreForgotten final : OtherKeys {
  void bound(Meta& meta, bool capturing) override {
    if (capturing) composed_ = !meta.children.empty();
  }
  void change(GraphKey& key, bool capturing) override {
    if (capturing && composed_) key.rows = -key.rows;
  }

 private:
  bool composed_ = false;  // of the capture
};

/// A draft's metadata stays bound to the slice of the bucket that replayed first.
struct StaysWithTheFirstBucket final : OtherKeys {
  void bound(Meta& meta, bool capturing) override {
    if (!capturing || meta.limits.mode != ForwardMode::kDraftDecode) return;
    for_metas(meta, [&](const Meta& m) {
      strikes_ = strikes_ || m.backend->info().name == "trtllm_mha";
    });
  }
  void change(GraphKey& key, bool capturing) override {
    if (capturing || !strikes_ || key.mode != ForwardMode::kDraftDecode) return;
    key.rows = rows_.emplace(key.step, key.rows).first->second;
  }

 private:
  bool strikes_ = false;
  std::map<int32_t, int32_t> rows_;  // of the first replay, by the draft's step
};

/// Has it lengths of rows, or offsets that are made of them?
bool has_lengths(const Buffer& b) {
  constexpr std::string_view kNames[] = {"cache_seqlens", "kv_lens", "kv_len_arr", "kv_indptr"};
  return b.data != nullptr && std::ranges::any_of(kNames, [&](std::string_view ending) {
           return own_name(b).ends_with(ending);
         });
}

/// The slice that is filled in its place: as many elements behind it, where the storage has them.
bool fill_behind(const Meta& meta, const Buffer& b) {
  const Buffer* storage = meta.arena.storage_of(b);
  const bool room = storage != nullptr && storage->numel() >= 2 * b.numel();
  if (!room || b.lifetime != Lifetime::kPerStep || b.numel() == 0) return false;
  const std::span<const std::byte> filled = staged_bytes(meta, b, b.all());
  Arena arena = meta.arena;
  arena.discard(b);
  std::ranges::copy(filled, staged_bytes(meta, *storage, {b.numel(), b.numel()}).begin());
  return true;
}

constexpr Fault kStorageFaults[] = {
    // A slice that begins behind as many rows as it has: the graph reads those before it.
    {"K84", "STALE", "A replay fills the slice behind the one that its graph reads",
     "sglang#26655 fa.I-98", "extent.stale table.stale",
     on_replay([](Tap& tap, const ForwardBatch&, Meta& meta) {
       for_metas(meta, [&](const Meta& m) {
         for (const Buffer& b : m.buffers)
           if (b.data != nullptr && fill_behind(m, b)) tap.act();
       });
     })},
    {"K85", "STALE", "A replay fills the metadata of the largest bucket, whatever its own",
     "sglang#26655 fa.I-98 fa.I-62", "extent.short extent.stale table.stale",
     make_tap<LargestBucket>},
    {"K86", "STALE", "Of a composed backend's graphs no metadata is kept", "sglang#26665 fa.I-62",
     "", make_tap<PartsAreForgotten>},
    {"K87", "STALE", "Metadata of graphs is looked up by the number of rows alone",
     "sglang#26665 fi.I-87", "", make_tap<RowsAlone>},
    // Padding looks the same in every step, so a replay leaves it out; another bucket, or another
    // mode, has written there.
    {"K88", "PADROW", "Rows of padding are filled by the capture alone",
     "vllm#21196 fa.I-68 fa.I-98", "values.no_number",
     on_replay([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
       for_buffers(
           meta,
           {"cache_seqlens", "kv_lens", "seq_lens_k", "kv_len_arr", "page_table", "swa_page_table"},
           [&](const Meta& m, const Buffer& b) {
             const int64_t real = real_rows(batch, m.limits).rows;
             const bool of_rows = b.shape[0] == m.limits.rows && real < b.shape[0];
             if (b.lifetime != Lifetime::kPerStep || !of_rows) return;
             keep_staged(m, b, b.rows(0, real));
             tap.act();
           });
     })},
    {"K89", "STALE", "A draft's metadata stays with the bucket that replayed first",
     "sglang#26655 fa.I-98", "", make_tap<StaysWithTheFirstBucket>},
    {"K90", "STALE", "All steps of a draft have their lengths in one slice", "sglang#26655 fa.I-69",
     "extent.short", on_bound([](Tap& tap, Meta& meta, bool) {
       for_metas_of<MultiStep>(meta, [&](Meta& draft) {
         for (Meta& step : std::span(draft.children).subspan(1)) {
           for (size_t i = 0; i < step.buffers.size(); ++i) {
             if (!has_lengths(step.buffers[i])) continue;
             step.buffers[i] = draft.children[0].buffers[i];
             tap.act();
           }
         }
       });
     })},
};

}  // namespace

std::span<const Fault> themes::storage() { return kStorageFaults; }

}  // namespace shadowgraph
