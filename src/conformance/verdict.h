// What runs of one program, seed by seed, say of a device: equal to the recorded GPU, in the set
// that CUDA allows, or diagnosed where CUDA leaves the program undefined. Tested by
// tests/conformance/verdict_test.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "conformance/program.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// Seed 0, and count more from first on.
struct Seeds {
  uint64_t first = 1;
  int64_t count = 8;
  uint64_t operator[](int64_t i) const { return i == 0 ? 0 : first + static_cast<uint64_t>(i - 1); }
};
/// At least so many runs look for the members of a set.
inline constexpr int64_t kSetRuns = 64;

/// One run: what the program saw, and what the device found.
struct Observation {
  Record record;
  Status findings;
};

enum class Conformance : uint8_t { kEqual, kInSet, kDiagnosed, kDiffers, kSkipped };
std::string_view name_of(Conformance conformance);  // "equal", "in_set", ...

struct ProgramVerdict {
  Conformance status = Conformance::kSkipped;
  std::string why;
  Status findings;  // conformance.*: why it differs; the caller adds case and reproduce
  Record first;     // of seed 0
};

/// Runs the program until the verdict is clear. recorded may be null: runs are then held against
/// the first one, and the verdict of a defined program is "skipped". stop: ends early, skipped.
ProgramVerdict judge(const Program& program, const Variant& variant, const Record* recorded,
                     const Seeds& seeds, const std::function<Observation(uint64_t seed)>& run,
                     const std::atomic<bool>& stop);

/// Judges a device that answers once and finds nothing itself: a GPU. Undefined programs are not
/// judged.
ProgramVerdict judge_once(const Program& program, const Variant& variant, const Record* recorded,
                          Record answer);

/// The laws of Program::diagnosis that hold for the variant.
std::set<std::string> expected_laws(const Program& program, const Variant& variant);

}  // namespace shadowgraph
