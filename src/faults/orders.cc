// Faults of which launch waits for which, and of what one leaves to the next.

#include <algorithm>

#include "faults/launches.h"
#include "faults/plant.h"

namespace shadowgraph {
namespace {

constexpr Fault kOrdersFaults[] = {
    // A kernel finds a counter where the last replay left it.
    {"K15", "STALE", "The counter of tiles is not reset when metadata is used again",
     "flash-attention@1a58058a fa.I-88", "row.unwritten values.no_number",
     on_replay([](Tap& tap, const ForwardBatch&, Meta& meta) {
       for_buffers(meta, {"scheduler_metadata", "row_counters"}, [&](Meta& m, const Buffer& b) {
         const int32_t left[] = {m.limits.rows};
         if (m.arena.write(b, 0, std::span<const int32_t>(left)).ok()) tap.act();
       });
     })},
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
