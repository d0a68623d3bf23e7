#include "launch/index_launch.h"

#include <algorithm>
#include <vector>

#include "attn/index_page.h"
#include "attn/validate/validate_indexer.h"
#include "kernels/spans.h"
#include "kernels/sparse/index_keys.h"
#include "kernels/sparse/index_lists.h"
#include "kernels/sparse/indexer_logits.h"
#include "launch/checked_launch.h"

namespace shadowgraph {

namespace {

Footprint refused_footprint(const StoreIndexKeys& c) {
  Footprint spans;
  add_whole(&spans, c.out_cache_loc);
  for (size_t t = 0; t < c.out_cache_loc.size(); ++t) {
    const int64_t slot = c.out_cache_loc[t];
    if (!c.drops(slot))
      add_missing_place(&spans, c.pages, slot / kIndexPageTokens, kIndexDim, Access::kWrite,
                        static_cast<int64_t>(t));
  }
  return spans;
}

struct StoreKeysLaunch : CheckedLaunch<StoreIndexKeys> {
  static Status run(const StoreIndexKeys& c) { return store_index_keys(c); }
  static Footprint footprint(const StoreIndexKeys& c) { return store_index_keys_footprint(c); }
  static Footprint refused(const StoreIndexKeys& c) { return refused_footprint(c); }
};

/// Offsets, the ids of each request as far as its row of the table reaches, and pages that are not
/// there.
Footprint refused_footprint(const GatherIndexKeys& c) {
  Footprint spans;
  add_whole(&spans, c.cu_seqlens_k);
  const int64_t requests = std::min(std::ssize(c.cu_seqlens_k) - 1, c.page_table.shape[0]);
  for (int64_t i = 0; i < requests; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t keys = int64_t{c.cu_seqlens_k[at + 1]} - c.cu_seqlens_k[at];
    const int64_t pages = (keys + kIndexPageTokens - 1) / kIndexPageTokens;
    if (pages <= 0) continue;
    spans.push_back({c.page_table.data, c.page_table.offset(i), pages, 4, Access::kRead,
                     static_cast<int32_t>(i)});
    for (int64_t p = 0; p < std::min(pages, c.page_table.shape[1]); ++p)
      add_missing_place(&spans, c.pages, load_i32(c.page_table, i, p), kIndexDim, Access::kRead, i);
  }
  return spans;
}

struct GatherKeysLaunch : CheckedLaunch<GatherIndexKeys> {
  static Status run(const GatherIndexKeys& c) { return gather_index_keys(c); }
  static std::array<TensorView, 2> outputs(const GatherIndexKeys& c) { return {c.k, c.k_scale}; }
  static Footprint footprint(const GatherIndexKeys& c) { return gather_index_keys_footprint(c); }
  static Footprint refused(const GatherIndexKeys& c) { return refused_footprint(c); }
};

/// Lists, the ids of each token as far as its row of the table reaches, and pages that are not
/// there.
Footprint refused_footprint(const IndexerLogits& c) {
  Footprint spans;
  for (const auto& list : {c.rows, c.ks, c.ke}) add_whole(&spans, list);
  const int64_t tokens = std::min(c.tokens(), std::ssize(c.ke));
  const bool lists = (c.rows.empty() || std::ssize(c.rows) >= tokens) &&
                     (c.ks.empty() || std::ssize(c.ks) >= tokens);
  for (int64_t t = 0; lists && c.is_paged() && t < tokens; ++t) {
    const int64_t row = c.row(t), first = std::max<int64_t>(0, c.first(t)) / kIndexPageTokens;
    const int64_t behind = (c.last(t) + kIndexPageTokens - 1) / kIndexPageTokens;
    if (behind <= first) continue;
    spans.push_back({c.page_table.data, c.page_table.offset(row, first), behind - first, 4,
                     Access::kRead, static_cast<int32_t>(t)});
    if (row < 0 || row >= c.page_table.shape[0]) continue;
    for (int64_t p = first; p < std::min(behind, c.page_table.shape[1]); ++p)
      add_missing_place(&spans, c.pages, load_i32(c.page_table, row, p), kIndexDim, Access::kRead,
                        t);
  }
  return spans;
}

struct LogitsLaunch : CheckedLaunch<IndexerLogits> {
  static Status run(const IndexerLogits& c) { return indexer_logits(c); }
  static std::array<TensorView, 1> outputs(const IndexerLogits& c) { return {c.logits}; }
  static Footprint footprint(const IndexerLogits& c) { return indexer_logits_footprint(c); }
  static Footprint refused(const IndexerLogits& c) { return refused_footprint(c); }
};

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

void choose(const ChooseIndices& call) {
  const bool chosen = select_indices(call.select).ok();
  if (!chosen) poison(call.select.indices);
  if (!chosen || !transform_indices(call.transform).ok()) poison(call.transform.out);
}

void note_choice(const ChooseIndices& call, Footprint* spans) {
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
}

}  // namespace

constinit const Kernel kStoreIndexKeys = checked_kernel<StoreKeysLaunch>("store_index_keys");
constinit const Kernel kGatherIndexKeys = checked_kernel<GatherKeysLaunch>("gather_index_keys");
constinit const Kernel kIndexerLogits = checked_kernel<LogitsLaunch>("indexer_logits");
constinit const Kernel kChooseIndices =
    launch_kernel<ChooseIndices, choose, note_choice>("choose_indices");

KernelLaunch store_index_keys_launch(StoreIndexKeys call, const RequestRows& tokens) {
  call.first_slot = std::max<int64_t>(call.first_slot, kIndexPageTokens);
  return launch_of(kStoreIndexKeys, call, tokens, std::ssize(call.out_cache_loc));
}

KernelLaunch gather_index_keys_launch(const GatherIndexKeys& call, const RequestRows& rows) {
  return launch_of(kGatherIndexKeys, call, rows, call.k.shape[0]);
}

KernelLaunch indexer_logits_launch(const IndexerLogits& call, const RequestRows& tokens) {
  return launch_of(kIndexerLogits, call, tokens, call.tokens());
}

KernelLaunch choose_indices_launch(const ChooseIndices& call, const RequestRows& tokens) {
  return launch_of(kChooseIndices, call, tokens, call.select.logits.shape[0]);
}

}  // namespace shadowgraph
