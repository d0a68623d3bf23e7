// Faults of the order between host and device.
#include "faults/races.h"

#include <functional>
#include <utility>

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

}  // namespace

std::unique_ptr<SimDevice> StagingWithoutFence::device(const SimOptions& options) {
  return std::make_unique<SloppyDevice>(options, false, [this] { act(); });
}

std::unique_ptr<SimDevice> FenceBelowTheWrites::device(const SimOptions& options) {
  return std::make_unique<SloppyDevice>(options, true, [this] { act(); });
}

}  // namespace shadowgraph
