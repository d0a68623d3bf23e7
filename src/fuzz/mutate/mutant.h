// Mutant: a copy of a legal call with one member changed, in memory of its own where that lies
// elsewhere. Tested by tests/fuzz/call_grid_test.cc.
#pragma once

#include <memory>
#include <vector>

#include "fuzz/call/call_memory.h"
#include "fuzz/call/kernel_calls.h"
#include "fuzz/call/refusals.h"
#include "fuzz/mutate/mutation.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

class MemberMutations;

/// AnyCall: a variant of kernel_calls.h. The ways to break a call (refusals.h) come first.
template <class AnyCall>
class Mutant {
 public:
  /// Unchanged.
  explicit Mutant(const AnyCall& legal);
  Mutant(const Mutant&) = delete;
  Mutant& operator=(const Mutant&) = delete;
  ~Mutant();

  const std::vector<Mutation>& mutations() const { return mutations_; }
  /// Makes one of the mutations, once.
  const Mutation& apply(size_t i);

  AnyCall call;
  CallMemory memory;  // what is the mutation's own; remembered

 private:
  Spoils spoils_;
  std::unique_ptr<MemberMutations> members_;
  std::vector<Mutation> mutations_;
};

extern template class Mutant<AttentionCall>;
extern template class Mutant<MergeCall>;
extern template class Mutant<StateCall>;
extern template class Mutant<GateCall>;
extern template class Mutant<SparseCall>;
extern template class Mutant<CacheCall>;

/// Is a refusal's finding about what was changed?
bool is_about(const Finding& finding, const Mutation& mutation);

}  // namespace shadowgraph
