// What a warp of decode_fast.cu does when: its team's requests one after the other, their keys in
// tiles, and the copies of the next tiles, which run ahead of it into the next requests.
#pragma once

#include <algorithm>

#include "attn/mask.h"
#include "cuda/kernels/planes.cuh"
#include "cuda/kernels/tensor_core.cuh"

namespace shadowgraph::cuda::decoding {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kTile = 16;  // keys
constexpr int kRows = 16;  // query heads of a KV head, at most
constexpr unsigned kMostBlocks = 16;

/// What a warp found in its keys, of all rows: o is in that slot of its tiles.
struct Left {
  float m[kRows], d[kRows];
  uint32_t slot, unsound;
};
/// What a block of the cluster found, of a row.
template <int D>
struct Sent {
  float o[D], m, d;
  uint32_t unsound;
};

/// Shared memory: tiles of each warp, kStages of them there or on their way; what each has left;
/// what all blocks of the cluster have sent, of the rows that this one merges.
template <int D, int kStages>
struct Room {
  static constexpr int kTileBytes = kTile * D * 2;  // of K, of V
  static constexpr int kSlotBytes = 2 * kTileBytes;
  static constexpr int kLeft = kWarps * kStages * kSlotBytes;
  static constexpr int kSent = kLeft + kWarps * static_cast<int>(sizeof(Left));
  static constexpr int kMostSent = kRows + static_cast<int>(kMostBlocks) - 2;
  static constexpr int kBytes = kSent + kMostSent * static_cast<int>(sizeof(Sent<D>));
  static_assert(kRows * D * 4 == kSlotBytes);

  __device__ static std::byte* tile(int warp, int slot, bool values) {
    return shared_memory() + (warp * kStages + slot) * kSlotBytes + (values ? kTileBytes : 0);
  }
  /// The place of a row's dim; eights change places, so that rows that are written together lie in
  /// banks of their own.
  __device__ static float* o(int warp, uint32_t slot, int row, int dim) {
    return reinterpret_cast<float*>(tile(warp, static_cast<int>(slot), false)) + row * D +
           (dim ^ ((row & 3) << 3));
  }
  __device__ static Left& left(int warp) {
    return reinterpret_cast<Left*>(shared_memory() + kLeft)[warp];
  }
  __device__ static Sent<D>& sent(int row, int rank, int ranks) {
    return reinterpret_cast<Sent<D>*>(shared_memory() + kSent)[row / ranks * ranks + rank];
  }
};

/// Strides of rows, in columns of eight elements.
struct Strides {
  uint32_t page, token, head;
};

/// A launch, as all its blocks see it.
struct Call {
  const std::byte *k, *v;
  Strides of_k, of_v;
  const int32_t *pages, *seqlens, *kv_indptr;
  int32_t page_shift, num_pages, kv_heads, group;
  int32_t items, step;  // requests times KV heads; from a team's item to its next
  float scale, cap;     // base 2
};

__device__ inline Strides strides_of(const KvTokens& t) {
  return {static_cast<uint32_t>(t.page_stride / 8), static_cast<uint32_t>(t.token_stride / 8),
          static_cast<uint32_t>(t.head_stride / 8)};
}

/// A warp in its team, and the team in its block: along x, and along y.
struct Member {
  int warp, lane;         // of the block, of the warp
  int team, rank, warps;  // the team's number, the warp's in it, how many it has

  __device__ Member()
      : lane(static_cast<int>(threadIdx.x) % 32),
        team(static_cast<int>(threadIdx.y)),
        rank(static_cast<int>(threadIdx.x) / 32),
        warps(static_cast<int>(blockDim.x) / 32) {
    warp = team * warps + rank;
  }
  __device__ int first_warp() const { return warp - rank; }
  __device__ int thread() const { return rank * 32 + lane; }
  __device__ int threads() const { return warps * 32; }
  __device__ void sync() const { sync_named(1 + team, threads()); }
};

/// A request's keys, as far as they are this block's, of one KV head.
struct Item {
  const int32_t* page_ids;
  int32_t request, head, begin, end;
  bool sound;  // its metadata leads nowhere else

  /// Tiles of a warp: as many as its team has warps lie between two of them.
  __device__ int tiles(const Member& me) const {
    return ((end - begin + kTile - 1) / kTile - me.rank + me.warps - 1) / me.warps;
  }
  __device__ int32_t first_key(const Member& me, int tile) const {
    return begin + (me.rank + tile * me.warps) * kTile;
  }
};

/// length: seqlens[request].
__device__ inline Item item_of(const Call& c, const PagedAttention& s, int32_t number,
                               int32_t length) {
  Item item{nullptr, number / c.kv_heads, number % c.kv_heads, 0, 0, true};
  const RequestKeys keys = keys_of_request(s, c.pages, c.kv_indptr, item.request, length);
  item.page_ids = keys.page_ids, item.sound = keys.sound;
  const MaskShape shape{1, item.sound ? keys.kv_len : 0, s.params.causal, s.params.window_left,
                        s.params.window_right};
  const KvRange seen = kv_range(shape, 0);
  const auto count = static_cast<uint32_t>(max(0, static_cast<int32_t>(seen.size())));
  const uint32_t tiles = (count + kTile - 1) / kTile, ranks = cluster_size();
  const auto share = [&](uint32_t rank) {
    return seen.begin + static_cast<int32_t>(tiles * rank / ranks * kTile);
  };
  item.begin = share(cluster_rank());
  item.end = max(item.begin, min(seen.end, share(cluster_rank() + 1)));
  return item;
}

/// A tile's keys, lane by lane, 0 to 15 twice. What is looked up is not used before it is asked
/// for.
struct TileKeys {
  int32_t key, page;
  bool there;
};
__device__ inline TileKeys look_up(const Call& c, const Item& item, int32_t first, int lane) {
  const int32_t key = first + lane % kTile;
  const bool there = key < item.end;
  return {key, there ? item.page_ids[key >> c.page_shift] : 0, there};
}

/// Columns at which their rows begin.
struct TileRows {
  uint32_t k = kNoKey, v = kNoKey;
  bool outside = false;  // a page is not in the pool
};
__device__ inline TileRows tile_rows(const Call& c, const Item& item, const TileKeys& keys) {
  TileRows rows;
  const auto page = static_cast<uint32_t>(keys.page);
  const auto token = static_cast<uint32_t>(keys.key & ((1 << c.page_shift) - 1));
  const auto head = static_cast<uint32_t>(item.head);
  rows.outside = page >= static_cast<uint32_t>(c.num_pages);
  if (rows.outside || !keys.there) return rows;
  rows.k = page * c.of_k.page + token * c.of_k.token + head * c.of_k.head;
  rows.v = page * c.of_v.page + token * c.of_v.token + head * c.of_v.head;
  return rows;
}

/// Asks for these rows; where there is no key, for zeros.
template <int D, int kStages>
__device__ void ask_for_tile(const Call& c, const TileRows& rows, int warp, int slot, int lane) {
  constexpr int kColumns = D / 8;
  const int column = lane % kColumns;
  const std::byte *const k = c.k + 16 * column, *const v = c.v + 16 * column;
#pragma unroll
  for (int i = 0; i < kTile * kColumns / 32; ++i) {
    const int row = (32 * i + lane) / kColumns;
    const uint32_t of_k = __shfl_sync(kWholeWarp, rows.k, row);
    const uint32_t of_v = __shfl_sync(kWholeWarp, rows.v, row);
    const int at = place<D>(row, column);
    const bool there = of_k != kNoKey;
    copy_16_bytes(Room<D, kStages>::tile(warp, slot, false) + at,
                  k + (there ? uint64_t{of_k} * 16 : 0), there);
    copy_16_bytes(Room<D, kStages>::tile(warp, slot, true) + at,
                  v + (there ? uint64_t{of_v} * 16 : 0), there);
  }
}

/// Which tile of a warp is asked for next: it runs kStages - 1 tiles ahead of the one that is
/// weighed, into the next items. What it needs for that is on its way a tile before.
template <int D, int kStages>
class Ahead {
 public:
  __device__ Ahead(const Call& c, const PagedAttention& s, const Rows& q, int32_t first,
                   const Member& me)
      : call_(c), scalars_(s), q_(q), me_(me), number_(first) {
    next_len_ = number_ < c.items ? c.seqlens[number_ / c.kv_heads] : 0;
    enter();
    skip_empty();
  }

  __device__ void ask() {
    unsound_ &= ~(1u << slot_);
    if (tile_ < tiles_) {
      const TileRows rows = tile_rows(call_, item_, keys_);
      ask_for_tile<D, kStages>(call_, rows, me_.warp, slot_, me_.lane);
      if (rows.outside) unsound_ |= 1u << slot_;
      ++tile_;
    }
    end_copies();
    slot_ = slot_ + 1 == kStages ? 0 : slot_ + 1;
    if (tile_ < tiles_) keys_ = look_up(call_, item_, item_.first_key(me_, tile_), me_.lane);
    if (tile_ >= tiles_) skip_empty();
  }
  /// Was a page of the tile in that slot not in the pool?
  __device__ bool is_unsound(int slot) const { return (unsound_ >> slot & 1) != 0; }

 private:
  __device__ void enter() {
    tile_ = tiles_ = 0;
    if (number_ >= call_.items) return;
    item_ = item_of(call_, scalars_, number_, next_len_);
    tiles_ = item_.tiles(me_);
    const int32_t next = number_ + call_.step;
    next_len_ = next < call_.items ? call_.seqlens[next / call_.kv_heads] : 0;
    warm_item();
    if (tiles_ > 0) keys_ = look_up(call_, item_, item_.first_key(me_, 0), me_.lane);
  }
  /// Its page ids and queries, line by line: so many of each as the team has threads.
  __device__ void warm_item() {
    const int line = me_.lane * me_.warps + me_.rank, first = item_.begin >> call_.page_shift;
    const int pages =
        item_.end > item_.begin ? ((item_.end - 1) >> call_.page_shift) - first + 1 : 0;
    constexpr int kIds = 128 / sizeof(int32_t);
    if (pages > 0 && line * kIds < pages + kIds)
      warm(item_.page_ids + first + min(line * kIds, pages - 1));
    const int head = line / (D * 2 / 128), at = line % (D * 2 / 128) * 64;
    if (head < call_.group)
      warm(q_.data + 2 * (q_.offset(item_.request, int64_t{item_.head} * call_.group + head) + at));
  }
  __device__ void skip_empty() {
    while (tile_ >= tiles_ && number_ < call_.items) {
      number_ += call_.step;
      enter();
    }
  }

  const Call& call_;
  const PagedAttention& scalars_;
  const Rows& q_;
  const Member& me_;
  int32_t number_, next_len_ = 0;
  int slot_ = 0, tile_ = 0, tiles_ = 0;
  unsigned unsound_ = 0;  // slots
  Item item_ = {};
  TileKeys keys_ = {};
};

}  // namespace shadowgraph::cuda::decoding
