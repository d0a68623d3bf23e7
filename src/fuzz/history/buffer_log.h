// What a step's buffers held: before it, once they were filled, and once its launches had run. A
// tap that changes nothing, for people who look at one case. Tested by
// tests/fuzz/history_file_test.cc.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "check/tap.h"

namespace shadowgraph {

struct BufferStates {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<int64_t> before, filled, after;  // all elements; filled: empty where fill writes none
};

struct StepLog {
  std::string phase;  // "eager", "capture", "replay"
  ForwardMode mode = ForwardMode::kIdle;
  int32_t rows = 0;  // of the metadata
  std::vector<BufferStates> buffers;
};

/// Integers only: lengths, offsets, tables, lists, masks, plans.
class BufferLog final : public Tap {
 public:
  void bound(Meta& meta, bool capturing) override;
  Status filled(const ForwardBatch& batch, Meta& meta) override;
  void ran(const Meta& meta) override;

  /// Since the last call.
  std::vector<StepLog> take() { return std::exchange(steps_, {}); }

 private:
  std::string phase_ = "replay";
  std::vector<StepLog> steps_;
};

}  // namespace shadowgraph
