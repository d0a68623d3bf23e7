// Attention by a schedule that lies on the device: FlashAttention's decode. A persistent kernel
// takes its tiles from a counter, and cuts the keys of each row into as many splits as the schedule
// says. Facts: docs/metadata.md "FlashAttention". Tested by tests/launch/scheduled_launch_test.cc.
#pragma once

#include <span>

#include "attn/visit/visit_attention.h"
#include "launch/launch_args.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

/// A dense table, one query a row, no plan and no mask.
struct ScheduledAttention : PagedAttention {
  std::span<int32_t> schedule = {};  // [1 + rows] the counter, then the splits of each row
  int32_t max_splits = 1, unused = 0;
};
template <class V>
void visit_args(V& v, ScheduledAttention& c) {
  visit_args(v, static_cast<PagedAttention&>(c));
  v("schedule", c.schedule);
  v("max_splits", c.max_splits);
}

/// attention_launch of the rows from the counter on; those before it are left as they are. A row
/// has the same bits whatever its splits; one with fewer than 1 or more than max_splits is filled
/// with 0xff. The counter is 0 when it ends.
KernelLaunch scheduled_launch(const ScheduledAttention& call, const RequestRows& rows = {});

extern const Kernel kScheduledAttention;

}  // namespace shadowgraph
