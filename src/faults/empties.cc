#include "faults/empties.h"

#include <algorithm>

#include "faults/plan_lists.h"

namespace shadowgraph {
namespace {

using Fi = FlashInfer;

bool has_keys(const PlanLists& plan, int64_t row) {
  const auto at = static_cast<size_t>(row);
  return plan.kv_indptr[at + 1] > plan.kv_indptr[at];
}

/// fn(metadata, plan) of every plan with such a request.
template <class Fn>
void for_empty(Meta& meta, Fn fn) {
  for_metas(meta, [&](Meta& m) {
    for (const PlanLists& plan : plans_of(m)) {
      bool all = true;
      for (int64_t row = 0; row < plan.shape.rows; ++row) all = all && has_keys(plan, row);
      if (!all) fn(m, plan);
    }
  });
}

const Buffer& array(const Meta& meta, const PlanLists& plan, Fi::PlanId id) {
  return meta[static_cast<size_t>(Fi::plan(plan.wrapper, plan.part, id))];
}

}  // namespace

Status NoItemWithoutKeys::filled(const ForwardBatch& /*batch*/, Meta& meta) {
  for_empty(meta, [&](const Meta& m, const PlanLists& plan) {
    const int64_t items = plan.measure().items;
    const auto requests = staged<int32_t>(m, array(m, plan, Fi::kRequestIndices), {0, items});
    const auto valid = staged<uint8_t>(m, array(m, plan, Fi::kBlockValidMask));
    for (size_t i = 0; i < std::min(requests.size(), valid.size()); ++i) {
      if (has_keys(plan, requests[i])) continue;
      valid[i] = 0;
      act();
    }
  });
  return {};
}

Status DividedByNoKeys::filled(const ForwardBatch& /*batch*/, Meta& meta) {
  for_empty(meta, [&](const Meta& m, const PlanLists& plan) {
    if (plan.shape.split.off || plan.kv_indptr.back() > 0) return;
    for (int32_t& chunk : staged<int32_t>(m, array(m, plan, Fi::kKvChunkSize))) {
      chunk = INT32_MIN;
      act();
    }
  });
  return {};
}

Status NoChunkWithoutKeys::filled(const ForwardBatch& /*batch*/, Meta& meta) {
  for_empty(meta, [&](const Meta& m, const PlanLists& plan) {
    const PlanResult result = plan.measure();
    const auto rows = static_cast<size_t>(plan.shape.rows);
    const auto o_indptr = staged<int32_t>(m, array(m, plan, Fi::kOIndptr));
    std::span<int32_t> merge_indptr;
    if (!plan.queries().empty())
      merge_indptr = staged<int32_t>(m, array(m, plan, Fi::kMergeIndptr),
                                     {0, int64_t{plan.qo_indptr.back()} + 1});
    size_t token = 0;
    for (size_t i = 0; i < rows && i + 1 < o_indptr.size(); ++i) {
      const int32_t chunks = has_keys(plan, static_cast<int64_t>(i))
                                 ? result.chunks(plan.kv_indptr[i + 1] - plan.kv_indptr[i])
                                 : 0;
      const int32_t queries =
          plan.queries().empty() ? 1 : plan.qo_indptr[i + 1] - plan.qo_indptr[i];
      o_indptr[i + 1] = o_indptr[i] + queries * chunks;
      for (int32_t q = 0; q < queries && token + 1 < merge_indptr.size(); ++q, ++token)
        merge_indptr[token + 1] = merge_indptr[token] + chunks;
    }
    act();
  });
  return {};
}

}  // namespace shadowgraph
