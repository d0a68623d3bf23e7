#include "faults/plan_lists.h"

#include <numeric>

namespace shadowgraph {
namespace {

using Fi = FlashInfer;

std::vector<int32_t> offsets(const Meta& meta, size_t buffer) {
  const Buffer& b = meta[buffer];
  if (b.lifetime == Lifetime::kPerStep) {
    const std::span<const int32_t> values = staged<int32_t>(meta, b);
    return {values.begin(), values.end()};
  }
  std::vector<int32_t> one_each(static_cast<size_t>(b.numel()));
  std::iota(one_each.begin(), one_each.end(), 0);
  return one_each;
}

}  // namespace

bool is_flashinfer(const Meta& meta) {
  return dynamic_cast<const FlashInfer*>(meta.backend) != nullptr;
}

std::vector<PlanLists> plans_of(const Meta& meta) {
  std::vector<PlanLists> plans;
  if (!is_flashinfer(meta)) return plans;
  for (int w = 0; w < Fi::kNumWrappers; ++w) {
    const FlashInferWrapper wrapper = FlashInferWrapper::of(meta.limits, w);
    if (!wrapper.used) continue;
    PlanLists plan;
    plan.wrapper = w;
    plan.shape = wrapper.shape(meta.limits, Fi::Part::kPaged);
    plan.qo_indptr = offsets(meta, Fi::kQoIndptr);
    plan.kv_indptr = offsets(meta, static_cast<size_t>(Fi::list(w, Fi::kKvIndptr)));
    plans.push_back(plan);
    if (!wrapper.ragged) continue;
    plan.part = Fi::Part::kRagged;
    plan.shape = wrapper.shape(meta.limits, Fi::Part::kRagged);
    plan.kv_indptr = plan.qo_indptr;
    plans.push_back(std::move(plan));
  }
  return plans;
}

Status write(Meta& meta, const PlanLists& plan, const PlanResult& result) {
  const bool decode = plan.shape.kind == PlanKind::kDecode;
  const auto array = [&](Fi::PlanId id, int64_t count) {
    return plan_array(meta, plan, id, count);
  };
  PlanArrays to;
  to.request_indices = array(Fi::kRequestIndices, result.items);
  to.kv_tile_indices = array(Fi::kKvTileIndices, result.items);
  if (!decode) to.qo_tile_indices = array(Fi::kQoTileIndices, result.items);
  to.o_indptr = array(Fi::kOIndptr, plan.shape.rows + 1);
  if (!decode) to.merge_indptr = array(Fi::kMergeIndptr, plan.qo_indptr.back() + 1);
  to.kv_chunk_size = array(Fi::kKvChunkSize, 1);
  to.block_valid_mask = plan_array<uint8_t>(meta, plan, Fi::kBlockValidMask, INT64_MAX);
  scalar_of(meta, static_cast<size_t>(Fi::split_kv(plan.wrapper, plan.part))) = result.split_kv;
  return write_plan(plan.shape, plan.queries(), plan.kv_indptr, result, to);
}

}  // namespace shadowgraph
