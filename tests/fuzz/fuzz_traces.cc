// Whatever the bytes: no crash, no sanitizer report, and a verdict on every line that is read,
// which does not change with names.
#include <cstdlib>
#include <string_view>
#include <vector>

#include "check/traces/traces.h"
#include "io/traces/traces.h"

using namespace shadowgraph;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<TraceLine> lines;
  const Status status = parse_traces({reinterpret_cast<const char*>(data), size}, "fuzz", &lines);
  require(!status.ok() || !lines.empty());
  for (TraceLine& line : lines) {
    const TraceVerdict verdict = judge_trace(line);
    const bool found = verdict.kind == TraceVerdict::Kind::kFlagged ||
                       verdict.kind == TraceVerdict::Kind::kRefused;
    require(verdict.findings.ok() != found);
    require(verdict.why.empty() || verdict.kind == TraceVerdict::Kind::kSkipped);
    line.id = line.role = "other";
    require(judge_trace(line).kind == verdict.kind);
  }
  return 0;
}
