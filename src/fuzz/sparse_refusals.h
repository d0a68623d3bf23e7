// Calls of the sparse family that are broken in one place: each is refused under the law that it
// breaks, and changes nothing. Tested by tests/fuzz/sparse_refusals_test.cc.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "core/laws.h"
#include "fuzz/sparse_scene.h"

namespace shadowgraph {

/// Lists and tensors of a broken call.
struct SparseSpoils {
  std::deque<std::vector<int32_t>> numbers;
  std::vector<int64_t> slots;
  std::vector<std::byte> bytes;

  std::vector<int32_t>& copy(std::span<const int32_t> list) {
    return numbers.emplace_back(list.begin(), list.end());
  }
  /// A table's elements, dense.
  ConstTensorView copy(const ConstTensorView& table);
};

/// A way to break a call.
struct SparseBreakage {
  const char* name;
  LawId law;
  /// Breaks it, and says so; false: the call has nothing of the kind.
  bool (*apply)(SparseCall* call, SparseSpoils* spoils);
};
std::span<const SparseBreakage> sparse_breakages();

/// The call of a scene that is laid, broken in that way: what is wrong with how it was refused.
/// Nothing of what it is not subject to.
Status check_breakage(const SparseScene& scene, const SparseBreakage& breakage, bool* applied);
/// With one that fits.
Status check_refusal(const SparseScene& scene, Rng& rng);

}  // namespace shadowgraph
