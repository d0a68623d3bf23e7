// Faults of room: buffers that are too small for what a step writes or reads, or are gone.

#include <algorithm>

#include "attn/page_table.h"
#include "backends/fill/csr_rows.h"
#include "faults/plant.h"

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

/// Does the list have room for one window a row, and hold the query's own keys? Triton's verify has
/// these beside the list.
bool is_full_of_a_window(const Meta& m, const Buffer& list) {
  const Limits& l = m.limits;
  const auto layer = std::ranges::find_if(l.model.layers, has_window);
  const bool beside = own_name(list) == "window_kv_indices" && is_target_verify(l.mode);
  return !beside && layer != l.model.layers.end() &&
         layer->params.window_left + l.max_q_len <= l.max_kv_len;
}

/// Query heads that share a KV head.
int32_t largest_group(const Limits& limits) {
  int32_t most = 1;
  for (const LayerKind& k : limits.model.layers)
    most = std::max(most, k.params.num_qo_heads / std::max(1, k.params.num_kv_heads));
  return most;
}

/// Tables have columns for the cached keys, and none for those that the step appends; the kernel
/// takes the column anyway.
/// Rows follow each other as narrow as they are: so the column behind a row's last is the next
/// row's first.
struct TableWithoutNewKeys final : Tap {
  Status filled(const ForwardBatch& /*batch*/, Meta& meta) override {
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
  void baked(Meta& meta, bool /*capturing*/) override {
    for_narrow_tables(meta, [](const Meta& m, Buffer& b) { b.shape[1] = cached_columns(m, b); });
  }
};

/// A graph is captured with the splits of its dummy batch, one a row, and replayed with more:
/// partial results have room for one, or the grid has.
struct SplitsOfTheCapture final : Tap {
  void bound(Meta& meta, bool capturing) override {
    if (!capturing) return;
    for_buffers(meta, {"partial_out", "partial_lse"}, [&](const Meta& m, Buffer& b) {
      const int64_t rows = std::min<int64_t>(b.shape[0], m.limits.tokens);
      if (rows < b.shape[0] && rebind(m, kSmall, {rows, b.shape[1]}, &b)) act();
    });
  }
  Status filled(const ForwardBatch& batch, Meta& meta) override {
    if (!is_replay(batch, meta)) return {};
    for_endings(meta, {"num_kv_splits", "scheduler_metadata"}, [&](const Meta& m, const Buffer& b) {
      if (std::ranges::any_of(staged<int32_t>(m, b), [](int32_t n) { return n > 1; })) act();
    });
    return {};
  }
  void baked(Meta& meta, bool /*capturing*/) override {
    if (!meta.limits.is_bucket()) return;
    for_buffers(meta, {"num_kv_splits", "scheduler_metadata"},
                [](Meta& m, const Buffer&) { m.limits.model.split.off = true; });
  }
};

constexpr Fault kRoomsFaults[] = {
    // A graph's lists of a draft tree have room for one branch of each request.
    {"K05", "OOBW", "A graph's lists of a draft lack the factor topk",
     "sglang#27338 fi.I-25 fa.I-95", "", on_bound([](Tap& tap, Meta& meta, bool capturing) {
       if (!capturing) return;
       for_endings(meta, {"kv_indices"}, [&](const Meta& m, Buffer& b) {
         if (!is_draft_tree(m.limits)) return;
         b.shape[0] /= lists_a_row(m.limits);
         tap.act();
       });
     })},
    {"K08", "OOBR", "A table is read past its last column when the new keys are counted",
     "flash-attention#2711 flash-attention#2709 fa.I-27", "values.no_number extent.long",
     make_tap<TableWithoutNewKeys>},
    {"K17", "BAKED", "A replay cuts keys into more splits than its capture",
     "vllm#20301 fa.I-64 fa.I-75", "values.no_number", make_tap<SplitsOfTheCapture>},
    // Partial results are allocated, their addresses kept, and the memory given back before a
    // kernel runs.
    {"K21", "ALIAS", "Partial results are freed before the kernel runs",
     "flash-attention#1085 fa.I-61", "values.no_number", on_bound([](Tap& tap, Meta& meta, bool) {
       for_metas(meta, [&](Meta& m) {
         Arena setup = m.arena.scope("setup");
         for (Buffer& b : m.buffers) {
           const bool partial = b.lifetime == Lifetime::kScratch &&
                                (own_name(b).ends_with("_out") || own_name(b).ends_with("lse") ||
                                 own_name(b).ends_with("logits"));
           if (b.data != nullptr && partial && rebind(m, "setup", b.shape, &b)) tap.act();
         }
         setup.unbind();
       });
     })},
    // A graph's lists of a window have room for the keys before the query, and none for its own.
    {"K35", "WINOFF", "A captured window has room for one key too few",
     "tokenspeed#613 fa.I-27 fi.I-32", "window.shorter extent.none",
     on_bound([](Tap& tap, Meta& meta, bool capturing) {
       if (!capturing) return;
       for_buffers(
           meta, {"window_kv_indices", "wrapper0_kv_indices"}, [&](const Meta& m, Buffer& b) {
             if (!is_full_of_a_window(m, b)) return;
             b.shape[0] -= std::min(b.shape[0], int64_t{m.limits.rows} * lists_a_row(m.limits));
             tap.act();
           });
     })},
    // Room for partial results is counted before it is known how many query heads share a KV head.
    {"K61", "SPLIT", "Splits are counted before the flags that they depend on are set",
     "flash-attention@5fab9385 fi.I-59", "values.no_number",
     on_bound([](Tap& tap, Meta& meta, bool) {
       for_buffers(meta, {"attn_logits", "attn_lse", "partial_out", "partial_lse"},
                   [&](const Meta& m, Buffer& b) {
                     const int32_t group = largest_group(m.limits);
                     std::vector<int64_t> shape = b.shape;
                     int64_t& room =
                         shape[shape.size() > 2 ? 2 : 0];  // splits of a row, or partial rows
                     if (group == 1 || room <= 1) return;
                     room = (room + group - 1) / group;
                     if (rebind(m, kSmall, std::move(shape), &b)) tap.act();
                   });
     })},
    // The draft's metadata is made for the target's heads, here of one to a KV head.
    {"K82", "OTHER", "The draft's metadata is made for the target's heads", "vllm#39775 fi.I-59",
     "values.no_number", on_limits([](Tap& tap, Limits& limits) {
       const ForwardMode m = limits.mode;
       if (m != ForwardMode::kDraftDecode && !is_draft_extend(m, DraftExtendV2::kIncluded)) return;
       for (LayerKind& layer : limits.model.layers) {
         // With groups of 4 FlashInfer has another kernel.
         if (layer.params.num_qo_heads != 3 * layer.params.num_kv_heads) continue;
         layer.params.num_qo_heads = layer.params.num_kv_heads;
         tap.act();
       }
     })},
};

}  // namespace

std::span<const Fault> themes::rooms() { return kRoomsFaults; }

}  // namespace shadowgraph
