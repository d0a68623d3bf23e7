// store_kv as a launch. Tested by tests/launch/store_launch_test.cc.
#pragma once

#include "attn/visit/visit_attention.h"
#include "launch/launch_args.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/device/kernel.h"

namespace shadowgraph {

/// store_kv, its memory (slots too) being the device's, on what that memory holds when it runs.
/// Slots below the page size are those of page 0, the padding page of the twinned engines: such
/// tokens are dropped, however many name one slot; over a slot_view() that is slot 0 alone. Where
/// the call would be refused then, nothing is stored, and the footprint holds the writes that a GPU
/// would have made beyond the pool.
///
/// tokens: which of them are which request of the step, so that their slots are held against its
/// owner.
KernelLaunch store_launch(StoreKv call, const RequestRows& tokens = {.a_request = 0});

extern const Kernel kStoreKv;

}  // namespace shadowgraph
