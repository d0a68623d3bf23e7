// A recorded step on the simulated device: lengths live in a buffer that every step fills anew. The
// second step forgets a row. A GPU would count the old length without a word; here it is a finding.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "shadowgraph/device/arena.h"
#include "shadowgraph/device/graph.h"
#include "shadowgraph/device/sim_device.h"

using namespace shadowgraph;

namespace {

// keys[i] += cache_seqlens[i], for n requests.
Progress count_keys(LaunchFrame& f) {
  const auto* cache_seqlens = f.pointer<const int32_t>(0);
  auto* keys = f.pointer<int32_t>(1);
  for (int32_t i = 0; i < f.scalar<int32_t>(2); ++i) keys[i] += cache_seqlens[i];
  return Progress::kDone;
}

// What the body reads and writes, request by request.
void count_keys_footprint(const LaunchFrame& f, Footprint* spans) {
  for (int32_t i = 0; i < f.scalar<int32_t>(2); ++i) {
    spans->push_back({f.pointer<void>(0), i, 1, sizeof(int32_t), Access::kRead, i});
    spans->push_back({f.pointer<void>(1), i, 1, sizeof(int32_t), Access::kRead, i});
    spans->push_back({f.pointer<void>(1), i, 1, sizeof(int32_t), Access::kWrite, i});
  }
}

const Kernel kCountKeys{
    .name = "count_keys", .body = count_keys, .footprint = count_keys_footprint};

void require(const Status& status) {
  if (status.ok()) return;
  std::printf("%s\n", status.to_string().c_str());
  std::exit(1);
}

}  // namespace

int main() {
  SimDevice device;
  Arena arena(device, 1 << 20);
  std::vector<Buffer> buffers;
  const BufferSpec specs[] = {
      {.name = "cache_seqlens", .shape = {2}, .lifetime = Lifetime::kPerStep},
      {.name = "keys", .shape = {2}, .lifetime = Lifetime::kPersistent},
  };
  require(arena.bind(specs, &buffers));
  const Buffer &cache_seqlens = buffers[0], &keys = buffers[1];

  Stream stream(device);
  stream.fill(keys.data, 0, keys.bytes());
  KernelLaunch launch;
  launch.kernel = &kCountKeys;
  launch.args.pointer(cache_seqlens.data).pointer(keys.data).scalar(int32_t{2});
  Graph graph;
  GraphExec exec;
  require(Graph::record(
      stream, [&](Stream& s) { s.launch(launch); }, &graph));
  require(GraphExec::instantiate(graph, &exec));

  const auto step = [&](std::vector<int32_t> lengths) {
    arena.begin_step();
    require(arena.write<int32_t>(cache_seqlens, 0, lengths));
    require(arena.upload(stream.handle()));
    exec.replay(stream);
    stream.synchronize();
    require(stream.take_status());
    return device.take_findings();
  };
  require(step({17, 4}));
  const Status forgotten = step({18});  // request 1 is not refilled
  std::printf("%s\n", forgotten.to_string().c_str());
  return forgotten.findings().size() == 1 ? 0 : 1;
}
