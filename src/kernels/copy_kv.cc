#include "kernels/copy_kv.h"

#include "attn/cache_check.h"
#include "core/parallel.h"
#include "kernels/kv_runs.h"

namespace shadowgraph {
namespace {

constexpr size_t kMostTokenBytes = kLargestHeadDim * sizeof(float);

/// One head of one page, token by token: into a row of its dims, and out of it.
void copy_page(const KvPlane& from, int64_t from_page, const KvPlane& to, int64_t to_page,
               int64_t head, int32_t tokens) {
  const DType t = from.dtype;
  const auto size = static_cast<int64_t>(size_of(t));
  alignas(64) std::byte row[kMostTokenBytes];
  for (int32_t token = 0; token < tokens; ++token) {
    if (from.scales != nullptr)
      std::memcpy(to.scales + to.scale_offset(to_page, token, head),
                  from.scales + from.scale_offset(from_page, token, head), sizeof(float));
    for_each_run(from, from_page, token, head, [&](const KvRun& r) {
      copy_spaced(t, row + r.first_dim * size, r.dim_step, from.data + r.first * size, r.stride,
                  r.count);
    });
    for_each_run(to, to_page, token, head, [&](const KvRun& r) {
      copy_spaced(t, to.data + r.first * size, r.stride, row + r.first_dim * size, r.dim_step,
                  r.count);
    });
  }
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
      copy_page(call.source.k, from, call.target.k, to, head, call.source.page_size);
      copy_page(call.source.v, from, call.target.v, to, head, call.source.page_size);
    }
  });
}

}  // namespace shadowgraph
