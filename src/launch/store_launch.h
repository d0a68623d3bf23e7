// store_kv as a launch. Tested by tests/launch/store_launch_test.cc.
#pragma once

#include "attn/visit/visit_attention.h"
#include "launch/launch_args.h"
#include "shadowgraph/engine/launches.h"

namespace shadowgraph {

extern const Kernel kStoreKv;

}  // namespace shadowgraph
