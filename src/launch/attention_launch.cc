#include "launch/attention_launch.h"

#include <algorithm>

#include "attn/page_table.h"
#include "attn/validate/validate.h"
#include "kernels/dense/attend_blocks.h"
#include "kernels/footprint.h"
#include "launch/attention_args.h"
#include "launch/checked_launch.h"

namespace shadowgraph {
namespace {

/// Page ids that a request's length asks for (the table's length, if it is CSR), and those of them
/// that lie in its row.
struct PageIds {
  int64_t first = 0, count = 0;
  std::span<const int32_t> known;
};

PageIds page_ids(const PagedAttention& c, int64_t request) {
  const PageTable& t = c.pages;
  const auto of = [](std::span<const int32_t> ids, int64_t first, int64_t count, int64_t room) {
    const int64_t known = std::clamp<int64_t>(count, 0, room);
    return PageIds{first, count,
                   ids.subspan(static_cast<size_t>(first), static_cast<size_t>(known))};
  };
  if (t.form == PageTable::Form::kCsr)
    return of(t.kv_indices, 0, t.kv_indptr.back(), static_cast<int64_t>(t.kv_indices.size()));
  const int64_t keys = t.cache_seqlens[static_cast<size_t>(request)];
  return of(t.page_table, request * t.max_pages, pages_for(keys, c.cache.page_size), t.max_pages);
}

/// Metadata, also past the table's end, and the pages beyond the pool that it names.
Footprint refused_footprint(const PagedAttention& c) {
  Footprint spans;
  add_whole(&spans, c.cu_seqlens_q);
  add_whole(&spans, c.pages.cache_seqlens);
  add_whole(&spans, c.pages.kv_indptr);
  add_whole(&spans, c.pages.last_page_len);
  add_params_arrays(&spans, c.params);
  add_rows_beyond(&spans, c.q, c.cu_seqlens_q);
  add_whole(&spans, used_part(c.plan));
  const bool dense = c.pages.form == PageTable::Form::kDense;
  const int64_t rows = dense ? c.pages.batch() : 1;
  for (int64_t i = 0; i < rows; ++i) {
    const int32_t* table = (dense ? c.pages.page_table : c.pages.kv_indices).data();
    const int32_t row = dense ? static_cast<int32_t>(i) : -1;
    const PageIds ids = page_ids(c, i);
    spans.push_back({table, ids.first, ids.count, sizeof(int32_t), Access::kRead, row});
    for (const int32_t id : ids.known) {
      if (id >= 0 && id < c.cache.num_pages) continue;
      add_beyond_pool(&spans, c.cache, id, Access::kRead, row);
    }
  }
  return spans;
}

struct PagedLaunch : CheckedLaunch<PagedAttention> {
  static PagedAttention without_padding(PagedAttention c) {
    drop_padding(c.cu_seqlens_q, &c.q);
    for (TensorView* t : {&c.out, &c.lse.tensor}) drop_padding(c.cu_seqlens_q, t);
    drop_padding(&c.params.custom_mask);
    return c;
  }
  static bool is_sound(const PagedAttention& c) { return validate(c).ok() && check_plan(c).ok(); }
  static Status run(const PagedAttention& c) { return attention_with_kvcache(c); }
  static std::array<TensorView, 2> outputs(const PagedAttention& c) {
    return {c.out, c.lse.tensor};
  }
  static Footprint footprint(const PagedAttention& c) { return attention_footprint(c); }
  static Footprint refused(const PagedAttention& c) { return refused_footprint(c); }
};

}  // namespace

constinit const Kernel kPagedAttention = checked_kernel<PagedLaunch>("attention_with_kvcache");

KernelLaunch attention_launch(const PagedAttention& call, const RequestRows& rows) {
  return launch_of(kPagedAttention, call, rows, call.pages.batch());
}

}  // namespace shadowgraph
