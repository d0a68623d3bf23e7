// The ladder of every Case: a broken call is refused, what the call left is judged, and the same
// values laid out otherwise have the same bits. Tested by tests/fuzz/*_laws_test.cc.
#pragma once

#include "fuzz/call/ladder.h"
#include "fuzz/call/refusals.h"

namespace shadowgraph {

/// Family: the types Arrangement, Scene and Results; make_data(x), judge(x, scene), vary(x,
/// options, rng). compare_bits() of its results, breakages() of its calls.
template <class Family>
Status check_rows(const Case& x, const RunOptions& options) {
  using Arrangement = typename Family::Arrangement;
  using Scene = typename Family::Scene;
  const auto data = Family::make_data(x);
  Arrangement how = Arrangement::of(x);
  how.options.arith = options.arith;
  how.options.isa = options.isa;
  how.device = options.device;
  Scene scene(x, data, how);
  scene.lay(0);
  Rng rng = Rng::stream(x.seed, 1);
  Status status = check_refusal(scene, rng);
  const Status ran = scene.run();
  status.add(ran);
  if (!ran.ok()) return status;
  status.add(Family::judge(x, scene));
  typename Family::Results results(x), again(x);
  scene.collect(&results);

  const Arrangement other = Family::vary(x, options, rng);
  Scene varied(x, data, other);
  Status variant;
  for (size_t i = 0; i < other.calls.size() && variant.ok(); ++i) {
    varied.lay(i);
    if (i == 0) variant = check_refusal(varied, rng);  // with a plan, or a workspace
    variant.add(varied.run());
    varied.collect(&again);
  }
  if (variant.ok()) variant = compare_bits(results, again, other.to_string());
  status.add(variant);
  return status;
}

}  // namespace shadowgraph
