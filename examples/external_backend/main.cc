// Histories of a backend that is no part of Shadowgraph: clean as it is, found with a slip in it,
// and found with faults in it that engines shipped. `external_backend stale_table` runs one line
// alone; what it prints repeats the smallest history that shows it.
#include <cstdio>
#include <cstring>
#include <string>

#include "paged_engine.h"
#include "shadowgraph/fuzz_backend.h"

using namespace shadowgraph;
using my_engine::PagedEngine, my_engine::Slip;

namespace {

struct Run {
  const char* name;
  Slip slip = Slip::kNone;
  const char* fault = nullptr;  // an id of `shadowgraph list faults`
};
constexpr Run kRuns[] = {{"clean"},
                         {"stale_table", Slip::kStaleTable},
                         {"prefix_lengths", Slip::kPrefixLengths},
                         {"K48", Slip::kNone, "K48"}};

// True: what should be found is, and nothing else.
bool run(const Run& r) {
  testing::BackendFuzzOptions options;
  options.histories = 400;
  if (r.fault != nullptr) options.faults = {r.fault};
  options.command = std::string("external_backend ") + r.name;
  testing::BackendFuzzCounts counts;
  const Status status = testing::fuzz_backend(PagedEngine(r.slip), options, &counts);
  std::printf("%s: %s\n", r.name, status.to_string().c_str());
  if (!status.ok()) std::printf("  %s\n", status.findings()[0].reproduce.c_str());
  for (const auto& [name, steps] : counts.steps)
    std::printf("  %s: %lld steps\n", name.c_str(), static_cast<long long>(steps));
  return status.ok() == (r.slip == Slip::kNone && r.fault == nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  bool right = true;
  for (const Run& r : kRuns)
    if (argc < 2 || std::strcmp(argv[1], r.name) == 0) right = run(r) && right;
  return right ? 0 : 1;
}
