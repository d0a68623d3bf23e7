// The contents of a history's steps, field by field: the batch and its lengths, the book of
// contents, the metadata that was filled, the outputs. Two runs of one history, of two versions or
// on two machines, are compared by it; kept as hashes it is a digest. Tested by
// tests/fuzz/run_record_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "check/runner.h"
#include "check/tap.h"
#include "fuzz/file/history_file.h"
#include "fuzz/history/buffer_log.h"

namespace shadowgraph {

struct FieldRecord {
  std::string name;   // "seq_lens", "chains.prefix", "replay page_table", "eager out of layer 0"
  uint64_t hash = 0;  // of shape and elements
  // Empty where only the hash is known, or there are none
  std::vector<std::string> elements = {};
  std::vector<int64_t> shape = {};
};
struct StepRecord {
  std::string mode;
  std::vector<FieldRecord> fields;  // in the order in which they came to be

  uint64_t hash() const;
};
struct RunRecord {
  std::vector<uint32_t> choices;  // of the history
  std::string what;               // "seed 1 case 17"; may be empty
  std::vector<StepRecord> steps;
};

/// Records a run. Elements are kept where somebody wants to see them; a digest is its hashes.
class RunRecorder {
 public:
  explicit RunRecorder(bool elements) : elements_(elements) {}

  /// Notes what runs with these options, as long as this lives; what they had is called, too.
  void watch(RunnerOptions* options);
  /// Stands behind all other taps, and changes nothing. This must outlive it.
  std::unique_ptr<Tap> tap();
  /// All that came since the last call is of the step with this number, from 0.
  void end_step(size_t step);
  /// All of them, with the steps that were handed over; what came since is of the last one.
  std::vector<StepRecord> take(std::span<const Step> steps);

 private:
  class Passing;
  void add(std::span<const LayerIo> layers);
  void add_logs();

  bool elements_;
  BufferLog log_;
  std::string phase_;
  std::vector<FieldRecord> fields_;  // since the last call of end_step
  std::vector<std::vector<FieldRecord>> steps_;
};

/// Like run_history and run_case, recorded.
HistoryResult record_history(History history, Choices& choices, const MakeTap& tap, RunRecord* run);
Status record_case(const HistoryCase& x, const MakeTap& tap, RunRecord* run);

/// The first place where two runs differ; nothing: they do not.
struct RunDifference {
  size_t step = 0;    // from 0
  std::string field;  // "replay page_table"; "mode"; "steps", where one run ends before
  std::string place;  // "[1, 0]" of the field; empty: only its hash is known
  std::string mine, others;
};
std::optional<RunDifference> first_difference(std::span<const StepRecord> mine,
                                              std::span<const StepRecord> others);

/// A file of digests, "shadowgraph.digest/1": one hash a step, and below it one of each field.
std::string to_digest(std::span<const RunRecord> runs);
bool is_digest(std::string_view text);
/// io.kind, with the line; on failure *runs is untouched.
Status parse_digest(std::string_view text, const std::string& name, std::vector<RunRecord>* runs);

}  // namespace shadowgraph
