// What runs of one history have in common: what its launches read, in the order in which they ran,
// and its outputs. Tested by tests/fuzz/verdicts_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "check/runner.h"

namespace shadowgraph {

class Effects {
 public:
  /// Notes what runs with these options, as long as this lives.
  void watch(RunnerOptions* options);
  /// The first difference of another run, "store_kv reads something else"; empty: there is none, so
  /// nothing differs that anything reads.
  std::string first_difference(const Effects& other) const;

  // What watch() notes.
  /// Its arguments, and what it reads. Addresses are not part of it: where buffers lie is nothing
  /// that a kernel sees.
  void add(const KernelLaunch& launch, const Footprint& accessed);
  void add(std::span<const LayerIo> layers);

 private:
  struct Effect {
    std::string_view kernel;  // empty: outputs
    bool stands_in = false;   // reads what it likes: what comes of it shows
    uint64_t arguments = 0, read = 0;
    bool operator==(const Effect& other) const;
  };

  std::vector<Effect> all_;
};

}  // namespace shadowgraph
