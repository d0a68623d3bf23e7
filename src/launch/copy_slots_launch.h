// Tokens of a pool copied to other slots of it, as a launch. Facts: docs/metadata.md "Drafts".
// Tested by tests/launch/copy_slots_launch_test.cc.
#pragma once

#include <span>

#include "attn/visit/visit_attention.h"
#include "launch/launch_args.h"
#include "shadowgraph/attention/kv_cache.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

/// Keys, values and scales of source_slots[i] go to target_slots[i], bit for bit: the tokens of a
/// prefix's last page, which each branch of a draft has a copy of.
struct CopySlots {
  KvCache cache;
  std::span<const int64_t> source_slots, target_slots;  // of the device, equally many
};
template <class V>
void visit_args(V& v, CopySlots& c) {
  v("source_slots", c.source_slots);
  v("target_slots", c.target_slots);
  v("cache", c.cache);
}

/// Reads the slots when it runs. A pair whose target is below the page size is dropped: page 0 is
/// the padding page, however many name its slots. Nothing is copied where a slot of another pair is
/// not in the pool (the footprint holds the access), a target is named twice, or is a source: a GPU
/// copies all pairs at once.
KernelLaunch copy_slots_launch(const CopySlots& call);

extern const Kernel kCopySlots;

}  // namespace shadowgraph
