// Slots of 64 bits, as Triton's kernels read them: a part's keys from a list on the device in which
// every entry is suspect. Tested by tests/launch/triton_launch_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/dense/attend_part.h"
#include "launch/checked_array.h"

namespace shadowgraph {

class SlotList {
 public:
  /// cache: of pages of one token. spans: as of a CheckedArray.
  SlotList(std::span<const int64_t> slots, const KvCache& cache, Footprint* spans)
      : slots_(slots), cache_(cache), spans_(spans) {}

  /// Keys first to first + count of the list, for a part; they live until the next call. False
  /// where some have no place in the list, or no slot of the pool: what a GPU would have read then
  /// is noted.
  bool load(int64_t first, int64_t count, int32_t request, PartKeys* keys);
  /// Adds the footprint of a part with such keys.
  void add_footprint(const AttentionPart& part, int32_t request) const;

 private:
  std::span<const int64_t> slots_;
  KvCache cache_;
  Footprint* spans_;
  std::vector<int32_t> narrow_;
};

}  // namespace shadowgraph
