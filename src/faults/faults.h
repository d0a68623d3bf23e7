// The catalogue of faults: what engines really shipped, planted on purpose. A fault is a Tap: it
// stands between the scheduler and the device, and no backend or kernel knows of it. Ids are those
// of the catalogue (spec faults-known). Tested by tests/faults/faults_test.cc.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "check/runner.h"

namespace shadowgraph {

struct Fault {
  std::string_view id;       // "K01"
  std::string_view backend;  // that had it: every history of its features can show it
  std::string_view title;    // what is wrong
  std::string_view refs;     // separated by spaces
  const Tap* tap = nullptr;
};

/// All of src/faults/faults.inc.
std::span<const Fault> all_faults();
/// nullptr if there is none.
const Fault* find_fault(std::string_view id);

/// Several faults at once, one after the other.
class Taps final : public Tap {
 public:
  explicit Taps(std::vector<const Tap*> taps) : taps_(std::move(taps)) {}
  void baked(Meta& meta, bool capture) const override;
  void batch(ForwardBatch& batch, TapStorage& storage) const override;
  void limits(Limits& limits) const override;
  Status filled(const ForwardBatch& batch, Meta& meta) const override;

 private:
  std::vector<const Tap*> taps_;
};

}  // namespace shadowgraph
