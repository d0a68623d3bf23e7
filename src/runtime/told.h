// Told: what reaches a scheduler from outside between two steps, from clients and from the device.
// All that its steps are about follows from it, so whoever hears it, too, can say what a step must
// be (contents.h).
#pragma once

#include <cstdint>
#include <vector>

#include "shadowgraph/device/annotations.h"

namespace shadowgraph {

struct Told {
  /// A request comes with its prompt.
  struct Arrival {
    OwnerId request = 0;
    int32_t encoder_len = 0;
    std::vector<int32_t> prompt;  // token ids
  };
  /// A round of speculation begins: the tree that a draft model proposes to a request.
  struct Proposal {
    OwnerId request = 0;
    std::vector<int32_t> parents;  // -1 of the root
  };
  /// The result of one row of the step before.
  struct Answer {
    OwnerId request = 0;
    std::vector<int32_t> accepted;  // of a verify: a path of the tree
    bool again = false;             // a block is not final: it is denoised another time
  };

  std::vector<Arrival> arrivals;
  std::vector<Proposal> proposals;
  std::vector<Answer> answers;
};

}  // namespace shadowgraph
