// The nodes that the grid of updates changes, on a small device: what stands around them, what
// their fields may become, and what a launch shows. Inside of update_grid.cc and
// update_subjects.cc.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shadowgraph/device/sim_device.h"

namespace shadowgraph {

/// CUDA's answer to an update.
enum class UpdateRule : uint8_t {
  kTaken,
  kRefused,
  kOpen,  // the driver decides, or the documentation says nothing
};

/// Memory, events and host functions that nodes name.
struct UpdateRig {
  explicit UpdateRig(std::unique_ptr<SimDevice> device);

  static constexpr size_t kWords = 64;
  using Words = std::array<uint32_t, kWords>;

  /// The memory is as it was at first; then the exec is launched, twice.
  std::string launch(ExecHandle exec);

  std::unique_ptr<SimDevice> device;
  uint32_t *a = nullptr, *b = nullptr, *seen = nullptr, *pinned = nullptr;
  Words host{};
  std::array<int32_t, 2> logs{};  // host functions add to them
  std::array<EventHandle, 2> events;
  StreamHandle stream, side;

 private:
  void reset();
  std::string describe();
};

/// A field of the node that is changed, or of what it is made with.
struct FieldChange {
  uint32_t number = 0;                   // which change is made; the others are counted
  uint32_t count = 0;                    // changes so far
  std::optional<std::string> text = {};  // "width = 8", once it is made
};

/// A graph's node of some kind, and where its handle is.
struct BuiltNode {
  DeviceError error = DeviceError::kSuccess;  // of the node, and of all that stands around it
  NodeHandle node = {};
  NodeParams params = {};
  uint32_t handle_default = 1;  // of a conditional
};

struct UpdateSubject {
  std::string_view kind;
  bool nested = true;  // CUDA lets children and bodies have it
  /// Adds it and what shows its effect. change: null for the graph that the exec is made from.
  BuiltNode (*add)(UpdateRig& rig, GraphHandle g, std::vector<NodeHandle> after,
                   FieldChange* change);
  bool races = false;  // of what it reads the schedule may decide
};

std::span<const UpdateSubject> update_subjects();
/// A kernel that shows all fields of its launch, and the value of what it reads.
NodeParams shown_launch(uint32_t* target, const uint32_t* source, uint32_t value);

}  // namespace shadowgraph
