// The same calls as prefill_fast.cu on Hopper: a block is three warpgroups. One copies keys and
// values, tile by tile, as the others have room; each of the others has 64 queries, and while its
// products of one tile's weights and values run it weighs the next tile's logits.
//
// Arithmetic: cuda_fast_prefill in check/bounds/arithmetics.inc.
#include "cuda/kernels/prefill_call.cuh"
#include "cuda/kernels/warpgroup.cuh"

namespace shadowgraph::cuda {
namespace {

constexpr int kGroups = kQueries / 64;  // warpgroups with queries
constexpr int kKeys = 128;              // of a tile
constexpr int kStages = 2;              // tiles that are there or on their way
constexpr int kCopyRegisters = 56, kProductRegisters = 224;

/// Shared memory: queries of each group, tiles of keys, of values; columns swizzled.
template <int D>
struct Room {
  static constexpr unsigned kGroupBytes = 64 * D * 2, kTileBytes = kKeys * D * 2;
  static constexpr unsigned kTiles = kGroups * kGroupBytes;
  static constexpr unsigned kBarriers = kTiles + 2 * kStages * kTileBytes;
  static constexpr unsigned kBytes = kBarriers + (4 * kStages + 2) * sizeof(Barrier);

  __device__ static std::byte* queries(int group) { return shared_memory() + group * kGroupBytes; }
  __device__ static std::byte* keys(int stage) {
    return shared_memory() + kTiles + stage * kTileBytes;
  }
  __device__ static std::byte* values(int stage) { return keys(kStages + stage); }
  /// The barriers of keys (full, empty) and of values.
  __device__ static Barrier* barrier(int which, int stage) {
    return reinterpret_cast<Barrier*>(shared_memory() + kBarriers) + which * kStages + stage;
  }
  __device__ static Barrier* has_ended() { return barrier(4, 0); }
  __device__ static int* unsound() { return reinterpret_cast<int*>(barrier(4, 0) + 1); }
};
enum : int { kFullKeys, kEmptyKeys, kFullValues, kEmptyValues };

/// Named barriers, one a group: its queries are there; it may multiply, as the other weighs; its
/// weights are there.
enum : int { kQueriesOfGroup = 1, kTurnOfGroup = 3, kWeightsOfGroup = 5 };

struct Turn {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

/// What a lane of a copying warp copies of each tile: one column, of eight elements, of every
/// kAtOnce-th of the warp's 32 rows.
template <int D>
struct CopiedColumn {
  static constexpr int kColumns = D / 8, kAtOnce = 32 / kColumns;
  int column, row;
  int place[8 / kAtOnce];  // in a tile, of its first rows: eight rows further on it is the same

  __device__ CopiedColumn(int warp, int lane) : column(lane % kColumns), row(lane / kColumns) {
#pragma unroll
    for (int i = 0; i < 8; i += kAtOnce)
      place[i / kAtOnce] = swizzled(kKeys, 32 * warp + row + i, column);
  }
  __device__ std::byte* place_of(std::byte* tile, int i) const {
    return tile + place[i % 8 / kAtOnce] + i / 8 * 8 * kSwizzledRow;
  }
};

/// Each lane of a warp has the column at which one of 32 rows begins: all of them; zeros where
/// there is no key. step: columns from a row to the next in one page.
template <int D>
__device__ void copy_rows(const CopiedColumn<D>& mine, const std::byte* data, uint32_t start,
                          uint32_t step, int lane, std::byte* to) {
  constexpr int kAtOnce = CopiedColumn<D>::kAtOnce;
  const uint32_t first = __shfl_sync(kWholeWarp, start, 0);
  if (__all_sync(kWholeWarp, start != kNoKey && start == first + lane * step)) {
    const std::byte* const from =
        data + (uint64_t{first} + uint64_t{step} * mine.row + mine.column) * 16;
#pragma unroll
    for (unsigned i = 0; i < 32; i += kAtOnce)
      copy_16_bytes(mine.place_of(to, i), from + uint64_t{step} * (16 * i), true);
    return;
  }
#pragma unroll
  for (int i = 0; i < 32; i += kAtOnce) {
    const uint32_t from = __shfl_sync(kWholeWarp, start, i + mine.row);
    const bool there = from != kNoKey;
    copy_16_bytes(mine.place_of(to, i), data + uint64_t{there ? from + mine.column : 0} * 16,
                  there);
  }
}

/// Where the keys of a tile begin, a thread each.
class Places {
 public:
  __device__ Places(const PrefillJob& job, KvRange keys) : job_(job), end_(keys.end) {}

  /// What is looked up is not used before it is asked for.
  __device__ void look_up(int32_t key) {
    key_ = key;
    page_ = key < end_ && job_.page_ids != nullptr ? job_.page_ids[key >> job_.page_shift] : 0;
  }
  /// Is the key there, and its page in the pool?
  __device__ bool is_there() const { return key_ < end_; }
  __device__ bool is_sound() const {
    return !is_there() || job_.page_ids == nullptr || page_ < job_.num_pages;
  }
  __device__ uint32_t column(const KvTokens& plane) const {
    if (!is_there() || !is_sound()) return kNoKey;
    const auto token_columns = static_cast<uint32_t>(plane.token_stride / 8);
    if (job_.page_ids == nullptr) return static_cast<uint32_t>(key_) * token_columns;
    return page_ * static_cast<uint32_t>(plane.page_stride / 8) +
           static_cast<uint32_t>(key_ & (job_.page_size - 1)) * token_columns;
  }

 private:
  const PrefillJob& job_;
  int32_t end_, key_ = 0;
  uint32_t page_ = 0;
};

/// The copying group's work.
template <int D>
__device__ void copy_tiles(const PrefillJob& job, KvRange keys) {
  const int thread = static_cast<int>(threadIdx.x) % kOfWarpgroup;
  const int lane = thread % 32, warp = thread / 32;
  bool sound = true;
  const CopiedColumn<D> mine(warp, lane);
  const auto step_of_key = static_cast<uint32_t>(job.k.token_stride / 8);
  const auto step_of_value = static_cast<uint32_t>(job.v.token_stride / 8);
  Places places(job, keys);
  Turn turn;
  places.look_up(keys.begin + thread);
  for (int32_t first = keys.begin; first < keys.end; first += kKeys, turn.next()) {
    sound = sound && places.is_sound();
    const uint32_t of_key = places.column(job.k), of_value = places.column(job.v);
    places.look_up(first + kKeys + thread);
    wait_for(Room<D>::barrier(kEmptyKeys, turn.stage), turn.parity ^ 1);
    copy_rows<D>(mine, job.k.data, of_key, step_of_key, lane, Room<D>::keys(turn.stage));
    arrive_with_copies(Room<D>::barrier(kFullKeys, turn.stage));
    wait_for(Room<D>::barrier(kEmptyValues, turn.stage), turn.parity ^ 1);
    copy_rows<D>(mine, job.v.data, of_value, step_of_value, lane, Room<D>::values(turn.stage));
    arrive_with_copies(Room<D>::barrier(kFullValues, turn.stage));
  }
  if (!sound) *Room<D>::unsound() = 1;
  arrive(Room<D>::has_ended());
}

/// What a thread has of its group's 64 queries: rows lane / 4 and 8 more of its warp's 16.
template <int D>
struct Rows64 {
  FragmentC s[kKeys / 8], o[D / 8] = {};
  FragmentA p[kKeys / 16];
  float m[2] = {-kInfinity, -kInfinity}, d[2] = {0, 0}, factor[2];
};

template <int D>
__device__ void load_queries(const PrefillJob& job, const Rows& q, int group, int thread) {
  constexpr int kColumns = D / 8;
#pragma unroll
  for (int i = 0; i < 64 * kColumns / kOfWarpgroup; ++i) {
    const int row = (kOfWarpgroup * i + thread) / kColumns, column = thread % kColumns;
    const bool there = 64 * group + row < job.queries;
    const int64_t at =
        q.offset(job.first_row + (there ? 64 * group + row : 0), job.head) + 8 * column;
    copy_16_bytes(Room<D>::queries(group) + swizzled(64, row, column), q.data + 2 * at, there);
  }
  end_copies();
  wait_for_copies<0>();
  show_to_products();
  sync_named(kQueriesOfGroup + group, kOfWarpgroup);
}

/// s = q k^T, under way.
template <DType T, int D>
__device__ void multiply_keys(int group, int stage, Rows64<D>* rows) {
  const uint64_t queries = matrix_at(Room<D>::queries(group), 16, 1024);
  const uint64_t keys = matrix_at(Room<D>::keys(stage), 16, 1024);
  begin_products();
#pragma unroll
  for (int i = 0; i < D / 16; ++i) {
    const int in_row = i % 4 * 32;  // of 64 columns, bytes
    multiply_shared<T>(rows->s, moved(queries, i / 4 * 64 * kSwizzledRow + in_row),
                       moved(keys, i / 4 * kKeys * kSwizzledRow + in_row), i > 0);
  }
  end_products();
}

/// o += p v, under way.
template <DType T, int D>
__device__ void multiply_values(int stage, Rows64<D>* rows) {
  const uint64_t values = matrix_at(Room<D>::values(stage), kKeys * kSwizzledRow, 1024);
  begin_products();
#pragma unroll
  for (int i = 0; i < kKeys / 16; ++i)
    multiply_rows<T>(rows->o, rows->p[i], moved(values, 16 * i * kSwizzledRow));
  end_products();
}

/// Which keys the rows of a thread see, and which all rows of its group do.
struct Seen {
  KvRange of_row[2], of_all;

  __device__ Seen(const PrefillJob& job, int group, int row) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int query = row + 8 * i;
      of_row[i] = query < job.queries ? kv_range(job.mask, job.first + query) : KvRange{};
    }
    of_all = job.seen_by_all(64 * group, 64);
  }
};

template <bool kCapped, int D>
__device__ void cap_and_mask(const Seen& seen, float scale, float cap, int32_t first, int lane,
                             Rows64<D>* rows) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    // Relative to the lane's first two keys.
    const int32_t begin = seen.of_row[i].begin - first - 2 * (lane % 4);
    const int32_t end = seen.of_row[i].end - first - 2 * (lane % 4);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = rows->s[n].at[2 * i + e];
        if constexpr (kCapped) x = tanhf(x * scale) * cap;
        if (8 * n + e < begin || 8 * n + e >= end) x = -kInfinity;
      }
    }
  }
}

/// Logits become weights, and m, d and factor follow.
template <int D>
__device__ void weigh(float scale, Rows64<D>* rows) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float of_odd = rows->m[i], largest = of_odd;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
      largest = fmaxf(largest, rows->s[n].at[2 * i]);
      of_odd = fmaxf(of_odd, rows->s[n].at[2 * i + 1]);
    }
    largest = fmaxf(largest, of_odd);
    largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, 2));
    // If a row has seen no key, every weight is exp2(-inf - 0).
    const float scaled = largest == -kInfinity ? 0 : largest * scale;
    rows->factor[i] = rows->m[i] == -kInfinity ? 0 : fast_exp2(fmaf(rows->m[i], scale, -scaled));
    rows->m[i] = largest;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = rows->s[n].at[2 * i + e];
        x = fast_exp2(fmaf(x, scale, -scaled));
        sum += x;
      }
    }
    rows->d[i] = fmaf(rows->d[i], rows->factor[i], sum);
  }
}

template <DType T, int D>
__device__ void pack_weights(Rows64<D>* rows) {
#pragma unroll
  for (int n = 0; n < kKeys / 16; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const FragmentC& of = rows->s[2 * n + i / 2];
      rows->p[n].pair[i] = pair_of<T>(of.at[2 * (i % 2)], of.at[2 * (i % 2) + 1]);
    }
  }
}

template <int D>
__device__ void scale_sums(Rows64<D>* rows) {
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) rows->o[n].at[e] *= rows->factor[e / 2];
  }
}

/// A group's queries and all keys of the block. kCapped: the logits are.
template <bool kCapped, DType T, int D>
__device__ void attend(const PrefillJob& job, KvRange keys, int group, int thread,
                       Rows64<D>* rows) {
  const int lane = thread % 32, row = 64 * group + thread / 32 * 16 + lane / 4;
  const float scale = job.scale, cap = job.cap;
  const Seen seen(job, group, row);
  const auto weigh_tile = [&](int32_t first) {
    if (kCapped || first < seen.of_all.begin || first + kKeys > seen.of_all.end)
      cap_and_mask<kCapped>(seen, scale, cap, first, lane, rows);
    weigh<D>(kCapped ? 1 : scale, rows);
  };
  const auto free = [&](int which, int stage) {
    if (lane == 0) arrive(Room<D>::barrier(which, stage));
  };
  Turn of_keys, of_values;
  if (group == 1) arrive_named(kTurnOfGroup, 2 * kOfWarpgroup);
  wait_for(Room<D>::barrier(kFullKeys, 0), 0);
  show_to_products();
  multiply_keys<T, D>(group, 0, rows);
  wait_for_products<0>();
  pin(rows->s);
  free(kEmptyKeys, 0);
  weigh_tile(keys.begin);
  pack_weights<T>(rows);
  for (int32_t first = keys.begin + kKeys; first < keys.end; first += kKeys) {
    of_keys.next();
    wait_for(Room<D>::barrier(kFullKeys, of_keys.stage), of_keys.parity);
    show_to_products();
    sync_named(kTurnOfGroup + group, 2 * kOfWarpgroup);
    multiply_keys<T, D>(group, of_keys.stage, rows);
    wait_for(Room<D>::barrier(kFullValues, of_values.stage), of_values.parity);
    show_to_products();
    multiply_values<T, D>(of_values.stage, rows);
    arrive_named(kTurnOfGroup + 1 - group, 2 * kOfWarpgroup);
    wait_for_products<1>();
    pin(rows->s);
    free(kEmptyKeys, of_keys.stage);
    weigh_tile(first);
    // Nobody waits there. But it asks for a sum of the weights, and so the compiler cannot wait for
    // the products first, which leaves them nothing to run beside.
    arrive_named(kWeightsOfGroup + group + (rows->d[0] + rows->d[1] == -1 ? 2 : 0), kOfWarpgroup);
    wait_for_products<0>();
    pin(rows->o);
    free(kEmptyValues, of_values.stage);
    of_values.next();
    scale_sums<D>(rows);
    pack_weights<T>(rows);
  }
  wait_for(Room<D>::barrier(kFullValues, of_values.stage), of_values.parity);
  show_to_products();
  multiply_values<T, D>(of_values.stage, rows);
  wait_for_products<0>();
  pin(rows->o);
}

template <DType T, int D>
struct Warpgroups {
  static constexpr DType kType = T;
  static constexpr int kDim = D, kThreads = (kGroups + 1) * kOfWarpgroup, kBlocks = 1;
  static constexpr int kPreference = 1;
  static constexpr unsigned kBytes = Room<D>::kBytes;
  static bool is_there() { return has_warpgroups(); }

  __device__ static void run(const PrefillJob& job, const Rows& q, const PrefillTarget& to) {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread == 0) {
      for (int stage = 0; stage < kStages; ++stage) {
        begin_barrier(Room<D>::barrier(kFullKeys, stage), kOfWarpgroup);
        begin_barrier(Room<D>::barrier(kFullValues, stage), kOfWarpgroup);
        begin_barrier(Room<D>::barrier(kEmptyKeys, stage), 4 * kGroups);
        begin_barrier(Room<D>::barrier(kEmptyValues, stage), 4 * kGroups);
      }
      begin_barrier(Room<D>::has_ended(), kOfWarpgroup);
      *Room<D>::unsound() = job.sound ? 0 : 1;
    }
    __syncthreads();
    KvRange keys = kv_range(job.mask, job.first, job.first + job.queries);
    if (!job.sound || keys.size() <= 0) keys = {};
    if (thread / kOfWarpgroup == kGroups) {
      give_registers_up<kCopyRegisters>();
      copy_tiles<D>(job, keys);
    } else {
      take_registers<kProductRegisters>();
      multiply(job, q, to, keys, thread / kOfWarpgroup, thread % kOfWarpgroup);
    }
  }

 private:
  __device__ static void multiply(const PrefillJob& job, const Rows& q, const PrefillTarget& to,
                                  KvRange keys, int group, int thread) {
    Rows64<D> rows;
    load_queries<D>(job, q, group, thread);
    if (keys.size() > 0 && job.cap == 0) attend<false, T>(job, keys, group, thread, &rows);
    if (keys.size() > 0 && job.cap != 0) attend<true, T>(job, keys, group, thread, &rows);
    wait_for(Room<D>::has_ended(), 0);
    const bool sound = *Room<D>::unsound() == 0;
    const int lane = thread % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int query = 64 * group + thread / 32 * 16 + lane / 4 + 8 * i;
      to.put<T, D>(job, query, rows.m[i], rows.d[i], lane, sound,
                   [&](int n, int e) { return rows.o[n].at[2 * i + e]; });
    }
  }
};

const CudaKernels kKernels = prefills<Warpgroups>();

}  // namespace
}  // namespace shadowgraph::cuda
