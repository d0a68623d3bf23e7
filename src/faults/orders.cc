// Faults of which launch waits for which, and of what one leaves to the next.

#include <algorithm>

#include "faults/plant.h"
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

/// A persistent kernel takes its tiles from a counter beside the metadata that a fill sets to 0. A
/// second call with the same metadata finds it at its end, unless a merge between has reset it.
/// It strikes calls over pages.
struct TileCounterNotReset final : Tap {
  void bound(Meta& meta, bool /*capturing*/) override {
    const BufferSpec spec{.name = "tile_count_semaphores",
                          .dtype = DType::kI32,
                          .shape = {kCounters},
                          .lifetime = Lifetime::kPerStep};
    std::vector<Buffer> bound;
    (void)meta.arena.scope(kScheduler).bind({&spec, 1}, &bound);  // a full arena: no counters
  }
  Status filled(const ForwardBatch& /*batch*/, Meta& meta) override {
    const Buffer* counters = counters_of(meta);
    if (counters == nullptr) return {};
    const std::vector<int32_t> zeros(kCounters);
    return meta.arena.write(*counters, 0, std::span<const int32_t>(zeros));
  }
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool) override {
    const Buffer* counters = counters_of(meta);
    if (counters == nullptr) return;
    std::vector<const void*> lens;  // of calls since the last merge, by the metadata that they read
    int64_t first = 0;
    for (TappedLaunch& one : all) {
      if (is_merge(one.launch)) first += std::ssize(lens), lens.clear();
      if (one.launch.kernel != &kPagedAttention) continue;
      const PageTable pages = call_of<PagedAttention>(one.launch).call.pages;
      const void* mine = pages.form == PageTable::Form::kDense ? pages.cache_seqlens.data()
                                                               : pages.kv_indptr.data();
      const auto known = std::ranges::find(lens, mine);
      if (known != lens.end()) act();
      const int64_t i = first + (known - lens.begin());
      if (known == lens.end()) lens.push_back(mine);
      if (i >= kCounters) return;
      one.launch.args.pointer(counters->data + i * static_cast<int64_t>(sizeof(int32_t)));
      substitute<take_tiles>(&one.launch);
    }
  }
};

constexpr Fault kOrdersFaults[] = {
    {"K15", "STALE", "The counter of tiles is not reset when metadata is used again",
     "flash-attention@1a58058a", "row.unwritten", make_tap<TileCounterNotReset>},
    // What follows a merge does not wait for it, and writes the partial results that it reads.
    {"K67", "RACE", "Partial results are written again while a merge still reads them",
     "llama.cpp#13438 llama.cpp#13742", "row.of_request",
     on_launches([](Tap& tap, Launches& all, const Meta&) {
       for (TappedLaunch& one : all) {
         if (!is_merge(one.launch)) continue;
         one.apart = true;
         tap.act();
       }
     })},
    // What reads metadata that a launch makes does not wait for that launch.
    {"K68", "RACE", "Metadata is read before the launch that makes it", "FlashMLA@01a2772",
     "table.stale values.no_number", on_launches([](Tap& tap, Launches& all, const Meta&) {
       static constexpr std::string_view kMakers[] = {"gather_table", "gather_latents",
                                                      "copy_slots", "indptr_of_ends"};
       for (TappedLaunch& one : all) {
         if (std::ranges::find(kMakers, one.launch.kernel->name) == std::end(kMakers)) continue;
         one.apart = true;
         tap.act();
       }
     })},
};

}  // namespace

std::span<const Fault> themes::orders() { return kOrdersFaults; }

}  // namespace shadowgraph
