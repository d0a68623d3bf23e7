#include "faults/replays.h"

#include <algorithm>
#include <cstring>

#include "backends/rows.h"
#include "faults/buffers.h"

namespace shadowgraph {
namespace {

constexpr std::string_view kOffsets[] = {"kv_indptr"};
constexpr std::string_view kTables[] = {"page_table",   "draft_table", "tree_table",
                                        "merged_table", "local_table", "encoder_table"};
constexpr std::string_view kPlan[] = {"_request_indices",  "_qo_tile_indices", "_kv_tile_indices",
                                      "_o_indptr",         "_merge_indptr",    "_kv_chunk_size",
                                      "_block_valid_mask", "num_kv_splits",    "tile_metadata"};

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

}  // namespace

Status NotRefilled::filled(const ForwardBatch& batch, Meta& meta) {
  if (!is_replay(batch, meta)) return {};
  for_endings(meta, endings_, [&](const Meta& m, const Buffer& b) {
    if (b.lifetime != Lifetime::kPerStep || b.numel() == 0) return;
    Arena arena = m.arena;
    arena.discard(b);
    act();
  });
  return {};
}

OffsetsOfTheCapture::OffsetsOfTheCapture() : NotRefilled(kOffsets) {}
TablesOfTheCapture::TablesOfTheCapture() : NotRefilled(kTables) {}
PlanOfTheCapture::PlanOfTheCapture() : NotRefilled(kPlan) {}

Status Reallocated::filled(const ForwardBatch& batch, Meta& meta) {
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

void Reallocated::baked(Meta& meta, bool /*capturing*/) { replace(meta, moved_); }

bool ReallocatedMetadata::is_new(const Meta& /*meta*/, const Buffer& /*b*/) const { return true; }

bool ReallocatedLengths::is_new(const Meta& meta, const Buffer& b) const {
  const std::string_view name = own_name(b);
  return std::ranges::any_of(meta.limits.model.layers, has_window) &&
         (name.ends_with("seqlens") || name == "kv_lens" || name == "window_kv_indptr" ||
          name == "wrapper0_kv_indptr");
}

void UniformOffsets::bound(Meta& meta, bool capturing) {
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

void UniformOffsets::baked(Meta& meta, bool /*capturing*/) {
  const auto here = [&](const Buffer& b) {
    return std::ranges::any_of(uniform_, [&](const auto& u) { return u.first == b.data; });
  };
  for_buffers(meta, {"cu_seqlens_q", "qo_indptr"}, [&](const Meta&, const Buffer& b) {
    if (here(b)) act();
  });
  replace(meta, uniform_);
}

}  // namespace shadowgraph
