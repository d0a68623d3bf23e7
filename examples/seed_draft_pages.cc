// SGLang's FlashAttention scattered the pages of all steps of a draft into a table for the first:
// rows ran into each other, and behind the table (sglang#27360). topk 8, pages of 2, 8 steps.
#include <cstdio>
#include <vector>

#include "shadowgraph/shadowgraph.h"

using namespace shadowgraph;

namespace {

constexpr int32_t kTopk = 8, kPageSize = 2, kSteps = 8, kColumns = 2;  // of the first step

// Behind 7 cached tokens: a branch has five pages, and a copy of the seventh before its own tokens.
int32_t page_of(int32_t branch, int32_t token) { return (10 * branch + 11 + token) / kPageSize; }

// fn(element of the table, page) for the pages of each branch's first tokens.
template <class Fn>
void scatter(const LaunchFrame& f, Fn fn) {
  for (int32_t branch = 0; branch < kTopk; ++branch)
    for (int32_t token = 0, column = 0; token < f.scalar<int32_t>(1); ++token) {
      if (token > 0 && page_of(branch, token) != page_of(branch, token - 1)) ++column;
      fn(branch * kColumns + column, page_of(branch, token));
    }
}
Progress run(LaunchFrame& f) {
  scatter(f, [&](int32_t element, int32_t page) {
    if (element < kTopk * kColumns) f.pointer<int32_t>(0)[element] = page;
  });
  return Progress::kDone;
}
void footprint(const LaunchFrame& f, Footprint* spans) {
  scatter(f, [&](int32_t element, int32_t) {
    spans->push_back({f.pointer<void>(0), element, 1, sizeof(int32_t), Access::kWrite});
  });
}
const Kernel kScatter{.name = "scatter", .body = run, .footprint = footprint};

Status found_with(int32_t tokens) {
  SimDevice device;
  Arena arena(device, 1 << 20);
  Stream stream(device);
  std::vector<Buffer> table;
  const BufferSpec spec{"page_table", DType::kI32, {kTopk, kColumns}};
  if (!arena.bind({&spec, 1}, &table).ok()) return Status::out_of_memory();
  KernelLaunch launch;
  launch.kernel = &kScatter;
  launch.args.pointer(table[0].data).scalar(tokens);
  stream.launch(launch);
  stream.synchronize();
  return device.take_findings();
}

}  // namespace

int main() {
  const Status before = found_with(kSteps), after = found_with(1);
  std::printf("before:\n%s\nafter: %s\n", before.to_string().c_str(), after.to_string().c_str());
  return !before.ok() && before.findings()[0].id == "mem.red_zone" && after.ok() ? 0 : 1;
}
