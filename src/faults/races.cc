// Faults of the order between host and device.

#include <functional>
#include <utility>

#include "faults/plant.h"

namespace shadowgraph {
namespace {

class SloppyDevice final : public SimDevice {
 public:
  SloppyDevice(const SimOptions& options, bool waits_late, std::function<void()> act)
      : SimDevice(options), waits_late_(waits_late), act_(std::move(act)) {}

  DeviceError event_synchronize(EventHandle e) override {
    skipped_ = e;
    if (event_query(e) != DeviceError::kSuccess) act_();
    return DeviceError::kSuccess;
  }
  DeviceError memcpy_async(const MemcpyParams& copy, StreamHandle s) override {
    if (waits_late_ && skipped_) SimDevice::event_synchronize(std::exchange(skipped_, {}));
    return SimDevice::memcpy_async(copy, s);
  }

 private:
  const bool waits_late_;
  const std::function<void()> act_;
  EventHandle skipped_;
};

/// Nothing waits for the copies of the last upload before their staging is written again.
struct StagingWithoutFence final : Tap {
  std::unique_ptr<SimDevice> device(const SimOptions& options) override {
    return std::make_unique<SloppyDevice>(options, false, [this] { act(); });
  }
};

/// The wait stands below the first write: it is made before the next upload.
struct FenceBelowTheWrites final : Tap {
  std::unique_ptr<SimDevice> device(const SimOptions& options) override {
    return std::make_unique<SloppyDevice>(options, true, [this] { act(); });
  }
};

/// Work of one stream does not wait for what another one holds.
template <StreamWait left_out>
struct WithoutWait final : Tap {
  bool waits(StreamWait wait) override {
    if (wait != left_out) return true;
    act();
    return false;
  }
};

constexpr Fault kRacesFaults[] = {
    {"K64", "RACE", "Staging is written again while a copy still reads it", "mini-sglang#103", "",
     make_tap<StagingWithoutFence>},
    {"K66", "RACE", "The fence of staging stands below its first write", "vllm#25279", "",
     make_tap<FenceBelowTheWrites>},
    {"O1", "RACE", "Uploads do not wait for the replay that still reads the buffers",
     "sglang#30435 sglang#17033", "", make_tap<WithoutWait<StreamWait::kUploadsOnForward>>},
    {"O2", "RACE", "The forward does not wait for what is uploaded for it",
     "vllm#29608 sglang#22811", "", make_tap<WithoutWait<StreamWait::kForwardOnUploads>>},
    {"O3", "RACE", "Slots and states are moved without a wait for the forward that still uses them",
     "sglang#24954", "", make_tap<WithoutWait<StreamWait::kPoolsOnForward>>},
};

}  // namespace

std::span<const Fault> themes::races() { return kRacesFaults; }

}  // namespace shadowgraph
