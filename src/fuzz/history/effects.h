// Effects compare two runs of one history: what the launches of each step read, and the outputs.
// Tested by tests/fuzz/verdicts_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
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
    auto call() const { return std::tie(kernel, arguments); }
  };

  std::vector<Effect> all_;
  size_t step_ = 0;  // where the step begins that now runs
};

}  // namespace shadowgraph
