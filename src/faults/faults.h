// The catalogue of faults: what engines really shipped, planted on purpose. A fault is a Tap: it
// stands between the scheduler, the backend and the device, and none of them knows of it. Nor does
// a fault know of checks, generators or budgets: it is found by what finds everything else.
//
// A fault is one row in the table of its theme, a file of this folder (plant.h has what rows are
// made of). What a row holds:
//   id        a family and a number, K31, and a letter where one report shows several: K11a.
//             K: reports of engines; DC: dual chunks; M: recurrent states; DS: sparse layers;
//             DV: DeepSeek-V4; L: what slots hold. A new one has the next number of its family,
//             which `list faults` shows; an id is never used again
//   group     a kind of slip, of which several faults are: CE, OOBW, STALE, LSE, ... OOBR,
//             OOBW, INTOVF and RACE say that it leaves its buffers, or depends on timing
//   title     what is wrong, as a sentence without an end
//   refs      of a K first the thread or the commit that it is from, REPO#NUMBER or
//             REPO@COMMIT; where nobody reported it, a reference (core/refs.inc): fi.I-90
//   mistakes  what a row's wrong result shows of it (check/mistakes/mistakes.inc): several
//             where it strikes in several ways, or where two are one in numbers
//
// Tested by tests/faults/faults_test.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "check/tap.h"

namespace shadowgraph {

using MakeFault = std::unique_ptr<Tap> (*)();

struct Fault {
  std::string_view id;     // "K01"
  std::string_view group;  // of the catalogue: "OOBW"
  std::string_view title;  // what is wrong
  std::string_view refs;   // separated by spaces
  // What its wrong outputs are known by (mistakes.inc), separated by spaces; empty: none is wrong
  std::string_view mistakes;
  MakeFault tap = nullptr;
  std::string_view why_not = {};  // without a tap: why it is not planted

  bool is_seen_as(std::string_view mistake) const;
  /// Does it touch nothing but its buffers, in an order that is its own? Then another device leaves
  /// what this one leaves.
  bool is_memory_safe() const;
};

/// What runs with a fault in them say of it.
enum class PlantVerdict : uint8_t {
  kFound,       // something noticed it
  kMissed,      // it changed something, and nothing noticed it
  kInert,       // it acted, and nothing that anything reads changed: as without it
  kNeverActed,  // no step had what it changes
};
/// The one rule, for faults, pairs of the matrix and mutants alike.
constexpr PlantVerdict plant_verdict(bool found, bool acted, bool changed) {
  if (found) return PlantVerdict::kFound;
  if (!acted) return PlantVerdict::kNeverActed;
  return changed ? PlantVerdict::kMissed : PlantVerdict::kInert;
}
/// "found", "missed", "inert", "never acted".
std::string_view name_of(PlantVerdict verdict);
/// nullopt: no such name.
std::optional<PlantVerdict> plant_verdict_of(std::string_view name);

/// The tables of src/faults/themes.inc, a span each.
namespace themes {
#define SG_THEME(name) std::span<const Fault> name();
#include "faults/themes.inc"
#undef SG_THEME
}  // namespace themes

/// All of them, by family, number and letter.
std::span<const Fault> all_faults();
/// nullptr if there is none.
const Fault* find_fault(std::string_view id);

/// Several taps, one after the other; of substitutes the last one's.
class Taps final : public Tap {
 public:
  /// counts: gets how often each acted, once this ends; may be null.
  using Counts = std::vector<std::atomic<int64_t>>;
  explicit Taps(std::vector<std::unique_ptr<Tap>> taps, std::shared_ptr<Counts> counts = nullptr)
      : taps_(std::move(taps)), counts_(std::move(counts)) {}
  ~Taps() override;

  void runtime(RuntimeConfig& config) override;
  void step(Step& step, const PoolState& pools) override;
  void batch(ForwardBatch& batch) override;
  void limits(Limits& limits) override;
  void bound(Meta& meta, bool capturing) override;
  void metadata_key(GraphKey& key, bool capturing) override;
  Status filled(const ForwardBatch& batch, Meta& meta) override;
  void baked(Meta& meta, bool capturing) override;
  bool waits(StreamWait wait) override;
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
  void ran(const Meta& meta) override;
  const Backend& backend(const Backend& clean) override;
  std::unique_ptr<SimDevice> device(const SimOptions& options) override;
  void parts(const RuntimeConfig& config, SchedulerParts& parts) override;
  int64_t acted() const override;
  Status take_refused() override { return std::exchange(refused_, {}); }

 private:
  /// fn(tap), and what that is refused.
  template <class Fn>
  void each(Fn fn);

  std::vector<std::unique_ptr<Tap>> taps_;
  Status refused_;
  std::shared_ptr<Counts> counts_;
};

/// What one command plants, in every run of it.
class Planted {
 public:
  /// All of them have a tap.
  explicit Planted(std::vector<const Fault*> faults);

  std::span<const Fault* const> faults() const { return faults_; }
  /// Each one's id, then what it stands on; findings stand on them, too.
  std::vector<std::string> refs() const;
  /// Empty where there is no fault. Thread-safe.
  MakeTap tap() const;
  /// How often faults()[i] changed something, in runs that have ended.
  int64_t acted(size_t i) const { return (*counts_)[i]; }

 private:
  std::vector<const Fault*> faults_;
  std::shared_ptr<Taps::Counts> counts_;
};

}  // namespace shadowgraph
