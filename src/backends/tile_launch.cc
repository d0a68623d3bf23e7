#include "backends/tile_launch.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <vector>

#include "attn/lse.h"
#include "backends/attention_args.h"
#include "backends/tile_items.h"
#include "backends/tile_plan.h"
#include "core/float_formats.h"
#include "kernels/attend_part.h"
#include "kernels/spans.h"

namespace shadowgraph {

namespace {

enum Arg : uint8_t {
  kQ,
  kQoIndptr,
  kKvIndptr,
  kKvIndices,
  kCache,
  kK = kCache + kCacheArgs,
  kV,
  kMask,
  kMaskIndptr,
  kPrefixLens,
  kTokenPos,
  kMaxItemLens,
  kParams,
  kRequests = kParams + kParamsArgs,
  kQoTiles,
  kKvTiles,
  kOIndptr,
  kChunk,
  kValid,
  kOut,
  kLse,
  kScalars
};

struct TileScalars {
  RowsScalars q, k, v, out, lse;
  CacheScalars cache;
  ParamsScalars params;
  int64_t num_qo_indptr, num_kv_indptr, num_kv_indices, num_mask, num_mask_indptr;
  int64_t num_prefix_lens, num_token_pos, num_max_item_lens;
  int64_t num_items, num_qo_tiles, num_kv_tiles, num_o_indptr, num_chunk, num_valid;
  RequestRows rows;
  int32_t cta_tile_q;
  uint8_t split_kv, lse_base, unused[2];
};
static_assert(sizeof(TileScalars) ==
              5 * sizeof(RowsScalars) + sizeof(CacheScalars) + sizeof(ParamsScalars) + 16 * 8);

/// The kernel, run or only noted.
class Tiles {
 public:
  Tiles(const LaunchFrame& f, Footprint* spans)
      : s_(f.scalar<TileScalars>(kScalars)),
        spans_(spans),
        q_(view_of(f.pointer<void>(kQ), s_.q)),
        k_(view_of(f.pointer<void>(kK), s_.k)),
        v_(view_of(f.pointer<void>(kV), s_.v)),
        cache_(cache_of(f, kCache, s_.cache)),
        params_(params_of(f, kParams, s_.params, 0)),
        slots_(array_of<int32_t>(f, kKvIndices, s_.num_kv_indices)),
        out_(view_of(f.pointer<void>(kOut), s_.out)),
        lse_(view_of(f.pointer<void>(kLse), s_.lse)),
        plan_(reader_of(f, s_, spans)),
        mask_indptr_(f.pointer<int32_t>(kMaskIndptr), s_.num_mask_indptr, spans),
        mask_(f.pointer<uint8_t>(kMask), s_.num_mask, spans),
        items_(items_of(f, s_, spans)) {}

  void run() {
    for (int64_t i = 0; i < s_.num_items; ++i) {
      const std::optional<WorkItem> item = plan_.item(i);
      if (item) run_item(*item);
    }
  }

 private:
  static ItemReader items_of(const LaunchFrame& f, const TileScalars& s, Footprint* spans) {
    return {.prefix_lens = {f.pointer<const int32_t>(kPrefixLens), s.num_prefix_lens, spans},
            .token_pos = {f.pointer<const int32_t>(kTokenPos), s.num_token_pos, spans},
            .max_item_lens = {f.pointer<const int32_t>(kMaxItemLens), s.num_max_item_lens, spans}};
  }
  static PlanReader reader_of(const LaunchFrame& f, const TileScalars& s, Footprint* spans) {
    const auto ints = [&](size_t arg, int64_t size) {
      return IntArray(f.pointer<const int32_t>(arg), size, spans);
    };
    return {.group = s.params.num_qo_heads / std::max(1, s.params.num_kv_heads),
            .cta_tile_q = s.cta_tile_q,
            .split_kv = s.split_kv != 0,
            .qo_indptr = ints(kQoIndptr, s.num_qo_indptr),
            .kv_indptr = ints(kKvIndptr, s.num_kv_indptr),
            .requests = ints(kRequests, s.num_items),
            .qo_tiles = ints(kQoTiles, s.num_qo_tiles),
            .kv_tiles = ints(kKvTiles, s.num_kv_tiles),
            .o_indptr = ints(kOIndptr, s.num_o_indptr),
            .kv_chunk_size = ints(kChunk, s.num_chunk),
            .valid = {f.pointer<const uint8_t>(kValid), s.num_valid, spans}};
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
    if (spans_ != nullptr) add_rows_beyond(spans_, q_, item.q_begin, tokens.end, item.request);
    return end <= q_.shape[0] && item.row(tokens.begin) >= 0 &&
           item.row(tokens.end - 1) < out_.shape[0];
  }
  /// Does every key of the item have a place in the list, and is its chunk one?
  bool has_keys(const WorkItem& item) {
    if (item.keys.begin < 0 || item.keys.begin >= std::max<int64_t>(item.kv_len, 1)) return false;
    const bool paged = cache_.num_pages > 0;
    const int64_t known = paged ? std::ssize(slots_) : k_.shape[0];
    const int64_t first = item.kv_begin + item.keys.begin, keys = item.keys.size();
    if (first + keys <= known) return true;
    const ConstTensorView list(slots_.data(), DType::kI32, {known});
    if (spans_ != nullptr) add_rows_beyond(spans_, paged ? list : k_, first, keys, item.request);
    return false;
  }
  /// Bits of those tokens and the item's keys become bytes. False where some lie outside.
  bool copy_mask(const WorkItem& item, TileRange tokens, std::vector<uint8_t>* pairs) {
    if (s_.num_mask_indptr == 0) return true;
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
    p.q = rows_of(q_, item.q_begin + tokens.begin, tokens.size());
    p.keys.cache = cache_;
    if (cache_.num_pages > 0) {
      p.keys.slots = slots_.subspan(static_cast<size_t>(first_key), static_cast<size_t>(keys));
    } else {
      p.keys.k = rows_of(k_, first_key, keys);
      p.keys.v = rows_of(v_, first_key, keys);
    }
    p.q_position = item.kv_len - item.q_len + tokens.begin;
    p.key_position = item.keys.begin;
    p.head_begin = static_cast<int32_t>(segment.heads.begin);
    p.head_end = static_cast<int32_t>(segment.heads.end);
    p.mask = mask;
    p.mask_stride = keys;
    p.params = params_;
    if (s_.num_mask_indptr > 0) p.params.causal = false;
    if (!item.first_chunk) p.params.sinks = {};
    const int64_t row = item.row(tokens.begin);
    p.out = rows_of(out_, row, tokens.size(), item.out_step);
    if (lse_.defined()) p.lse = NaturalLse(rows_of(lse_, row, tokens.size(), item.out_step));
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
      spans_->push_back(
          {slots_.data(), first, item.keys.size(), sizeof(int32_t), Access::kRead, item.request});
    for (const int32_t slot : p.keys.slots) {
      if (slot < 0 || slot >= cache_.num_pages)
        add_beyond_pool(spans_, cache_, slot, Access::kRead, item.request);
    }
    lose(item, segment);
  }

  /// fn(row, head) of every row of a segment.
  template <class Fn>
  void for_each_row(const WorkItem& item, const TileSegment& segment, const Fn& fn) const {
    const TileRange heads = segment.heads.size() > 0 ? segment.heads : TileRange{0, plan_.group};
    // Of a length that is corrupt no more than leads outside.
    const int64_t end = std::min(segment.tokens.end, segment.tokens.begin + out_.shape[0] + 1);
    for (int64_t token = segment.tokens.begin; token < end; ++token) {
      for (int64_t kv_head = 0; kv_head < params_.num_kv_heads; ++kv_head) {
        for (int64_t g = heads.begin; g < heads.end; ++g)
          fn(item.row(token), kv_head * plan_.group + g);
      }
    }
  }
  /// In base 2 first, whichever is asked for: so it has the same bits where one item computes a row
  /// and where several do, all but one of which weigh nothing.
  void to_base(const WorkItem& item, const TileSegment& segment) const {
    if (!lse_.defined()) return;
    const AnyLse natural(lse_, LseBase::kNatural), log2(lse_, LseBase::kLog2);
    for_each_row(item, segment, [&](int64_t row, int64_t head) {
      std::byte* const at = lse_.at(row, head);
      store_float(at, DType::kF32, 0, load_lse<LseBase::kLog2>(natural, row, head));
      if (s_.lse_base == 0)
        store_float(at, DType::kF32, 0, load_lse<LseBase::kNatural>(log2, row, head));
    });
  }
  void lose(const WorkItem& item, const TileSegment& segment) const {
    for (const TensorView& t : {out_, lse_})
      for_each_row(item, segment, [&](int64_t row, int64_t head) {
        lose_head(t, row, head, item.request, spans_);
      });
  }

  TileScalars s_;
  Footprint* spans_;
  ConstTensorView q_, k_, v_;
  KvCache cache_;
  AttentionParams params_;
  std::span<const int32_t> slots_;
  TensorView out_, lse_;
  PlanReader plan_;
  IntArray mask_indptr_;
  CheckedArray<const uint8_t> mask_;
  ItemReader items_;
};

Progress body(LaunchFrame& f) {
  Tiles(f, nullptr).run();
  return Progress::kDone;
}

void footprint(const LaunchFrame& f, Footprint* spans) {
  Tiles(f, spans).run();
  name_requests(f.scalar<TileScalars>(kScalars).rows, spans);
}

TileScalars scalars_of(const TiledAttention& c) {
  TileScalars s{};
  s.q = scalars_of(c.q), s.k = scalars_of(c.k), s.v = scalars_of(c.v);
  s.out = scalars_of(c.out), s.lse = scalars_of(c.lse.tensor);
  s.cache = scalars_of(c.cache);
  s.params = scalars_of(c.params, {}, 0);
  s.num_qo_indptr = std::ssize(c.qo_indptr), s.num_kv_indptr = std::ssize(c.kv_indptr);
  s.num_kv_indices = std::ssize(c.kv_indices);
  s.num_mask = std::ssize(c.packed_mask), s.num_mask_indptr = std::ssize(c.mask_indptr);
  s.num_prefix_lens = std::ssize(c.items.prefix_lens);
  s.num_token_pos = std::ssize(c.items.token_pos);
  s.num_max_item_lens = std::ssize(c.items.max_item_lens);
  s.num_items = std::ssize(c.plan.request_indices);
  s.num_qo_tiles = std::ssize(c.plan.qo_tile_indices);
  s.num_kv_tiles = std::ssize(c.plan.kv_tile_indices);
  s.num_o_indptr = std::ssize(c.plan.o_indptr);
  s.num_chunk = std::ssize(c.plan.kv_chunk_size);
  s.num_valid = std::ssize(c.plan.block_valid_mask);
  s.cta_tile_q = c.plan.cta_tile_q;
  s.split_kv = c.plan.split_kv;
  s.lse_base = c.lse.base == LseBase::kLog2;
  return s;
}

}  // namespace

constinit const Kernel kTiledAttention{
    .name = "tiled_attention", .body = body, .footprint = footprint};

KernelLaunch tile_launch(const TiledAttention& c, const RequestRows& rows) {
  assert((c.plan.cta_tile_q > 0 || c.plan.qo_tile_indices.empty()) &&
         c.params.custom_mask.kind == CustomMask::Kind::kNone &&
         (c.items.prefix_lens.empty() || c.mask_indptr.empty()));
  TileScalars scalars = scalars_of(c);
  scalars.rows = rows;
  KernelLaunch launch;
  launch.kernel = &kTiledAttention;
  launch.grid.x = static_cast<uint32_t>(std::max<int64_t>(1, scalars.num_items));
  launch.args.pointer(c.q.data)
      .pointer(c.qo_indptr.data())
      .pointer(c.kv_indptr.data())
      .pointer(c.kv_indices.data());
  add_cache(launch.args, c.cache)
      .pointer(c.k.data)
      .pointer(c.v.data)
      .pointer(c.packed_mask.data())
      .pointer(c.mask_indptr.data())
      .pointer(c.items.prefix_lens.data())
      .pointer(c.items.token_pos.data())
      .pointer(c.items.max_item_lens.data());
  add_params(launch.args, c.params)
      .pointer(c.plan.request_indices.data())
      .pointer(c.plan.qo_tile_indices.data())
      .pointer(c.plan.kv_tile_indices.data())
      .pointer(c.plan.o_indptr.data())
      .pointer(c.plan.kv_chunk_size.data())
      .pointer(c.plan.block_valid_mask.data())
      .pointer(c.out.data)
      .pointer(c.lse.tensor.data)
      .scalar(scalars);
  return launch;
}

}  // namespace shadowgraph
