// The catalogue of faults: what engines really shipped, planted on purpose. A fault is a Tap: it
// stands between the scheduler, the backend and the device, and none of them knows of it. Nor does
// a fault know of checks, generators or budgets: it is found by what finds everything else. Ids are
// those of the catalogue (faults.inc). Tested by tests/faults/faults_test.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "check/tap.h"

namespace shadowgraph {

struct Fault {
  std::string_view id;     // "K01"
  std::string_view group;  // of the catalogue: "OOBW"
  std::string_view title;  // what is wrong
  std::string_view refs;   // separated by spaces
  std::unique_ptr<Tap> (*tap)() = nullptr;
  std::string_view why_not;  // without a tap: why it is not planted
  // What its wrong outputs are known by (mistakes.inc), separated by spaces; empty: none is wrong
  std::string_view mistakes;

  bool is_seen_as(std::string_view mistake) const;
  /// Does it touch nothing but its buffers, in an order that is its own? Then another device leaves
  /// what this one leaves.
  bool is_memory_safe() const;
};

/// All of src/faults/faults.inc.
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
  Status filled(const ForwardBatch& batch, Meta& meta) override;
  void baked(Meta& meta, bool capturing) override;
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
  void ran(const Meta& meta) override;
  const Backend& backend(const Backend& clean) override;
  std::unique_ptr<SimDevice> device(const SimOptions& options) override;
  SchedulerParts parts(const RuntimeConfig& config) override;
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
  /// Of faults that have a tap.
  explicit Planted(std::vector<const Fault*> faults);

  std::span<const Fault* const> faults() const { return faults_; }
  /// Empty where there is no fault. Thread-safe.
  MakeTap tap() const;
  /// How often faults()[i] changed something, in runs that have ended.
  int64_t acted(size_t i) const { return (*counts_)[i]; }

 private:
  std::vector<const Fault*> faults_;
  std::shared_ptr<Taps::Counts> counts_;
};

}  // namespace shadowgraph
