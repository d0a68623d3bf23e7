// Arithmetics that a recording declares: a line of arithmetics.inc, and how the kernel departs from
// it. Tested by tests/oracle/declared_test.cc.
#pragma once

#include <string>

#include "check/bounds/arithmetic.h"
#include "shadowgraph/attention/promises.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// vector.case at the field that should name a line of arithmetics.inc.
Finding no_such_arithmetic(const char* field, const std::string& name);

/// The arithmetic that a bound is derived of.
Arithmetic with_declared(const Arithmetic& named, const DeclaredArithmetic& declared);

}  // namespace shadowgraph
