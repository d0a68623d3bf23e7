// Calls that are broken in one place: each is refused under the law that it breaks, and changes
// nothing. Tested by tests/fuzz/linear_laws_test.cc.
#pragma once

#include "core/laws.h"
#include "fuzz/linear_scene.h"

namespace shadowgraph {

/// One that fits the scene's call, which is laid and has not run.
Status check_refusal(const LinearScene& scene, Rng& rng);

/// A way to break a call.
struct LinearBreakage {
  const char* name;
  LawId law;
  /// Breaks it, and says so; false: the call has nothing of the kind.
  bool (*apply)(LinearScene::Call* call, struct BrokenLists* lists);
};
std::span<const LinearBreakage> linear_breakages();

/// The call broken in that way: what is wrong with how it was refused. Nothing of what it is not
/// subject to.
Status check_breakage(const LinearScene& scene, const LinearBreakage& breakage, bool* applied);

}  // namespace shadowgraph
