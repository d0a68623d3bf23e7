#include "launch/index_launch.h"

#include <algorithm>
#include <vector>

#include "attn/index_page.h"
#include "attn/validate_indexer.h"
#include "kernels/index_keys.h"
#include "kernels/index_lists.h"
#include "kernels/indexer_logits.h"
#include "kernels/spans.h"
#include "launch/checked_launch.h"

namespace shadowgraph {

namespace {

/// [n], any stride, as a matrix of one column, and back.
ConstTensorView as_column(const ConstTensorView& t) {
  if (!t.defined()) return t;
  return {t.data, t.dtype, {t.shape[0], 1}, {t.stride[0], 1}};
}
ConstTensorView as_vector(const ConstTensorView& t) {
  if (!t.defined()) return t;
  return {t.data, t.dtype, {t.shape[0]}, {t.stride[0]}};
}

template <class T>
int64_t size_of_list(std::span<const T> list) {
  return static_cast<int64_t>(list.size());
}

/// A page that the pool does not have.
void add_missing_page(Footprint* spans, const ConstTensorView& pages, int64_t page, Access access,
                      int64_t row) {
  if (page >= 0 && page < pages.shape[0]) return;
  int64_t first = 0;
  if (__builtin_mul_overflow(page, pages.stride[0], &first)) first = INT64_MAX;
  spans->push_back({pages.data, first, kIndexDim, 1, access, static_cast<int32_t>(row)});
}

// ---- store

struct StoreScalars {
  RowsScalars k, k_scale, pages;
  int64_t num_tokens, first_slot;
  RequestRows tokens;
  int32_t num_threads, unused;
};
static_assert(sizeof(StoreScalars) == 3 * sizeof(RowsScalars) + 2 * 8 + 4 * 4);

Footprint refused_footprint(const StoreIndexKeys& c) {
  Footprint spans;
  add_whole(&spans, c.out_cache_loc);
  for (size_t t = 0; t < c.out_cache_loc.size(); ++t) {
    const int64_t slot = c.out_cache_loc[t];
    if (!c.drops(slot))
      add_missing_page(&spans, c.pages, slot / kIndexPageTokens, Access::kWrite,
                       static_cast<int64_t>(t));
  }
  return spans;
}

struct Store {
  static auto of(const KernelLaunch& launch) { return store_index_keys_call(launch); }
  static Status run(const StoreIndexKeys& c) { return store_index_keys(c); }
  static void lose(const StoreIndexKeys& /*call*/) {}
  static Footprint footprint(const StoreIndexKeys& c) { return store_index_keys_footprint(c); }
  static Footprint refused(const StoreIndexKeys& c) { return refused_footprint(c); }
};

// ---- packed keys

struct GatherScalars {
  RowsScalars pages, page_table, k, k_scale;
  int64_t num_offsets;
  RequestRows requests;
  int32_t num_threads, unused;
};
static_assert(sizeof(GatherScalars) == 4 * sizeof(RowsScalars) + 8 + 4 * 4);

/// Offsets, the ids of each request as far as its row of the table reaches, and pages that are not
/// there.
Footprint refused_footprint(const GatherIndexKeys& c) {
  Footprint spans;
  add_whole(&spans, c.cu_seqlens_k);
  add_written(&spans, c.k);
  add_written(&spans, TensorView(c.k_scale.data, DType::kF32, {c.k_scale.shape[0], 1}));
  const int64_t requests = std::min(size_of_list(c.cu_seqlens_k) - 1, c.page_table.shape[0]);
  for (int64_t i = 0; i < requests; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t keys = int64_t{c.cu_seqlens_k[at + 1]} - c.cu_seqlens_k[at];
    const int64_t pages = (keys + kIndexPageTokens - 1) / kIndexPageTokens;
    if (pages <= 0) continue;
    spans.push_back({c.page_table.data, c.page_table.offset(i), pages, 4, Access::kRead,
                     static_cast<int32_t>(i)});
    for (int64_t p = 0; p < std::min(pages, c.page_table.shape[1]); ++p)
      add_missing_page(&spans, c.pages, load_i32(c.page_table, i, p), Access::kRead, i);
  }
  return spans;
}

struct Gather {
  static auto of(const KernelLaunch& launch) { return gather_index_keys_call(launch); }
  static Status run(const GatherIndexKeys& c) { return gather_index_keys(c); }
  static void lose(const GatherIndexKeys& c) {
    poison(c.k);
    poison(TensorView(c.k_scale.data, DType::kF32, {c.k_scale.shape[0], 1}));
  }
  static Footprint footprint(const GatherIndexKeys& c) { return gather_index_keys_footprint(c); }
  static Footprint refused(const GatherIndexKeys& c) { return refused_footprint(c); }
};

// ---- scores

struct LogitsScalars {
  RowsScalars q, weights, pages, page_table, k, k_scale, logits;
  int64_t num_rows, num_ks, num_ke;
  RequestRows tokens;
  int32_t num_threads, unused;
};
static_assert(sizeof(LogitsScalars) == 7 * sizeof(RowsScalars) + 3 * 8 + 4 * 4);

/// Lists, the ids of each token as far as its row of the table reaches, and pages that are not
/// there.
Footprint refused_footprint(const IndexerLogits& c) {
  Footprint spans;
  for (const auto& list : {c.rows, c.ks, c.ke}) add_whole(&spans, list);
  add_written(&spans, c.logits);
  const int64_t tokens = std::min(c.tokens(), size_of_list(c.ke));
  const bool lists = (c.rows.empty() || size_of_list(c.rows) >= tokens) &&
                     (c.ks.empty() || size_of_list(c.ks) >= tokens);
  for (int64_t t = 0; lists && c.is_paged() && t < tokens; ++t) {
    const int64_t row = c.row(t), first = std::max<int64_t>(0, c.first(t)) / kIndexPageTokens;
    const int64_t behind = (c.last(t) + kIndexPageTokens - 1) / kIndexPageTokens;
    if (behind <= first) continue;
    spans.push_back({c.page_table.data, c.page_table.offset(row, first), behind - first, 4,
                     Access::kRead, static_cast<int32_t>(t)});
    if (row < 0 || row >= c.page_table.shape[0]) continue;
    for (int64_t p = first; p < std::min(behind, c.page_table.shape[1]); ++p)
      add_missing_page(&spans, c.pages, load_i32(c.page_table, row, p), Access::kRead, t);
  }
  return spans;
}

struct Logits {
  static auto of(const KernelLaunch& launch) { return indexer_logits_call(launch); }
  static Status run(const IndexerLogits& c) { return indexer_logits(c); }
  static void lose(const IndexerLogits& c) { poison(c.logits); }
  static Footprint footprint(const IndexerLogits& c) { return indexer_logits_footprint(c); }
  static Footprint refused(const IndexerLogits& c) { return refused_footprint(c); }
};

// ---- choice

struct ChooseScalars {
  RowsScalars logits, indices, page_table_1, out;
  int64_t num_ks, num_ke, num_rows, num_offsets;
  RequestRows tokens;
  int32_t num_threads, unused;
};
static_assert(sizeof(ChooseScalars) == 4 * sizeof(RowsScalars) + 4 * 8 + 4 * 4);

/// The transform of what is chosen now, in memory of its own; either may be refused.
struct Chosen {
  std::vector<int32_t> memory;
  TransformIndices transform;
  bool selected = false, ok = false;

  explicit Chosen(const ChooseIndices& call) : transform(call.transform) {
    selected = validate(call.select).ok();
    if (!selected) return;
    SelectIndices select = call.select;
    memory.resize(static_cast<size_t>(select.indices.numel()));
    select.indices =
        TensorView(memory.data(), DType::kI32, {select.indices.shape[0], select.indices.shape[1]});
    select_indices_kernel(select);
    transform.indices = select.indices;
    ok = validate(transform).ok();
  }
};

Progress choose_body(LaunchFrame& f) {
  ChooseIndices call = choose_indices_call(f.launch).call;
  const bool chosen = select_indices(call.select).ok();
  if (!chosen) poison(call.select.indices);
  if (!chosen || !transform_indices(call.transform).ok()) poison(call.transform.out);
  return Progress::kDone;
}

void choose_footprint(const LaunchFrame& f, Footprint* spans) {
  const auto [call, tokens] = choose_indices_call(f.launch);
  const Chosen chosen(call);
  if (chosen.selected) {
    *spans = select_indices_footprint(call.select);
  } else {
    for (const auto& list : {call.select.ks, call.select.ke}) add_whole(spans, list);
    add_written(spans, call.select.indices);
  }
  if (chosen.ok) {
    // The indices are this launch's own: written before they are read.
    for (const AccessSpan& span : transform_indices_footprint(chosen.transform))
      if (span.buffer != chosen.transform.indices.data) append(spans, span);
  } else {
    if (chosen.selected)
      for (const auto& list : {call.transform.rows, call.transform.offsets}) add_whole(spans, list);
    add_written(spans, call.transform.out);
  }
  name_requests(tokens, spans);
}

}  // namespace

constinit const Kernel kStoreIndexKeys = checked_kernel<Store>("store_index_keys");
constinit const Kernel kGatherIndexKeys = checked_kernel<Gather>("gather_index_keys");
constinit const Kernel kIndexerLogits = checked_kernel<Logits>("indexer_logits");
constinit const Kernel kChooseIndices{
    .name = "choose_indices", .body = choose_body, .footprint = choose_footprint};

CallOf<StoreIndexKeys> store_index_keys_call(const KernelLaunch& launch) {
  enum Arg : uint8_t { kK, kScale, kSlots, kPages, kScalars };
  const LaunchFrame f{launch};
  const auto s = f.scalar<StoreScalars>(kScalars);
  StoreIndexKeys c;
  c.k = view_of(f.pointer<void>(kK), s.k);
  c.k_scale = as_vector(view_of(f.pointer<void>(kScale), s.k_scale));
  c.out_cache_loc = array_of<int64_t>(f, kSlots, s.num_tokens);
  c.pages = view_of(f.pointer<void>(kPages), s.pages);
  c.pages.stride[1] = 1;
  c.options.num_threads = s.num_threads;
  c.first_slot = s.first_slot;
  return {c, s.tokens};
}

KernelLaunch store_index_keys_launch(const StoreIndexKeys& c, const RequestRows& tokens) {
  StoreScalars s{};
  s.k = scalars_of(c.k);
  s.k_scale = scalars_of(as_column(c.k_scale));
  s.pages = scalars_of(c.pages);
  s.num_tokens = size_of_list(c.out_cache_loc);
  s.first_slot = std::max<int64_t>(c.first_slot, kIndexPageTokens);
  s.num_threads = c.options.num_threads;
  s.tokens = tokens;
  KernelLaunch launch = launch_of(kStoreIndexKeys, s.num_tokens);
  launch.args.pointer(c.k.data).pointer(c.k_scale.data).pointer(c.out_cache_loc.data());
  launch.args.pointer(c.pages.data).scalar(s);
  return launch;
}

CallOf<GatherIndexKeys> gather_index_keys_call(const KernelLaunch& launch) {
  enum Arg : uint8_t { kPages, kTable, kCuSeqlens, kK, kScale, kScalars };
  const LaunchFrame f{launch};
  const auto s = f.scalar<GatherScalars>(kScalars);
  GatherIndexKeys c;
  c.pages = view_of(f.pointer<void>(kPages), s.pages);
  c.page_table = view_of(f.pointer<void>(kTable), s.page_table);
  c.cu_seqlens_k = array_of<int32_t>(f, kCuSeqlens, s.num_offsets);
  c.k = view_of(f.pointer<void>(kK), s.k);
  c.k_scale =
      TensorView(f.pointer<void>(kScale), DType::kF32, {s.k_scale.shape[0]}, {s.k_scale.stride[0]});
  c.options.num_threads = s.num_threads;
  return {c, s.requests};
}

KernelLaunch gather_index_keys_launch(const GatherIndexKeys& c, const RequestRows& requests) {
  GatherScalars s{};
  s.pages = scalars_of(c.pages);
  s.page_table = scalars_of(c.page_table);
  s.k = scalars_of(c.k);
  s.k_scale = scalars_of(as_column(c.k_scale));
  s.num_offsets = size_of_list(c.cu_seqlens_k);
  s.requests = requests;
  s.num_threads = c.options.num_threads;
  KernelLaunch launch = launch_of(kGatherIndexKeys, c.k.shape[0]);
  launch.args.pointer(c.pages.data).pointer(c.page_table.data).pointer(c.cu_seqlens_k.data());
  launch.args.pointer(c.k.data).pointer(c.k_scale.data).scalar(s);
  return launch;
}

namespace {
enum LogitsArg : uint8_t {
  kQ,
  kWeights,
  kPages,
  kTable,
  kK,
  kScale,
  kRows,
  kKs,
  kKe,
  kLogits,
  kLogitsScalars
};
enum ChooseArg : uint8_t {
  kScores,
  kFirst,
  kLast,
  kIndices,
  kTable1,
  kRowsOfTable,
  kOffsets,
  kOut,
  kChooseScalars
};
}  // namespace

CallOf<IndexerLogits> indexer_logits_call(const KernelLaunch& launch) {
  const LaunchFrame f{launch};
  const auto s = f.scalar<LogitsScalars>(kLogitsScalars);
  IndexerLogits c;
  c.q = view_of(f.pointer<void>(kQ), s.q);
  c.weights = view_of(f.pointer<void>(kWeights), s.weights);
  c.pages = view_of(f.pointer<void>(kPages), s.pages);
  c.page_table = view_of(f.pointer<void>(kTable), s.page_table);
  c.k = view_of(f.pointer<void>(kK), s.k);
  c.k_scale = as_vector(view_of(f.pointer<void>(kScale), s.k_scale));
  c.rows = array_of<int32_t>(f, kRows, s.num_rows);
  c.ks = array_of<int32_t>(f, kKs, s.num_ks);
  c.ke = array_of<int32_t>(f, kKe, s.num_ke);
  c.logits = view_of(f.pointer<void>(kLogits), s.logits);
  c.options.num_threads = s.num_threads;
  return {c, s.tokens};
}

KernelLaunch indexer_logits_launch(const IndexerLogits& c, const RequestRows& tokens) {
  LogitsScalars s{};
  s.q = scalars_of(c.q);
  s.weights = scalars_of(c.weights);
  s.pages = scalars_of(c.pages);
  s.page_table = scalars_of(c.page_table);
  s.k = scalars_of(c.k);
  s.k_scale = scalars_of(as_column(c.k_scale));
  s.logits = scalars_of(c.logits);
  s.num_rows = size_of_list(c.rows), s.num_ks = size_of_list(c.ks), s.num_ke = size_of_list(c.ke);
  s.num_threads = c.options.num_threads;
  s.tokens = tokens;
  KernelLaunch launch = launch_of(kIndexerLogits, c.tokens());
  for (const ConstTensorView& t : {c.q, c.weights, c.pages, c.page_table, c.k, c.k_scale})
    launch.args.pointer(t.data);
  for (const auto& list : {c.rows, c.ks, c.ke}) launch.args.pointer(list.data());
  launch.args.pointer(c.logits.data).scalar(s);
  return launch;
}

CallOf<ChooseIndices> choose_indices_call(const KernelLaunch& launch) {
  const LaunchFrame f{launch};
  const auto s = f.scalar<ChooseScalars>(kChooseScalars);
  ChooseIndices c;
  c.select.logits = view_of(f.pointer<void>(kScores), s.logits);
  c.select.ks = array_of<int32_t>(f, kFirst, s.num_ks);
  c.select.ke = array_of<int32_t>(f, kLast, s.num_ke);
  c.select.indices = view_of(f.pointer<void>(kIndices), s.indices);
  c.transform.indices = c.select.indices;
  c.transform.page_table_1 = view_of(f.pointer<void>(kTable1), s.page_table_1);
  c.transform.rows = array_of<int32_t>(f, kRowsOfTable, s.num_rows);
  c.transform.offsets = array_of<int32_t>(f, kOffsets, s.num_offsets);
  c.transform.out = view_of(f.pointer<void>(kOut), s.out);
  c.select.options.num_threads = c.transform.options.num_threads = s.num_threads;
  return {c, s.tokens};
}

KernelLaunch choose_indices_launch(const ChooseIndices& c, const RequestRows& tokens) {
  const TransformIndices& t = c.transform;
  ChooseScalars s{};
  s.logits = scalars_of(c.select.logits);
  s.indices = scalars_of(c.select.indices);
  s.page_table_1 = scalars_of(t.page_table_1);
  s.out = scalars_of(t.out);
  s.num_ks = size_of_list(c.select.ks), s.num_ke = size_of_list(c.select.ke);
  s.num_rows = size_of_list(t.rows), s.num_offsets = size_of_list(t.offsets);
  s.num_threads = c.select.options.num_threads;
  s.tokens = tokens;
  KernelLaunch launch = launch_of(kChooseIndices, c.select.logits.shape[0]);
  launch.args.pointer(c.select.logits.data)
      .pointer(c.select.ks.data())
      .pointer(c.select.ke.data())
      .pointer(c.select.indices.data)
      .pointer(t.page_table_1.data)
      .pointer(t.rows.data())
      .pointer(t.offsets.data())
      .pointer(t.out.data)
      .scalar(s);
  return launch;
}

}  // namespace shadowgraph
