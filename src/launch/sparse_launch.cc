#include "launch/sparse_launch.h"

#include <algorithm>

#include "attn/validate_sparse.h"
#include "kernels/sparse_attention.h"
#include "launch/checked_launch.h"
#include "launch/view_args.h"

namespace shadowgraph {

namespace {

/// One byte of a slot that a pool does not have, as far out as that is.
template <class Byte>
void add_missing_slot(Footprint* spans, const BasicLatentPool<Byte>& pool, int64_t slot,
                      Access access, int64_t row) {
  if (pool.page_size < 1 || (slot >= 0 && slot < pool.slots())) return;
  int64_t first = 0;
  if (__builtin_mul_overflow(slot / pool.page_size, pool.data.stride[0], &first)) first = INT64_MAX;
  if (slot < 0) first = std::min<int64_t>(first, -1);
  spans->push_back({pool.data.data, first, 1, static_cast<uint32_t>(size_of(pool.data.dtype)),
                    access, static_cast<int32_t>(row)});
}

struct PoolScalars {
  int32_t layout, page_size;
};
template <class Byte>
PoolScalars pool_scalars(const BasicLatentPool<Byte>& pool) {
  return {static_cast<int32_t>(pool.layout), pool.page_size};
}
WritableLatentPool pool_of(const TensorView& data, const PoolScalars& s) {
  return {data, static_cast<LatentLayout>(s.layout), s.page_size};
}

// ---- store

struct StoreScalars {
  PoolScalars pool;
  int64_t num_tokens, first_slot;
  RequestRows tokens;
  int32_t num_threads, unused;
};
static_assert(sizeof(StoreScalars) == 8 + 2 * 8 + 4 * 4);

struct Pack {
  static auto of(const KernelLaunch& launch) { return pack_latents_call(launch); }
  static Status run(const PackLatents& c) { return pack_latents(c); }
  static void lose(const PackLatents& /*call*/) {}
  static Footprint footprint(const PackLatents& c) { return pack_latents_footprint(c); }
  static Footprint refused(const PackLatents& c) {
    Footprint spans;
    add_whole(&spans, c.out_cache_loc);
    for (size_t t = 0; t < c.out_cache_loc.size(); ++t) {
      const int64_t slot = c.out_cache_loc[t];
      if (!c.drops(slot))
        add_missing_slot(&spans, c.pool, slot, Access::kWrite, static_cast<int64_t>(t));
    }
    return spans;
  }
};

// ---- attention

struct ListScalars {
  PoolScalars pool;
  int64_t num_indices, num_lengths, num_indptr, width;
};
struct AttendScalars {
  ListScalars keys, extra;
  int64_t num_sinks;
  RequestRows tokens;
  int32_t head_dim_v;
  float sm_scale;
  int32_t lse_sink, num_threads;
};
static_assert(sizeof(AttendScalars) == 2 * (8 + 4 * 8) + 8 + 6 * 4);

/// A token's entries, as far as its extent says, and slots that are not there.
void add_refused(Footprint* spans, const ChosenKeys& list, int64_t tokens) {
  const auto& extents = list.indptr.empty() ? list.lengths : list.indptr;
  add_whole(spans, extents);
  const int64_t known = std::ssize(extents) - (list.indptr.empty() ? 0 : 1);
  const int64_t last = extents.empty() ? tokens : std::min(tokens, known);
  for (int64_t t = 0; t < last; ++t) {
    const int64_t begin = list.begin(t), count = list.count(t);
    if (count <= 0) continue;
    spans->push_back({list.indices.data(), begin, count, sizeof(int32_t), Access::kRead,
                      static_cast<int32_t>(t)});
    const int64_t end = std::min<int64_t>(begin + count, std::ssize(list.indices));
    for (int64_t i = std::max<int64_t>(0, begin); i < end; ++i)
      if (const int32_t slot = list.indices[static_cast<size_t>(i)]; slot != -1)
        add_missing_slot(spans, list.pool, slot, Access::kRead, t);
  }
}

struct Attend {
  static auto of(const KernelLaunch& launch) { return sparse_call(launch); }
  static Status run(const SparseAttention& c) { return sparse_attention(c); }
  static void lose(const SparseAttention& c) {
    poison(c.out);
    poison(c.lse.tensor);
  }
  static Footprint footprint(const SparseAttention& c) { return sparse_attention_footprint(c); }
  static Footprint refused(const SparseAttention& c) {
    Footprint spans;
    add_refused(&spans, c.keys, c.q.shape[0]);
    if (c.extra.defined()) add_refused(&spans, c.extra, c.q.shape[0]);
    add_whole(&spans, c.sinks);
    add_written(&spans, c.out);
    add_written(&spans, c.lse.tensor);
    return spans;
  }
};

enum PackArg : uint8_t { kLatents, kPool, kPackViews, kSlots, kPackScalars };
enum AttendArg : uint8_t {
  kQ,
  kKeyPool,
  kExtraPool,
  kOut,
  kLse,
  kAttendViews,
  kKeyLists,
  kExtraLists = kKeyLists + 3,
  kSinks = kExtraLists + 3,
  kAttendScalars
};

ListScalars list_scalars(const ChosenKeys& list) {
  return {pool_scalars(list.pool), std::ssize(list.indices), std::ssize(list.lengths),
          std::ssize(list.indptr), list.width};
}
void add_lists(KernelArgs& args, const ChosenKeys& list) {
  for (const auto& ids : {list.indices, list.lengths, list.indptr}) args.pointer(ids.data());
}
ChosenKeys list_of(const LaunchFrame& f, uint8_t arg, const TensorView& pool,
                   const ListScalars& s) {
  ChosenKeys list;
  if (pool.defined()) list.pool = pool_of(pool, s.pool);
  list.indices = array_of<int32_t>(f, arg, s.num_indices);
  list.lengths = array_of<int32_t>(f, static_cast<size_t>(arg) + 1, s.num_lengths);
  list.indptr = array_of<int32_t>(f, static_cast<size_t>(arg) + 2, s.num_indptr);
  list.width = s.width;
  return list;
}

}  // namespace

constinit const Kernel kPackLatents = checked_kernel<Pack>("pack_latents");
constinit const Kernel kSparseAttention = checked_kernel<Attend>("sparse_attention");

CallOf<PackLatents> pack_latents_call(const KernelLaunch& launch) {
  const LaunchFrame f{launch};
  const auto s = f.scalar<StoreScalars>(kPackScalars);
  const auto views = views_of<2>(f, kLatents);
  PackLatents c;
  c.latents = views[kLatents];
  c.pool = pool_of(views[kPool], s.pool);
  c.out_cache_loc = array_of<int64_t>(f, kSlots, s.num_tokens);
  c.options.num_threads = s.num_threads;
  c.first_slot = s.first_slot;
  return {c, s.tokens};
}

KernelLaunch pack_latents_launch(const PackLatents& c, const RequestRows& tokens) {
  StoreScalars s{};
  s.pool = pool_scalars(c.pool);
  s.num_tokens = std::ssize(c.out_cache_loc);
  s.first_slot = std::max<int64_t>(c.first_slot, c.pool.page_size);
  s.tokens = tokens;
  s.num_threads = c.options.num_threads;
  KernelLaunch launch = launch_of(kPackLatents, s.num_tokens);
  add_views<2>(launch.args, {c.latents, c.pool.data}).pointer(c.out_cache_loc.data()).scalar(s);
  return launch;
}

CallOf<SparseAttention> sparse_call(const KernelLaunch& launch) {
  const LaunchFrame f{launch};
  const auto s = f.scalar<AttendScalars>(kAttendScalars);
  const auto views = views_of<5>(f, kQ);
  SparseAttention c;
  c.q = views[kQ];
  c.keys = list_of(f, kKeyLists, views[kKeyPool], s.keys);
  c.extra = list_of(f, kExtraLists, views[kExtraPool], s.extra);
  c.head_dim_v = s.head_dim_v;
  c.sm_scale = s.sm_scale;
  c.sinks = array_of<float>(f, kSinks, s.num_sinks);
  c.out = views[kOut];
  c.lse = NaturalLse(views[kLse]);
  c.options.lse_sink = static_cast<LseSink>(s.lse_sink);
  c.options.num_threads = s.num_threads;
  return {c, s.tokens};
}

KernelLaunch sparse_launch(const SparseAttention& c, const RequestRows& tokens) {
  AttendScalars s{};
  s.keys = list_scalars(c.keys);
  s.extra = list_scalars(c.extra);
  s.num_sinks = std::ssize(c.sinks);
  s.tokens = tokens;
  s.head_dim_v = c.head_dim_v;
  s.sm_scale = c.sm_scale;
  s.lse_sink = static_cast<int32_t>(c.options.lse_sink);
  s.num_threads = c.options.num_threads;
  KernelLaunch launch = launch_of(kSparseAttention, c.q.shape[0]);
  add_views<5>(launch.args, {c.q, c.keys.pool.data, c.extra.pool.data, c.out, c.lse.tensor});
  add_lists(launch.args, c.keys);
  add_lists(launch.args, c.extra);
  launch.args.pointer(c.sinks.data()).scalar(s);
  return launch;
}

}  // namespace shadowgraph
