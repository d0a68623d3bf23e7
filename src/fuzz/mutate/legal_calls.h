// The legal calls that the grid of mutated calls begins with: a few of each kind, small, drawn by
// the generators of calls. Tested by tests/fuzz/call_grid_test.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "attn/cases/case.h"
#include "fuzz/mutate/cache_scene.h"
#include "fuzz/mutate/call_grid.h"

namespace shadowgraph {

/// A legal call is made of this.
using LegalCallId = std::variant<Case, CacheCase>;

struct MutatedCall {
  Mutation mutation;
  CallVerdict verdict = CallVerdict::kWrong;
  Status findings;
};

/// A call that is laid, of which mutations are run, each apart from the others.
class LegalCall {
 public:
  virtual ~LegalCall() = default;
  virtual std::string name() const = 0;  // "sparse pack_latents"
  virtual std::string to_string() const = 0;
  virtual size_t num_mutations() const = 0;
  /// Requires i < num_mutations().
  virtual MutatedCall run(size_t i, const AnswerTap& tap) = 0;
};

std::vector<LegalCallId> legal_calls();
std::unique_ptr<LegalCall> make_legal_call(const LegalCallId& id);

}  // namespace shadowgraph
