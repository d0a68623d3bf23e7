// Faults of plans: how a batch's work is counted, cut and written down.

#include <algorithm>
#include <string>
#include <utility>

#include "core/int_math.h"
#include "core/laws.h"
#include "faults/launches.h"
#include "faults/plan_lists.h"
#include "shadowgraph/engine/buffer_info.h"

namespace shadowgraph {
namespace {

using Fi = FlashInfer;

int64_t tiles(const PlanLists& plan, size_t row) {
  const int32_t queries =
      plan.queries().empty() ? 1 : plan.qo_indptr[row + 1] - plan.qo_indptr[row];
  return ceil_div(int64_t{queries} * plan.shape.group(), plan.shape.cta_tile_q());
}
int64_t keys(const PlanLists& plan, size_t row) {
  return plan.kv_indptr[row + 1] - plan.kv_indptr[row];
}

/// A planner knows the chunk without a search where keys are not cut, or at a fixed size, or where
/// one query of each request fills the GPU.
bool searches(const PlanShape& shape) {
  const SplitConfig& split = shape.split;
  const bool full =
      shape.kind == PlanKind::kDecode &&
      int64_t{shape.rows} * shape.num_kv_heads >= int64_t{split.num_sms} * split.blocks_per_sm;
  return !split.off && split.fixed_size == 0 && !full;
}

/// As FlashInfer's, but for requests without keys.
int32_t search_without_empty(const PlanLists& plan) {
  const SplitConfig& split = plan.shape.split;
  const auto rows = static_cast<size_t>(plan.shape.rows);
  const int64_t grid = int64_t{split.num_sms} * split.blocks_per_sm / plan.shape.num_kv_heads;
  int64_t low = std::max(1, split.min_size), high = 1;
  for (size_t i = 0; i < rows; ++i) high = std::max(high, keys(plan, i));
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    int64_t items = 0;
    for (size_t i = 0; i < rows; ++i) items += tiles(plan, i) * ceil_div(keys(plan, i), middle);
    items > grid ? low = middle + 1 : high = middle;
  }
  return static_cast<int32_t>(low);
}

struct Item {
  int32_t request = 0, q_tile = 0, kv_tile = 0;
};

std::vector<Item> items_of(const PlanLists& plan, const PlanResult& result, int64_t sweep) {
  std::vector<Item> items;
  for (size_t i = 0; i < static_cast<size_t>(plan.shape.rows); ++i) {
    for (int visit = 0; visit <= static_cast<int64_t>(i) / sweep; ++visit) {
      for (int32_t t = 0; t < tiles(plan, i); ++t) {
        for (int32_t c = 0; c < result.chunks(keys(plan, i)); ++c)
          items.push_back({static_cast<int32_t>(i), t, c});
      }
    }
  }
  return items;
}

/// As many as there is room for.
void write_items(const Meta& meta, const PlanLists& plan, const std::vector<Item>& items) {
  const int64_t count = std::ssize(items);
  const std::span<int32_t> requests = plan_array(meta, plan, Fi::kRequestIndices, count),
                           kv_tiles = plan_array(meta, plan, Fi::kKvTileIndices, count),
                           q_tiles = plan_array(meta, plan, Fi::kQoTileIndices, count);
  const std::span<uint8_t> valid = plan_array<uint8_t>(meta, plan, Fi::kBlockValidMask, INT64_MAX);
  for (size_t t = 0; t < items.size() && t < requests.size(); ++t) {
    requests[t] = items[t].request;
    kv_tiles[t] = items[t].kv_tile;
    if (t < q_tiles.size()) q_tiles[t] = items[t].q_tile;
  }
  for (size_t t = 0; t < valid.size(); ++t) valid[t] = t < items.size();
}

/// The launch that works a plan off takes its tiles for others.
bool set_tile(Launches& all, const Buffer& request_indices, int32_t tile) {
  bool changed = false;
  for (TappedLaunch& one : all) {
    if (one.launch.kernel != &kTiledAttention) continue;
    auto [call, rows] = call_of<TiledAttention>(one.launch);
    const void* data = call.plan.request_indices.data();
    if (data != request_indices.data || call.plan.cta_tile_q == tile) continue;
    call.plan.cta_tile_q = tile;
    one.launch = tile_launch(call, rows);
    changed = true;
  }
  return changed;
}

const Buffer& request_indices(const Meta& m, int wrapper, Fi::Part part) {
  return m[static_cast<size_t>(Fi::plan(wrapper, part, Fi::kRequestIndices))];
}

/// Under a graph, too, the tile of queries is chosen from the batch's tokens.
struct TileOfTheBatch final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override {
    Status status;
    if (!meta.limits.is_bucket()) return status;
    for_metas(meta, [&](Meta& m) {
      for (PlanLists& plan : plans_of(m)) {
        const int32_t pinned = plan.shape.cta_tile_q();
        plan.shape.tokens = static_cast<int32_t>(real_rows(batch, m.limits).tokens);
        if (plan.shape.cta_tile_q() == pinned) continue;
        act();
        tiles_.emplace_back(request_indices(m, plan.wrapper, plan.part), plan.shape.cta_tile_q());
        status.add(write(m, plan, plan.measure()));
      }
    });
    return status;
  }
  void launches(Launches& all, const Meta& /*meta*/, bool /*capturing*/) override {
    for (const auto& [plan, tile] : std::exchange(tiles_, {})) set_tile(all, plan, tile);
  }

 private:
  std::vector<std::pair<Buffer, int32_t>> tiles_;  // of this step, by the plan's first array
};

/// Offsets of queries that fill writes, of which the last is all tokens; nullptr: none are.
const Buffer* query_offsets_of(const Meta& m) {
  const Buffer* offsets = find_buffer(m, "cu_seqlens_q");
  if (offsets == nullptr) offsets = find_buffer(m, "qo_indptr");
  // Ranks launch once for each query of the longest, and a verify's rows are told apart by it.
  const bool uniform = m.limits.model.dcp_size > 1 || is_target_verify(m.limits.mode);
  const bool filled = offsets != nullptr && offsets->lifetime == Lifetime::kPerStep;
  return filled && !uniform ? offsets : nullptr;
}

/// The longest query that a backend's host tells its kernels; nullptr: it tells none.
int64_t* longest_query_of(Meta& m) {
  if (m.backend == nullptr || m.scalars.empty()) return nullptr;
  const std::span<const BufferInfo> infos = m.backend->info().buffers;
  const auto it = std::ranges::find(infos, Role::kLongestQuery, &BufferInfo::role);
  return it == infos.end() ? nullptr : &scalar_of(m, static_cast<size_t>(it->buffer));
}

/// The longest query is the largest offset: all tokens.
struct LongestIsTotal final : Tap {
  Status filled(const ForwardBatch& /*batch*/, Meta& meta) override {
    for_metas(meta, [&](Meta& m) {
      const Buffer* offsets = query_offsets_of(m);
      int64_t* longest = longest_query_of(m);
      if (offsets == nullptr || longest == nullptr) return;
      const int64_t total = staged<int32_t>(m, *offsets).back();
      if (std::exchange(*longest, total) != total) act();
    });
    return {};
  }
  void baked(Meta& meta, bool /*capturing*/) override {
    for_metas(meta, [&](Meta& m) {
      const int64_t* longest = longest_query_of(m);
      if (query_offsets_of(m) != nullptr && longest != nullptr && *longest > 0)
        m.limits.max_q_len = static_cast<int32_t>(*longest);
    });
  }
};

constexpr Fault kPlansFaults[] = {
    {"K16", "BAKED", "A graph's tile of queries is chosen from the current batch",
     "flashinfer#639 fa.I-64 fi.I-63", "row.unwritten values.no_number", make_tap<TileOfTheBatch>},
    // Where keys are not cut a graph runs its whole grid without the mask that says which items
    // are.
    {"K24", "UNINIT", "A graph's grid is padded past the items of its plan",
     "flashinfer#4430 flashinfer#4794 fi.I-61", "", on_baked([](Tap& tap, Meta& meta, bool) {
       if (!meta.limits.is_bucket() || !meta.limits.model.split.off) return;
       for_endings(meta, {"_block_valid_mask"}, [&](const Meta&, Buffer& b) {
         b.shape[0] = 0;
         tap.act();
       });
     })},
    // A graph's plan has as many requests as its offsets have elements.
    {"K28", "PADROW", "A graph's batch size is the length of its offsets",
     "flashinfer#412 fi.I-1 fi.I-61", "", on_filled([](Tap& tap, const ForwardBatch&, Meta& meta) {
       if (!meta.limits.is_bucket()) return;
       for_metas(meta, [&](const Meta& m) {
         for (const PlanLists& plan : plans_of(m)) {
           std::vector<Item> items = items_of(plan, plan.measure(), INT64_MAX);
           items.push_back({plan.shape.rows, 0, 0});
           tap.act();
           write_items(m, plan, items);
         }
       });
     })},
    {"K32", "SCALAR", "The longest query is taken from offsets, and is all tokens",
     "flashinfer#1930 fa.I-18", "", make_tap<LongestIsTotal>},
    // The half of a cascade that sees the common prefix is scheduled as the other one is.
    {"K33", "SCALAR", "The common prefix's pass is scheduled with the other's sequences",
     "vllm#17283 fa.I-17 fa.I-77", "row.unwritten", on_baked([](Tap& tap, Meta& meta, bool) {
       for_buffers(meta, {"cu_seqlens_q"}, [&](const Meta& m, Buffer& b) {
         const Buffer* drafts = find_buffer(m, "expand_cu_seqlens_q");
         if (drafts == nullptr || drafts->numel() <= b.numel()) return;
         const std::vector<int64_t> shape = b.shape;
         b = *drafts;
         b.shape = shape;
         tap.act();
       });
     })},
    // A verify is planned as a decode: one query a request.
    {"K55", "CAUSAL", "A decode of several tokens is planned as one query a request",
     "flashinfer#3871 fi.I-4", "row.unwritten",
     on_filled([](Tap& tap, const ForwardBatch&, Meta& meta) {
       Status status;
       if (!is_target_verify(meta.limits.mode)) return status;
       for_buffers(meta, {"cu_seqlens_q", "qo_indptr"}, [&](Meta& m, const Buffer& b) {
         if (b.lifetime != Lifetime::kPerStep || m.limits.max_q_len == 1) return;
         int32_t row = 0;
         for (int32_t& offset : staged<int32_t>(m, b)) offset = row++;
         tap.act();
         for (const PlanLists& plan : plans_of(m)) status.add(write(m, plan, plan.measure()));
       });
       return status;
     })},
    // The search for a chunk size counts no item of a request without keys, and the plan has one.
    {"K58", "SPLIT", "The search for a chunk size counts nothing for a request without keys",
     "flashinfer#728 flashinfer#726 fi.I-61", "",
     on_plans([](Tap& tap, Meta& m, const PlanLists& plan) {
       if (!searches(plan.shape)) return Status();
       PlanResult result = plan.measure();
       const int32_t chunk = search_without_empty(plan);
       if (chunk == result.kv_chunk_size) return Status();
       tap.act();
       result.kv_chunk_size = chunk;
       result.split_kv = true;  // a smaller one than the longest list asks for
       result.items = std::ssize(items_of(plan, result, INT64_MAX));
       return write(m, plan, result);
     })},
    // Requests behind the first sweep are visited by each worker. A sweep is 256 requests there,
    // and 2 here.
    {"K62", "SPLIT", "Planning visits requests behind the first sweep several times",
     "flash-attention@3b5047d2 fi.I-61", "values.no_number",
     on_plans([](Tap& tap, const Meta& m, const PlanLists& plan) {
       constexpr int64_t kSweep = 2;
       if (plan.shape.rows <= kSweep) return;
       tap.act();
       write_items(m, plan, items_of(plan, plan.measure(), kSweep));
     })},
    // A planner is given rows and tokens the wrong way round, and chooses the kernel's tile by
    // them.
    {"K81", "OTHER", "Two integers that a plan is given are swapped", "flashinfer#640 fi.I-63",
     "row.unwritten values.no_number", on_launches([](Tap& tap, Launches& all, const Meta& meta) {
       for_metas_of<Fi>(meta, [&](const Meta& m) {
         Limits swapped = m.limits;
         std::swap(swapped.rows, swapped.tokens);
         for (int w = 0; w < Fi::kNumWrappers; ++w) {
           const FlashInferWrapper wrapper = FlashInferWrapper::of(m.limits, w);
           for (const Fi::Part part : {Fi::Part::kPaged, Fi::Part::kRagged}) {
             if (!wrapper.used || (part == Fi::Part::kRagged && !wrapper.ragged)) continue;
             const int32_t tile = wrapper.shape(swapped, part).cta_tile_q();
             tap.act(set_tile(all, request_indices(m, w, part), tile));
           }
         }
       });
     })},
};

}  // namespace

std::span<const Fault> themes::plans() { return kPlansFaults; }

}  // namespace shadowgraph
