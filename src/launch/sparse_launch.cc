#include "launch/sparse_launch.h"

#include <algorithm>

#include "attn/validate/validate_sparse.h"
#include "kernels/sparse/sparse_attention.h"
#include "launch/checked_launch.h"

namespace shadowgraph {
namespace {

struct PackLaunch : CheckedLaunch<PackLatents> {
  static Status run(const PackLatents& c) { return pack_latents(c); }
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

struct SparseLaunch : CheckedLaunch<SparseAttention> {
  static Status run(const SparseAttention& c) { return sparse_attention(c); }
  static std::array<TensorView, 2> outputs(const SparseAttention& c) {
    return {c.out, c.lse.tensor};
  }
  static Footprint footprint(const SparseAttention& c) { return sparse_attention_footprint(c); }
  static Footprint refused(const SparseAttention& c) {
    Footprint spans;
    add_refused(&spans, c.keys, c.q.shape[0]);
    if (c.extra.defined()) add_refused(&spans, c.extra, c.q.shape[0]);
    add_whole(&spans, c.sinks);
    return spans;
  }
};

}  // namespace

constinit const Kernel kPackLatents = checked_kernel<PackLaunch>("pack_latents");
constinit const Kernel kSparseAttention = checked_kernel<SparseLaunch>("sparse_attention");

void add_missing_slot(Footprint* spans, const LatentPool& pool, int64_t slot, Access access,
                      int64_t row) {
  if (pool.page_size < 1 || (slot >= 0 && slot < pool.slots())) return;
  const int64_t first = offset_of_place(slot / pool.page_size, pool.data.stride[0]);
  spans->push_back({pool.data.data, slot < 0 ? std::min<int64_t>(first, -1) : first, 1,
                    static_cast<uint32_t>(size_of(pool.data.dtype)), access,
                    static_cast<int32_t>(row)});
}

KernelLaunch pack_latents_launch(PackLatents call, const RequestRows& tokens) {
  call.first_slot = std::max<int64_t>(call.first_slot, call.pool.page_size);
  return launch_of(kPackLatents, call, tokens, std::ssize(call.out_cache_loc));
}

KernelLaunch sparse_launch(const SparseAttention& call, const RequestRows& tokens) {
  return launch_of(kSparseAttention, call, tokens, call.q.shape[0]);
}

}  // namespace shadowgraph
