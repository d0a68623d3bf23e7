// Figures of the verb `bench` read back from their JSON form.
#pragma once

#include "report/bench_report.h"
#include "report/json_members.h"

namespace shadowgraph {

/// document: the report's own members, of which it takes those that a bench has. threads: the
/// report's.
void read_bench(JsonMembers& document, int threads, BenchReport* bench);

}  // namespace shadowgraph
