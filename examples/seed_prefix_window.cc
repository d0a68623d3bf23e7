// FlashInfer's prefill with a sliding window is two calls, own tokens and cached prefix, merged by
// their LSE. The prefix's list had the step's own tokens, too, which are stored only afterwards
// (sglang#26513). One request: window 2, 5 cached tokens, 4 new ones; V of token k is k.
#include <cstdio>
#include <span>
#include <vector>

#include "shadowgraph/shadowgraph.h"

using namespace shadowgraph;

namespace {

constexpr int32_t kWindow = 2, kPrefix = 5, kAll = 9, kFirst = kPrefix - kWindow;

// out = the sum of v over n slots of a list: attention over equal keys, but for the division.
Progress attend(LaunchFrame& f) {
  float& out = *f.pointer<float>(2) = 0;
  for (int32_t i = 0; i < f.scalar<int32_t>(3); ++i)
    out += f.pointer<const float>(1)[f.pointer<const int32_t>(0)[i]];
  return Progress::kDone;
}
void attend_footprint(const LaunchFrame& f, Footprint* spans) {
  const auto n = f.scalar<int32_t>(3);
  spans->push_back({f.pointer<void>(0), 0, n, sizeof(int32_t), Access::kRead});
  spans->push_back({f.pointer<void>(2), 0, 1, sizeof(float), Access::kWrite});
  for (const int32_t slot : std::span(f.pointer<const int32_t>(0), n))
    spans->push_back({f.pointer<void>(1), slot, 1, sizeof(float), Access::kRead});
}
const Kernel kAttend{.name = "attend", .body = attend, .footprint = attend_footprint};

Status found_in_list_up_to(int32_t last) {
  SimDevice device;
  Arena arena(device, 1 << 20);
  Stream stream(device);
  const BufferSpec specs[] = {{"kv_indices", DType::kI32, {kAll}, Lifetime::kPerStep},
                              {"v_cache", DType::kF32, {kAll}, Lifetime::kPersistent},
                              {"out", DType::kF32, {1}, Lifetime::kOutput}};
  std::vector<Buffer> b;
  Status status = arena.bind(specs, &b);
  for (int32_t slot = kFirst; slot < last; ++slot)
    status.add(arena.write(b[0], slot - kFirst, &slot, 1));
  status.add(arena.write<float>(b[1], 0, std::vector<float>{0, 1, 2, 3, 4}));  // the prefix
  status.add(arena.upload(stream.handle()));
  KernelLaunch launch;
  launch.kernel = &kAttend;
  launch.args.pointer(b[0].data).pointer(b[1].data).pointer(b[2].data).scalar(last - kFirst);
  stream.launch(launch);
  stream.synchronize();
  status.add(device.take_findings());
  return status;
}

}  // namespace

int main() {
  const Status before = found_in_list_up_to(kAll), after = found_in_list_up_to(kPrefix);
  std::printf("before:\n%s\nafter: %s\n", before.to_string().c_str(), after.to_string().c_str());
  return !before.ok() && before.findings()[0].id == "mem.uninit_read" && after.ok() ? 0 : 1;
}
