// Faults of replays: what is not written for a step, or is written elsewhere.

#include <algorithm>
#include <cstring>

#include "backends/fill/rows.h"
#include "faults/plant.h"

namespace shadowgraph {
namespace {

constexpr std::string_view kRefilledOffsets[] = {"kv_indptr"};
constexpr std::string_view kRefilledTables[] = {"page_table",   "draft_table", "tree_table",
                                                "merged_table", "local_table", "encoder_table"};
constexpr std::string_view kRefilledPlan[] = {
    "_request_indices", "_qo_tile_indices",  "_kv_tile_indices", "_o_indptr",     "_merge_indptr",
    "_kv_chunk_size",   "_block_valid_mask", "num_kv_splits",    "tile_metadata", "num_splits"};

/// Buffers that stand in the place of others.
void replace(Meta& meta, std::span<const std::pair<const void*, Buffer>> by) {
  for_metas(meta, [&](Meta& m) {
    for (Buffer& b : m.buffers) {
      const auto it =
          std::ranges::find_if(by, [&](const auto& other) { return other.first == b.data; });
      if (b.data != nullptr && it != by.end()) b = it->second;
    }
  });
}

/// A replay's fill leaves out the buffers whose names end so: they stay those of the capture.
template <const auto& endings>
constexpr MakeFault not_refilled() {
  return on_replay([](Tap& tap, const ForwardBatch&, Meta& meta) {
    for_endings(meta, endings, [&](const Meta& m, const Buffer& b) {
      if (b.lifetime != Lifetime::kPerStep || b.numel() == 0) return;
      Arena arena = m.arena;
      arena.discard(b);
      tap.act();
    });
  });
}

/// A replay's fill makes new buffers in the place of those that were captured.
struct Reallocated : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override {
    moved_.clear();
    if (!is_replay(batch, meta)) return {};
    for_metas(meta, [&](const Meta& m) {
      m.arena.scope("again").unbind();
      for (const Buffer& b : m.buffers) {
        if (b.data == nullptr || b.lifetime != Lifetime::kPerStep || !is_new(m, b)) continue;
        Buffer copy = b;
        if (b.numel() == 0 || !rebind(m, "again", b.shape, &copy)) continue;
        const std::span<const std::byte> from = staged_bytes(m, b, b.all());
        const std::span<std::byte> to = staged_bytes(m, copy, copy.all());
        std::ranges::copy(from.first(std::min(from.size(), to.size())), to.begin());
        keep_staged(m, b, {});
        moved_.emplace_back(b.data, std::move(copy));
        act();
      }
    });
    return {};
  }
  void baked(Meta& meta, bool /*capturing*/) override { replace(meta, moved_); }

 protected:
  virtual bool is_new(const Meta& meta, const Buffer& b) const = 0;

 private:
  std::vector<std::pair<const void*, Buffer>> moved_;  // in this step, by where each was
};

/// All that a step writes.
struct ReallocatedMetadata final : Reallocated {
  bool is_new(const Meta& /*meta*/, const Buffer& /*b*/) const override { return true; }
};

/// The lengths of layers with a window: what clamps them returns a copy.
struct ReallocatedLengths final : Reallocated {
  bool is_new(const Meta& meta, const Buffer& b) const override {
    const std::string_view name = own_name(b);
    return std::ranges::any_of(meta.limits.model.layers, has_window) &&
           (name.ends_with("seqlens") || name == "kv_lens" || name == "window_kv_indptr" ||
            name == "wrapper0_kv_indptr");
  }
};

/// A draft extend is captured with as many queries for each request, and replayed with those that
/// were accepted: its launches keep the uniform offsets.
struct UniformOffsets final : Tap {
  void bound(Meta& meta, bool capturing) override {
    if (!capturing || !is_draft_extend(meta.limits.mode, DraftExtendV2::kIncluded)) return;
    for_buffers(meta, {"cu_seqlens_q", "qo_indptr"}, [&](const Meta& m, const Buffer& b) {
      Buffer uniform = b;
      uniform.lifetime = Lifetime::kConstant;
      if (b.lifetime != Lifetime::kPerStep || !rebind(m, "uniform", b.shape, &uniform)) return;
      int32_t end = 0;
      for (int32_t& offset : staged<int32_t>(m, uniform)) {
        offset = end;
        end = std::min(end + m.limits.max_q_len, m.limits.tokens);
      }
      uniform_.emplace_back(b.data, std::move(uniform));
    });
  }
  void baked(Meta& meta, bool /*capturing*/) override {
    const auto here = [&](const Buffer& b) {
      return std::ranges::any_of(uniform_, [&](const auto& u) { return u.first == b.data; });
    };
    for_buffers(meta, {"cu_seqlens_q", "qo_indptr"}, [&](const Meta&, const Buffer& b) {
      if (here(b)) act();
    });
    replace(meta, uniform_);
  }

 private:
  std::vector<std::pair<const void*, Buffer>> uniform_;  // by where the filled ones are
};

constexpr Fault kReplaysFaults[] = {
    // Offsets are written into the eager buffer.
    {"K12", "STALE",
     "Offsets of lists are rebuilt in the eager buffer, not in the one that the graph captured",
     "sglang#37975 fi.I-76 fi.I-85", "table.stale_offsets extent.stale",
     not_refilled<kRefilledOffsets>()},
    // Only the removed function of replays filled tables.
    {"K13", "STALE", "A replay does not fill its page table", "sglang#26019 fa.I-66 fa.I-68",
     "table.stale table.padding values.no_number", not_refilled<kRefilledTables>()},
    // Lengths and lists are new, and nobody plans again: a work list, or a number of splits.
    {"K14", "STALE", "A replay does not plan again", "rtp-llm#378 fi.I-61 fi.I-85",
     "extent.stale extent.short", not_refilled<kRefilledPlan>()},
    {"K19", "ALIAS", "Every replay makes new buffers for its metadata",
     "sglang#27664 fa.I-61 fi.I-73", "table.stale extent.stale", make_tap<ReallocatedMetadata>},
    {"K20", "ALIAS",
     "What clamps lengths to the window returns a copy, and the graph keeps the original",
     "lorax#666 fa.I-61 fi.I-12", "extent.stale extent.short", make_tap<ReallocatedLengths>},
    {"K18", "BAKED",
     "Draft extend is captured with uniform offsets of queries and replayed with others",
     "sglang#21987 sglang#19807 sglang#21984 fa.I-17 fa.I-92", "causal.shifted extent.short",
     make_tap<UniformOffsets>},
};

}  // namespace

std::span<const Fault> themes::replays() { return kReplaysFaults; }

}  // namespace shadowgraph
