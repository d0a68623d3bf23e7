// Faults of plans whose requests have no keys.

#include <algorithm>

#include "faults/plan_lists.h"

namespace shadowgraph {
namespace {

using Fi = FlashInfer;

bool has_keys(const PlanLists& plan, int64_t row) {
  const auto at = static_cast<size_t>(row);
  return plan.kv_indptr[at + 1] > plan.kv_indptr[at];
}

bool all_have_keys(const PlanLists& plan) {
  for (int64_t row = 0; row < plan.shape.rows; ++row)
    if (!has_keys(plan, row)) return false;
  return true;
}

const Buffer& array(const Meta& meta, const PlanLists& plan, Fi::PlanId id) {
  return meta[static_cast<size_t>(Fi::plan(plan.wrapper, plan.part, id))];
}

constexpr Fault kEmptiesFaults[] = {
    // A plan has no work for a request without keys: nothing writes its rows.
    {"K52", "EMPTY", "A plan has no work for a request without keys", "flashinfer#868 fi.I-61",
     "row.unwritten values.no_number", on_plans([](Tap& tap, const Meta& m, const PlanLists& plan) {
       if (all_have_keys(plan)) return;
       const int64_t items = plan.measure().items;
       const auto requests = staged<int32_t>(m, array(m, plan, Fi::kRequestIndices), {0, items});
       const auto valid = staged<uint8_t>(m, array(m, plan, Fi::kBlockValidMask));
       for (size_t i = 0; i < std::min(requests.size(), valid.size()); ++i) {
         if (has_keys(plan, requests[i])) continue;
         valid[i] = 0;
         tap.act();
       }
     })},
    // Where no request has a key a planner divides by 0, and its chunk is what an infinite number
    // becomes as an integer.
    {"K53", "EMPTY", "A planner divides by the length of nothing",
     "flash-attention#2515 flash-attention#2470", "row.unwritten",
     on_plans([](Tap& tap, const Meta& m, const PlanLists& plan) {
       if (all_have_keys(plan)) return;
       if (plan.shape.split.off || plan.kv_indptr.back() > 0) return;
       for (int32_t& chunk : staged<int32_t>(m, array(m, plan, Fi::kKvChunkSize))) {
         chunk = INT32_MIN;
         tap.act();
       }
     })},
    // What merges takes the chunks of a request without keys for none, and the work list has one.
    {"K59", "SPLIT", "A merge expects no partial result of a request without keys",
     "flashinfer@b064ad2b flashinfer#440", "",
     on_plans([](Tap& tap, const Meta& m, const PlanLists& plan) {
       if (all_have_keys(plan)) return;
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
       tap.act();
     })},
};

}  // namespace

std::span<const Fault> themes::empties() { return kEmptiesFaults; }

}  // namespace shadowgraph
