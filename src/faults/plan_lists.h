// What FlashInfer's plans are made from, and the making of another.
#pragma once

#include <span>
#include <vector>

#include "backends/lists/flashinfer_wrapper.h"
#include "faults/plant.h"

namespace shadowgraph {

/// One part of a wrapper, and the lengths that it is planned for.
struct PlanLists {
  int wrapper = 0;
  FlashInfer::Part part = FlashInfer::Part::kPaged;
  PlanShape shape;
  std::vector<int32_t> qo_indptr, kv_indptr;  // of queries and keys; all rows, padding too

  /// As the planner takes it.
  std::span<const int32_t> queries() const {
    return shape.kind == PlanKind::kDecode ? std::span<const int32_t>{} : qo_indptr;
  }
  PlanResult measure() const { return measure_plan(shape, queries(), kv_indptr); }
};

bool is_flashinfer(const Meta& meta);
/// The plans of metadata that FlashInfer has filled; another backend has none.
std::vector<PlanLists> plans_of(const Meta& meta);

/// Elements of an array, and the rest retired. Fewer where it has no more.
template <class T = int32_t>
std::span<T> plan_array(const Meta& meta, const PlanLists& plan, FlashInfer::PlanId id,
                        int64_t count) {
  const Buffer& b = meta[static_cast<size_t>(FlashInfer::plan(plan.wrapper, plan.part, id))];
  if (b.data == nullptr) return {};
  const int64_t used = std::min(count, b.numel());
  Arena arena = meta.arena;
  arena.discard(b);
  (void)arena.retire(b, {used, b.numel() - used});
  return staged<T>(meta, b, {0, used});
}

/// As fill does. plan.capacity: the arrays have no room for it.
Status write(Meta& meta, const PlanLists& plan, const PlanResult& result);

/// A fault whose body(tap, m, plan), with a Status where it has one, takes each plan of a step.
template <class Body>
constexpr MakeFault on_plans(Body) {
  return on_filled([](Tap& tap, const ForwardBatch&, Meta& meta) {
    Status status;
    for_metas(meta, [&](Meta& m) {
      for (const PlanLists& plan : plans_of(m)) {
        if constexpr (std::is_void_v<decltype(Body{}(tap, m, plan))>) {
          Body{}(tap, m, plan);
        } else {
          status.add(Body{}(tap, m, plan));
        }
      }
    });
    return status;
  });
}

}  // namespace shadowgraph
