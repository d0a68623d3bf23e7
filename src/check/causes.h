// One fault often breaks several laws. What is told first is the cause. Tested by
// tests/check/causes_test.cc.
#pragma once

#include "shadowgraph/status.h"

namespace shadowgraph {

/// Reorders what one run of a step has broken, and keeps the order otherwise: what does not fit
/// comes before what was cut wrong to fit; that a buffer was not written, before what is wrong with
/// the values in it; the error of the device, behind everything.
void causes_first(Status* status);

}  // namespace shadowgraph
