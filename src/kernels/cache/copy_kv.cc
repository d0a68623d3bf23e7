#include "kernels/cache/copy_kv.h"

#include "attn/validate/cache_check.h"
#include "core/parallel.h"
#include "kernels/cache/kv_runs.h"

namespace shadowgraph {
namespace {

constexpr size_t kMostTokenBytes = kLargestHeadDim * sizeof(float);  // no edge: bytes

struct Place {
  int64_t page, token;
};

/// One head of one token: into a row of its dims, and out of it.
void copy_token(const KvPlane& from, const Place& source, const KvPlane& to, const Place& target,
                int64_t head) {
  const DType t = from.dtype;
  const auto size = static_cast<int64_t>(size_of(t));
  alignas(64) std::byte row[kMostTokenBytes];
  if (from.scales != nullptr)
    std::memcpy(to.scales + to.scale_offset(target.page, target.token, head),
                from.scales + from.scale_offset(source.page, source.token, head), sizeof(float));
  for_each_run(from, source.page, source.token, head, [&](const KvRun& r) {
    copy_spaced(t, row + r.first_dim * size, r.dim_step, from.data + r.first * size, r.stride,
                r.count);
  });
  for_each_run(to, target.page, target.token, head, [&](const KvRun& r) {
    copy_spaced(t, to.data + r.first * size, r.stride, row + r.first_dim * size, r.dim_step,
                r.count);
  });
}

}  // namespace

void copy_kv_kernel(const CopyKv& call) {
  const int64_t pages =
      call.whole_pool ? call.source.num_pages : static_cast<int64_t>(call.source_pages.size());
  const int64_t heads = call.source.num_kv_heads;
  parallel_for(pages, team_size(call.options.num_threads, pages), [&](int64_t i, int) {
    const auto entry = static_cast<size_t>(i);
    const int64_t from = call.whole_pool ? i : call.source_pages[entry];
    const int64_t to = call.whole_pool ? i : call.target_pages[entry];
    for (int64_t head = 0; head < heads; ++head) {
      for (int32_t token = 0; token < call.source.page_size; ++token) {
        copy_token(call.source.k, {from, token}, call.target.k, {to, token}, head);
        copy_token(call.source.v, {from, token}, call.target.v, {to, token}, head);
      }
    }
  });
}

void copy_slot(const KvCache& cache, int64_t source, int64_t target) {
  const Place from = {source / cache.page_size, source % cache.page_size};
  const Place to = {target / cache.page_size, target % cache.page_size};
  for (int64_t head = 0; head < cache.num_kv_heads; ++head) {
    copy_token(cache.k, from, cache.k, to, head);
    copy_token(cache.v, from, cache.v, to, head);
  }
}

}  // namespace shadowgraph
