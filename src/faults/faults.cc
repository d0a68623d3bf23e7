#include "faults/faults.h"

#include <algorithm>

#include "faults/extents.h"
#include "faults/graphs.h"
#include "faults/merges.h"

namespace shadowgraph {
namespace {

#define SG_FAULT(id, type, backend, title, refs) const type the_##id;
#include "faults/faults.inc"
#undef SG_FAULT

const Fault kFaults[] = {
#define SG_FAULT(id, type, backend, title, refs) {#id, #backend, title, refs, &the_##id},
#include "faults/faults.inc"
#undef SG_FAULT
};

}  // namespace

std::span<const Fault> all_faults() { return kFaults; }

const Fault* find_fault(std::string_view id) {
  const auto it = std::ranges::find_if(kFaults, [&](const Fault& f) { return f.id == id; });
  return it == std::end(kFaults) ? nullptr : it;
}

void Taps::baked(Meta& meta, bool capture) const {
  for (const Tap* tap : taps_) tap->baked(meta, capture);
}
void Taps::batch(ForwardBatch& batch, TapStorage& storage) const {
  for (const Tap* tap : taps_) tap->batch(batch, storage);
}
void Taps::limits(Limits& limits) const {
  for (const Tap* tap : taps_) tap->limits(limits);
}
Status Taps::filled(const ForwardBatch& batch, Meta& meta) const {
  Status status;
  for (const Tap* tap : taps_) status.add(tap->filled(batch, meta));
  return status;
}

}  // namespace shadowgraph
