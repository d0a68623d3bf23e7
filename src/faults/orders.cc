#include "faults/orders.h"

#include <algorithm>

#include "faults/buffers.h"
#include "faults/substitutes.h"

namespace shadowgraph {
namespace {

constexpr int64_t kCounters = 64;
constexpr const char* kScheduler = "scheduler";

const Buffer* counters_of(const Meta& meta) {
  return meta.arena.scope(kScheduler).find("tile_count_semaphores");
}

/// The launch's last argument is the counter.
void take_tiles(const KernelLaunch& clean, SlippedRun& run) {
  auto* counter = static_cast<int32_t*>(clean.args.get<void*>(clean.args.size() - 1));
  run.note({counter, 0, 1, sizeof(int32_t), Access::kRead});
  run.note({counter, 0, 1, sizeof(int32_t), Access::kWrite});
  const auto tiles = static_cast<int32_t>(clean.grid.x);
  if (*counter >= tiles) return;  // all are taken
  run.launch(clean);
  if (!run.noted()) *counter += tiles;
}

}  // namespace

void TileCounterNotReset::bound(Meta& meta, bool /*capturing*/) {
  const BufferSpec spec{.name = "tile_count_semaphores",
                        .dtype = DType::kI32,
                        .shape = {kCounters},
                        .lifetime = Lifetime::kPerStep};
  std::vector<Buffer> bound;
  (void)meta.arena.scope(kScheduler).bind({&spec, 1}, &bound);  // a full arena: no counters
}

Status TileCounterNotReset::filled(const ForwardBatch& /*batch*/, Meta& meta) {
  const Buffer* counters = counters_of(meta);
  if (counters == nullptr) return {};
  const std::vector<int32_t> zeros(kCounters);
  return meta.arena.write(*counters, 0, std::span<const int32_t>(zeros));
}

void TileCounterNotReset::launches(std::vector<TappedLaunch>& all, const Meta& meta, bool) {
  const Buffer* counters = counters_of(meta);
  if (counters == nullptr) return;
  std::vector<const void*> lens;  // of calls since the last merge, by the metadata that they read
  int64_t first = 0;
  for (TappedLaunch& one : all) {
    if (is_merge(one.launch)) first += std::ssize(lens), lens.clear();
    if (one.launch.kernel != &kPagedAttention) continue;
    const PageTable pages = attention_call(one.launch).call.pages;
    const void* mine =
        pages.form == PageTable::Form::kDense ? pages.cache_seqlens.data() : pages.kv_indptr.data();
    const auto known = std::ranges::find(lens, mine);
    if (known != lens.end()) act();
    const int64_t i = first + (known - lens.begin());
    if (known == lens.end()) lens.push_back(mine);
    if (i >= kCounters) return;
    one.launch.args.pointer(counters->data + i * static_cast<int64_t>(sizeof(int32_t)));
    substitute<take_tiles>(&one.launch);
  }
}

void MergeWithoutBarrier::launches(std::vector<TappedLaunch>& all, const Meta&, bool) {
  for (TappedLaunch& one : all) {
    if (!is_merge(one.launch)) continue;
    one.apart = true;
    act();
  }
}

void MetadataReadEarly::launches(std::vector<TappedLaunch>& all, const Meta&, bool) {
  static constexpr std::string_view kMakers[] = {"gather_table", "gather_latents", "copy_slots",
                                                 "indptr_of_ends"};
  for (TappedLaunch& one : all) {
    if (std::ranges::find(kMakers, one.launch.kernel->name) == std::end(kMakers)) continue;
    one.apart = true;
    act();
  }
}

}  // namespace shadowgraph
