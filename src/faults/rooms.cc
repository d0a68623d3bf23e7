#include "faults/rooms.h"

#include <algorithm>

#include "attn/page_table.h"
#include "backends/csr_rows.h"
#include "faults/buffers.h"

namespace shadowgraph {
namespace {

constexpr const char* kSmall = "small";  // the scope of what is bound anew

/// The columns that cached keys need.
int64_t cached_columns(const Meta& meta, const Buffer& table) {
  const Limits& l = meta.limits;
  const auto unit = meta.units[static_cast<size_t>(&table - meta.buffers.data())];
  const int32_t appended = l.mode == ForwardMode::kDraftDecode ? l.step + 1 : l.max_q_len;
  return std::min(table.shape[1], pages_for(std::max(0, l.max_kv_len - appended), unit));
}

/// fn(meta, table) of tables that lose a column. A tree's drafts have tables of their own, and a
/// rank's columns stand for several pages.
template <class M, class Fn>
void for_narrow_tables(M& meta, Fn fn) {
  for_buffers(meta, {"page_table", "swa_page_table"}, [&](auto& m, auto& b) {
    const bool whole = !is_draft_tree(m.limits) && !is_verify_tree(m.limits);
    if (whole && m.limits.model.dcp_size == 1 && b.lifetime == Lifetime::kPerStep &&
        cached_columns(m, b) < b.shape[1])
      fn(m, b);
  });
}

/// Query heads that share a KV head.
int32_t largest_group(const Limits& limits) {
  int32_t most = 1;
  for (const LayerKind& k : limits.model.layers)
    most = std::max(most, k.params.num_qo_heads / std::max(1, k.params.num_kv_heads));
  return most;
}

}  // namespace

void ListsOfOneBranch::bound(Meta& meta, bool capturing) {
  if (!capturing) return;
  for_endings(meta, {"kv_indices"}, [&](const Meta& m, Buffer& b) {
    if (!is_draft_tree(m.limits)) return;
    b.shape[0] /= lists_a_row(m.limits);
    act();
  });
}

/// Rows follow each other as narrow as they are: so the column behind a row's last is the next
/// row's first.
Status TableWithoutNewKeys::filled(const ForwardBatch& /*batch*/, Meta& meta) {
  for_narrow_tables(meta, [&](const Meta& m, const Buffer& b) {
    const int64_t width = b.shape[1], columns = cached_columns(m, b), rows = b.shape[0];
    const std::span<int32_t> ids = staged<int32_t>(m, b);
    if (ids.empty()) return;
    for (int64_t i = 0; i < rows; ++i)
      std::copy_n(ids.begin() + i * width, columns, ids.begin() + i * columns);
    keep_staged(m, b, {0, rows * columns});
    Arena arena = m.arena;
    (void)arena.retire(b, {rows * columns, rows * (width - columns)});
    act();
  });
  return {};
}

void TableWithoutNewKeys::baked(Meta& meta, bool /*capturing*/) {
  for_narrow_tables(meta, [](const Meta& m, Buffer& b) { b.shape[1] = cached_columns(m, b); });
}

void SplitsOfTheCapture::bound(Meta& meta, bool capturing) {
  if (!capturing) return;
  for_buffers(meta, {"partial_out", "partial_lse"}, [&](const Meta& m, Buffer& b) {
    const int64_t rows = std::min<int64_t>(b.shape[0], m.limits.tokens);
    if (rows < b.shape[0] && rebind(m, kSmall, {rows, b.shape[1]}, &b)) act();
  });
}

Status SplitsOfTheCapture::filled(const ForwardBatch& batch, Meta& meta) {
  if (!is_replay(batch, meta)) return {};
  for_endings(meta, {"num_kv_splits"}, [&](const Meta& m, const Buffer& b) {
    if (std::ranges::any_of(staged<int32_t>(m, b), [](int32_t n) { return n > 1; })) act();
  });
  return {};
}

void SplitsOfTheCapture::baked(Meta& meta, bool /*capturing*/) {
  if (!of_graph(meta)) return;
  for_buffers(meta, {"num_kv_splits"},
              [](Meta& m, const Buffer&) { m.limits.model.split.off = true; });
}

void PartialsFreed::bound(Meta& meta, bool /*capturing*/) {
  for_metas(meta, [&](Meta& m) {
    Arena setup = m.arena.scope("setup");
    for (Buffer& b : m.buffers) {
      const bool partial = b.lifetime == Lifetime::kScratch &&
                           (own_name(b).ends_with("_out") || own_name(b).ends_with("lse") ||
                            own_name(b).ends_with("logits"));
      if (b.data != nullptr && partial && rebind(m, "setup", b.shape, &b)) act();
    }
    setup.unbind();
  });
}

void WindowWithoutQuery::bound(Meta& meta, bool capturing) {
  if (!capturing) return;
  for_buffers(meta, {"window_kv_indices", "wrapper0_kv_indices"}, [&](const Meta& m, Buffer& b) {
    const auto layer = std::ranges::find_if(m.limits.model.layers, has_window);
    if (layer == m.limits.model.layers.end() ||
        layer->params.window_left + m.limits.max_q_len > m.limits.max_kv_len)
      return;
    b.shape[0] -= std::min(b.shape[0], int64_t{m.limits.rows} * lists_a_row(m.limits));
    act();
  });
}

void PartialsBeforeGroups::bound(Meta& meta, bool /*capturing*/) {
  for_buffers(meta, {"attn_logits", "attn_lse", "partial_out", "partial_lse"},
              [&](const Meta& m, Buffer& b) {
                const int32_t group = largest_group(m.limits);
                std::vector<int64_t> shape = b.shape;
                int64_t& room =
                    shape[shape.size() > 2 ? 2 : 0];  // splits of a row, or partial rows
                if (group == 1 || room <= 1) return;
                room = (room + group - 1) / group;
                if (rebind(m, kSmall, std::move(shape), &b)) act();
              });
}

void HeadsOfTheTarget::limits(Limits& limits) {
  const ForwardMode m = limits.mode;
  if (m != ForwardMode::kDraftDecode && !is_draft_extend(m, DraftExtendV2::kIncluded)) return;
  for (LayerKind& layer : limits.model.layers) {
    // With groups of 4 FlashInfer has another kernel.
    if (layer.params.num_qo_heads != 3 * layer.params.num_kv_heads) continue;
    layer.params.num_qo_heads = layer.params.num_kv_heads;
    act();
  }
}

}  // namespace shadowgraph
