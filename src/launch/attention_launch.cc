#include "launch/attention_launch.h"

#include <algorithm>

#include "attn/page_table.h"
#include "attn/validate.h"
#include "kernels/attend_blocks.h"
#include "kernels/footprint.h"
#include "launch/launch_scalars.h"

namespace shadowgraph {

namespace {

enum Arg : uint8_t {
  kQ,
  kCache,
  kPageTable = kCache + kCacheArgs,  // or kv_indices
  kSeqlens,                          // cache_seqlens, or last_page_len
  kKvIndptr,
  kCuSeqlensQ,
  kParams,
  kOut = kParams + kParamsArgs,
  kLse,
  kPlan,
  kScalars
};

PagedScalars scalars_of(const PagedAttention& c) {
  PagedScalars s{};
  s.q = scalars_of(c.q);
  s.out = scalars_of(c.out);
  s.lse = scalars_of(c.lse.tensor);
  s.cache = scalars_of(c.cache);
  s.params = scalars_of(c.params, c.options, c.max_seqlen_q);
  s.batch = c.pages.batch();
  s.max_pages = c.pages.max_pages;
  const bool dense = c.pages.form == PageTable::Form::kDense;
  s.num_page_ids = static_cast<int64_t>((dense ? c.pages.page_table : c.pages.kv_indices).size());
  s.plan_size = static_cast<int64_t>(c.plan.size());
  s.form = c.pages.form;
  s.has_indptr = !c.cu_seqlens_q.empty();
  return s;
}

PageTable pages_of(const LaunchFrame& f, const PagedScalars& s) {
  const auto ids = array_of<int32_t>(f, kPageTable, s.num_page_ids);
  const auto lens = array_of<int32_t>(f, kSeqlens, s.batch);
  if (s.form == PageTable::Form::kDense) return PageTable::dense(ids, s.max_pages, lens);
  return PageTable::csr(array_of<int32_t>(f, kKvIndptr, s.batch + 1), ids, lens);
}

/// The call without padding.
PagedAttention call_of(const LaunchFrame& f) {
  PagedAttention c = attention_call(f.launch).call;
  drop_padding(c.cu_seqlens_q, &c.q);
  drop_padding(c.cu_seqlens_q, &c.out);
  drop_padding(c.cu_seqlens_q, &c.lse.tensor);
  return c;
}

Progress body(LaunchFrame& f) {
  const PagedAttention call = call_of(f);
  if (!attention_with_kvcache(call).ok()) {
    poison(call.out);
    poison(call.lse.tensor);
  }
  return Progress::kDone;
}

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

/// Of a call that is refused: its metadata, also past the table's end, the pages beyond the pool
/// that it names, and the outputs.
void add_corrupt(const PagedAttention& c, Footprint* spans) {
  add_whole(spans, c.cu_seqlens_q);
  add_whole(spans, c.pages.cache_seqlens);
  add_whole(spans, c.pages.kv_indptr);
  add_whole(spans, c.pages.last_page_len);
  add_params_arrays(spans, c.params);
  add_rows_beyond(spans, c.q, c.cu_seqlens_q);
  add_whole(spans, used_part(c.plan));
  const bool dense = c.pages.form == PageTable::Form::kDense;
  const int64_t rows = dense ? c.pages.batch() : 1;
  for (int64_t i = 0; i < rows; ++i) {
    const int32_t* table = (dense ? c.pages.page_table : c.pages.kv_indices).data();
    const int32_t row = dense ? static_cast<int32_t>(i) : -1;
    const PageIds ids = page_ids(c, i);
    spans->push_back({table, ids.first, ids.count, sizeof(int32_t), Access::kRead, row});
    for (const int32_t id : ids.known) {
      if (id >= 0 && id < c.cache.num_pages) continue;
      add_beyond_pool(spans, c.cache, id, Access::kRead, row);
    }
  }
  add_written(spans, c.out);
  add_written(spans, c.lse.tensor);
}

void footprint(const LaunchFrame& f, Footprint* spans) {
  const PagedAttention call = call_of(f);
  if (validate(call).ok() && check_plan(call).ok()) {
    *spans = attention_footprint(call);
  } else {
    add_corrupt(call, spans);
  }
  name_requests(f.scalar<PagedScalars>(kScalars).rows, spans);
}

}  // namespace

constinit const Kernel kPagedAttention{
    .name = "attention_with_kvcache", .body = body, .footprint = footprint};

CallOf<PagedAttention> attention_call(const KernelLaunch& launch) {
  const LaunchFrame f{launch};
  const auto s = f.scalar<PagedScalars>(kScalars);
  PagedAttention c;
  c.q = view_of(f.pointer<void>(kQ), s.q);
  c.out = view_of(f.pointer<void>(kOut), s.out);
  c.lse = NaturalLse(view_of(f.pointer<void>(kLse), s.lse));
  c.cache = cache_of(f, kCache, s.cache);
  c.pages = pages_of(f, s);
  if (s.has_indptr != 0) c.cu_seqlens_q = array_of<int32_t>(f, kCuSeqlensQ, s.batch + 1);
  c.plan = array_of<int32_t>(f, kPlan, s.plan_size);
  c.params = params_of(f, kParams, s.params, s.batch);
  c.options = options_of(s.params);
  c.max_seqlen_q = s.params.max_seqlen_q;
  return {c, s.rows};
}

KernelLaunch attention_launch(const PagedAttention& c, const RequestRows& rows) {
  const bool dense = c.pages.form == PageTable::Form::kDense;
  PagedScalars scalars = scalars_of(c);
  scalars.rows = rows;
  KernelLaunch launch = launch_of(kPagedAttention, c.pages.batch());
  add_cache(launch.args.pointer(c.q.data), c.cache)
      .pointer((dense ? c.pages.page_table : c.pages.kv_indices).data())
      .pointer((dense ? c.pages.cache_seqlens : c.pages.last_page_len).data())
      .pointer(c.pages.kv_indptr.data())
      .pointer(c.cu_seqlens_q.data());
  add_params(launch.args, c.params)
      .pointer(c.out.data)
      .pointer(c.lse.tensor.data)
      .pointer(c.plan.data())
      .scalar(scalars);
  return launch;
}

}  // namespace shadowgraph
