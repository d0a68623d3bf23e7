// Faults of replays: what is not written for a step, or is written elsewhere.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "check/tap.h"

namespace shadowgraph {

/// A replay's fill leaves these buffers out: they stay those of the capture.
class NotRefilled : public Tap {
 public:
  /// By how their names end.
  explicit NotRefilled(std::span<const std::string_view> endings) : endings_(endings) {}
  Status filled(const ForwardBatch& batch, Meta& meta) override;

 private:
  std::span<const std::string_view> endings_;
};

/// Offsets are written into the eager buffer.
struct OffsetsOfTheCapture final : NotRefilled {
  OffsetsOfTheCapture();
};
/// Only the removed function of replays filled tables.
struct TablesOfTheCapture final : NotRefilled {
  TablesOfTheCapture();
};
/// Lengths and lists are new, and nobody plans again: a work list, or a number of splits.
struct PlanOfTheCapture final : NotRefilled {
  PlanOfTheCapture();
};

/// A replay's fill makes new buffers in the place of those that were captured.
class Reallocated : public Tap {
 public:
  Status filled(const ForwardBatch& batch, Meta& meta) override;
  void baked(Meta& meta, bool capturing) override;

 protected:
  virtual bool is_new(const Meta& meta, const Buffer& b) const = 0;

 private:
  std::vector<std::pair<const void*, Buffer>> moved_;  // in this step, by where each was
};

/// All that a step writes.
class ReallocatedMetadata final : public Reallocated {
  bool is_new(const Meta& meta, const Buffer& b) const override;
};
/// The lengths of layers with a window: what clamps them returns a copy.
class ReallocatedLengths final : public Reallocated {
  bool is_new(const Meta& meta, const Buffer& b) const override;
};

/// A draft extend is captured with as many queries for each request, and replayed with those that
/// were accepted: its launches keep the uniform offsets.
class UniformOffsets final : public Tap {
 public:
  void bound(Meta& meta, bool capturing) override;
  void baked(Meta& meta, bool capturing) override;

 private:
  std::vector<std::pair<const void*, Buffer>> uniform_;  // by where the filled ones are
};

}  // namespace shadowgraph
