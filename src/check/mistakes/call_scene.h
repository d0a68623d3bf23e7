// A call's own scene: nothing stands behind its keys, nothing came before. Tested by
// tests/check/diagnose_test.cc.
#pragma once

#include <cstddef>
#include <vector>

#include "check/bounds/compare.h"
#include "check/mistakes/mistakes.h"

namespace shadowgraph {

/// Owns a copy of the pool where its tokens do not follow each other.
class CallScene {
 public:
  /// Require a call that the engine accepts.
  explicit CallScene(const PagedAttention& call);
  explicit CallScene(const RaggedAttention& call);
  CallScene(const CallScene&) = delete;
  CallScene& operator=(const CallScene&) = delete;

  const Scene& scene() const { return scene_; }

 private:
  struct Plane {
    std::vector<std::byte> elements;
    std::vector<float> scales;
  };
  void take_params(const AttentionParams& params);
  void take_tokens(const KvCache& cache);
  static KvPlane copy(const KvCache& cache, const KvPlane& plane, Plane* to);

  Plane k_, v_;
  Scene scene_;
};

/// diagnose (diagnose.h) of what a call gave.
std::vector<Explanation> diagnose_call(const PagedAttention& call, const Result& result,
                                       const Arithmetic& arithmetic);
std::vector<Explanation> diagnose_call(const RaggedAttention& call, const Result& result,
                                       const Arithmetic& arithmetic);

}  // namespace shadowgraph
