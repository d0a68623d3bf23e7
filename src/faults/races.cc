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

constexpr Fault kRacesFaults[] = {
    {"K64", "RACE", "Staging is written again while a copy still reads it", "mini-sglang#103", "",
     make_tap<StagingWithoutFence>},
    {"K66", "RACE", "The fence of staging stands below its first write", "vllm#25279", "",
     make_tap<FenceBelowTheWrites>},
};

}  // namespace

std::span<const Fault> themes::races() { return kRacesFaults; }

}  // namespace shadowgraph
