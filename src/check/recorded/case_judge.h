// What judging a recorded case needs, whatever its call: memory, comparisons, one verdict. One
// judge for each kind of call, an overload of judge_call() below.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "check/bounds/array_judge.h"
#include "check/bounds/recurrent_compare.h"
#include "check/recorded/judge.h"

namespace shadowgraph {

/// Memory for views that have none.
class CaseMemory {
 public:
  /// Dense, whatever the strides of the recorded view.
  TensorView of(TensorView t);
  /// The same with the elements of `from`.
  TensorView copy(TensorView t, const ConstTensorView& from);

 private:
  std::vector<std::vector<std::byte>> bytes_;
};

/// Whose numbers are held against the oracle's.
enum class Whose : uint8_t { kOurs, kGpu, kReference };
/// num.bound, num.recorded, num.reference.
LawId law_of(Whose whose);
/// "ours.", "gpu.", "ref.": of the fields in findings.
const char* prefix_of(Whose whose);

class CaseJudge {
 public:
  explicit CaseJudge(const RecordedCase& c);
  RecordedVerdict verdict();

 protected:
  bool take_refused(Status refused);

  static ArrayJudge array(Whose whose, const std::string& field) {
    return {law_of(whose), prefix_of(whose) + field};
  }
  /// One array as ours, as recorded, and as the reference's.
  struct EachJudge {
    ArrayJudge ours, gpu, reference;
  };
  static EachJudge each(const std::string& field) {
    return {array(Whose::kOurs, field), array(Whose::kGpu, field), array(Whose::kReference, field)};
  }
  static RecurrentJudges arrays(Whose whose) { return {law_of(whose), prefix_of(whose)}; }
  ErrorRatios& ratios(Whose whose);
  /// Adds its finding, and raises the ratio.
  void settle(const ArrayJudge& a, Whose whose);
  void settle(const RecurrentJudges& j, Whose whose);
  void settle(const EachJudge& j) {
    settle(j.ours, Whose::kOurs), settle(j.gpu, Whose::kGpu);
    settle(j.reference, Whose::kReference);
  }

  /// Every element is as expected(i), exactly; row and column of element i are by `width`.
  template <class Got, class Expected>
  void same(ArrayJudge judge, Whose whose, int64_t count, int64_t width, const Got& got,
            const Expected& expected) {
    for (int64_t i = 0; i < count; ++i) judge.take(i / width, i % width, got(i), expected(i), 0);
    settle(judge, whose);
  }

  /// Slots that none of the rows stores in keep the bits of c_.states_before. prefix: "gpu.".
  void check_untouched(const StateRows& rows, bool stores, const ConstTensorView& states,
                       const std::string& prefix);
  /// The recorded kernel is in no line of that list.
  void no_such_kernel(const std::string& list, const std::string& kernel);

  const RecordedCase& c_;
  CaseMemory memory_;
  RecordedVerdict verdict_;
};

template <class Judge, class Call>
RecordedVerdict judged(const Call& call, const RecordedCase& c) {
  Judge judge(c);
  judge.judge(call);
  return judge.verdict();
}

RecordedVerdict judge_call(const AttentionCalls& calls, const RecordedCase& c,
                           const RecordedOptions& options);
RecordedVerdict judge_call(const DualChunkCase& call, const RecordedCase& c);
RecordedVerdict judge_call(const Recurrence& call, const RecordedCase& c);
RecordedVerdict judge_call(const ConvCase& call, const RecordedCase& c);
RecordedVerdict judge_call(const DecayGate& call, const RecordedCase& c);
RecordedVerdict judge_call(const L2Norm& call, const RecordedCase& c);
RecordedVerdict judge_call(const SlopeTables& tables, const RecordedCase& c);
RecordedVerdict judge_call(const ChunkLists& lists, const RecordedCase& c);
RecordedVerdict judge_call(const PackLatents& call, const RecordedCase& c);
RecordedVerdict judge_call(const ActQuantCase& call, const RecordedCase& c);
RecordedVerdict judge_call(const IndexKeysCase& call, const RecordedCase& c);
RecordedVerdict judge_call(const IndexerLogitsCase& call, const RecordedCase& c);
RecordedVerdict judge_call(const TopkTransformCase& call, const RecordedCase& c);
RecordedVerdict judge_call(const Compress& call, const RecordedCase& c);
RecordedVerdict judge_call(const PoolNormRope& call, const RecordedCase& c);

}  // namespace shadowgraph
