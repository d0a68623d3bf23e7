#include "launch/tile_launch.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <vector>

#include "attn/lse.h"
#include "core/float_formats.h"
#include "kernels/dense/attend_part.h"
#include "kernels/spans.h"
#include "launch/tile_items.h"
#include "launch/tile_plan.h"

namespace shadowgraph {

namespace {

/// The kernel, run or only noted.
class Tiles {
 public:
  Tiles(const TiledAttention& c, Footprint* spans)
      : c_(c),
        spans_(spans),
        plan_(reader_of(c, spans)),
        mask_indptr_(array(c.mask_indptr, spans)),
        mask_(array(c.packed_mask, spans)),
        items_{array(c.items.prefix_lens, spans), array(c.items.token_pos, spans),
               array(c.items.max_item_lens, spans)} {}

  void run() {
    for (int64_t i = 0; i < std::ssize(c_.plan.request_indices); ++i) {
      const std::optional<WorkItem> item = plan_.item(i);
      if (item) run_item(*item);
    }
  }

 private:
  template <class T>
  static CheckedArray<const T> array(std::span<const T> of, Footprint* spans) {
    return {of.data(), std::ssize(of), spans};
  }
  static PlanReader reader_of(const TiledAttention& c, Footprint* spans) {
    return {.group = c.params.num_qo_heads / std::max(1, c.params.num_kv_heads),
            .cta_tile_q = c.plan.cta_tile_q,
            .split_kv = c.plan.split_kv,
            .qo_indptr = array(c.qo_indptr, spans),
            .kv_indptr = array(c.kv_indptr, spans),
            .requests = array(c.plan.request_indices, spans),
            .qo_tiles = array(c.plan.qo_tile_indices, spans),
            .kv_tiles = array(c.plan.kv_tile_indices, spans),
            .o_indptr = array(c.plan.o_indptr, spans),
            .kv_chunk_size = array(c.plan.kv_chunk_size, spans),
            .valid = array(c.plan.block_valid_mask, spans)};
  }

  void run_item(const WorkItem& item) {
    const bool sound = has_rows(item) && has_keys(item);
    for (const TileSegment& segment : segments_of(item.packed, plan_.group)) {
      std::vector<uint8_t> mask;
      if (sound && copy_mask(item, segment.tokens, &mask) &&
          items_.hide(item, segment.tokens, &mask)) {
        attend(item, part_of(item, segment, mask), segment);
      } else {
        lose(item, segment);
      }
    }
  }
  /// Does every row of the item exist, in q and in out?
  bool has_rows(const WorkItem& item) {
    const TileRange tokens = {item.packed.begin / plan_.group,
                              (item.packed.end - 1) / plan_.group + 1};
    const int64_t end = item.q_begin + tokens.end;
    if (spans_ != nullptr) add_rows_beyond(spans_, c_.q, item.q_begin, tokens.end, item.request);
    return end <= c_.q.shape[0] && item.row(tokens.begin) >= 0 &&
           item.row(tokens.end - 1) < c_.out.shape[0];
  }
  /// Does every key of the item have a place in the list, and is its chunk one?
  bool has_keys(const WorkItem& item) {
    if (item.keys.begin < 0 || item.keys.begin >= std::max<int64_t>(item.kv_len, 1)) return false;
    const bool paged = c_.cache.num_pages > 0;
    const int64_t known = paged ? std::ssize(c_.kv_indices) : c_.k.shape[0];
    const int64_t first = item.kv_begin + item.keys.begin, keys = item.keys.size();
    if (first + keys <= known) return true;
    const ConstTensorView list(c_.kv_indices.data(), DType::kI32, {known});
    if (spans_ != nullptr) add_rows_beyond(spans_, paged ? list : c_.k, first, keys, item.request);
    return false;
  }
  /// Bits of those tokens and the item's keys become bytes. False where some lie outside.
  bool copy_mask(const WorkItem& item, TileRange tokens, std::vector<uint8_t>* pairs) {
    if (c_.mask_indptr.empty()) return true;
    const auto begin = mask_indptr_.load(item.request, item.request);
    if (!begin) return false;
    for (int64_t q = tokens.begin; q < tokens.end; ++q) {
      uint8_t bits = 0;
      for (int64_t k = item.keys.begin; k < item.keys.end; ++k) {
        const int64_t pair = q * item.kv_len + k;
        if (k == item.keys.begin || pair % 8 == 0) {
          const auto byte = mask_.load(*begin + pair / 8, item.request);
          if (!byte) return false;
          bits = *byte;
        }
        pairs->push_back(bits >> (pair % 8) & 1);
      }
    }
    return true;
  }

  AttentionPart part_of(const WorkItem& item, const TileSegment& segment,
                        std::span<const uint8_t> mask) const {
    const TileRange tokens = segment.tokens;
    const int64_t first_key = item.kv_begin + item.keys.begin, keys = item.keys.size();
    AttentionPart p;
    p.q = rows_of(c_.q, item.q_begin + tokens.begin, tokens.size());
    p.keys.cache = c_.cache;
    if (c_.cache.num_pages > 0) {
      p.keys.slots =
          c_.kv_indices.subspan(static_cast<size_t>(first_key), static_cast<size_t>(keys));
    } else {
      p.keys.k = rows_of(c_.k, first_key, keys);
      p.keys.v = rows_of(c_.v, first_key, keys);
    }
    p.q_position = item.kv_len - item.q_len + tokens.begin;
    p.key_position = item.keys.begin;
    p.head_begin = static_cast<int32_t>(segment.heads.begin);
    p.head_end = static_cast<int32_t>(segment.heads.end);
    p.mask = mask;
    p.mask_stride = keys;
    p.params = c_.params;
    if (!c_.mask_indptr.empty()) p.params.causal = false;
    if (!item.first_chunk) p.params.sinks = {};
    const int64_t row = item.row(tokens.begin);
    p.out = rows_of(c_.out, row, tokens.size(), item.out_step);
    if (c_.lse.tensor.defined())
      p.lse = NaturalLse(rows_of(c_.lse.tensor, row, tokens.size(), item.out_step));
    p.options.num_threads = 1;
    p.options.lse_sink = LseSink::kIncluded;
    return p;
  }
  void attend(const WorkItem& item, const AttentionPart& p, const TileSegment& segment) {
    if (spans_ == nullptr) {
      if (!attend_part(p).ok()) return lose(item, segment);
      to_base(item, segment);
      return;
    }
    if (validate(p).ok()) return add_part_footprint(p, item.request, spans_);
    const int64_t first = item.kv_begin + item.keys.begin;
    if (!p.keys.slots.empty())
      spans_->push_back({c_.kv_indices.data(), first, item.keys.size(), sizeof(int32_t),
                         Access::kRead, item.request});
    for (const int32_t slot : p.keys.slots) {
      if (slot < 0 || slot >= c_.cache.num_pages)
        add_beyond_pool(spans_, c_.cache, slot, Access::kRead, item.request);
    }
    lose(item, segment);
  }

  /// fn(row, head) of every row of a segment.
  template <class Fn>
  void for_each_row(const WorkItem& item, const TileSegment& segment, const Fn& fn) const {
    const TileRange heads = segment.heads.size() > 0 ? segment.heads : TileRange{0, plan_.group};
    // A corrupt length runs only one row beyond the outputs.
    const int64_t end = std::min(segment.tokens.end, segment.tokens.begin + c_.out.shape[0] + 1);
    for (int64_t token = segment.tokens.begin; token < end; ++token) {
      for (int64_t kv_head = 0; kv_head < c_.params.num_kv_heads; ++kv_head) {
        for (int64_t g = heads.begin; g < heads.end; ++g)
          fn(item.row(token), kv_head * plan_.group + g);
      }
    }
  }
  /// In base 2 first, whichever is asked for: so it has the same bits where one item computes a row
  /// and where several do, all but one of which weigh nothing.
  void to_base(const WorkItem& item, const TileSegment& segment) const {
    if (!c_.lse.tensor.defined()) return;
    const AnyLse natural(c_.lse.tensor, LseBase::kNatural), log2(c_.lse.tensor, LseBase::kLog2);
    for_each_row(item, segment, [&](int64_t row, int64_t head) {
      std::byte* const at = c_.lse.tensor.at(row, head);
      store_float(at, DType::kF32, 0, load_lse<LseBase::kLog2>(natural, row, head));
      if (c_.lse.base == LseBase::kNatural)
        store_float(at, DType::kF32, 0, load_lse<LseBase::kNatural>(log2, row, head));
    });
  }
  void lose(const WorkItem& item, const TileSegment& segment) const {
    for (const TensorView& t : {c_.out, c_.lse.tensor})
      for_each_row(item, segment, [&](int64_t row, int64_t head) {
        lose_head(t, row, head, item.request, spans_);
      });
  }

  TiledAttention c_;
  Footprint* spans_;
  PlanReader plan_;
  IntArray mask_indptr_;
  CheckedArray<const uint8_t> mask_;
  ItemReader items_;
};

}  // namespace

constinit const Kernel kTiledAttention = walked_kernel<TiledAttention, Tiles>("tiled_attention");

KernelLaunch tile_launch(const TiledAttention& call, const RequestRows& rows) {
  assert((call.plan.cta_tile_q > 0 || call.plan.qo_tile_indices.empty()) &&
         call.params.custom_mask.kind == CustomMask::Kind::kNone &&
         (call.items.prefix_lens.empty() || call.mask_indptr.empty()));
  return launch_of(kTiledAttention, call, rows, std::ssize(call.plan.request_indices));
}

}  // namespace shadowgraph
