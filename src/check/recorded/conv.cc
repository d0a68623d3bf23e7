// Judging recorded convolutions, and the trees that their kernels made.
#include "check/recorded/case_judge.h"

namespace shadowgraph {
namespace {

class ConvJudge : public CaseJudge {
 public:
  using CaseJudge::CaseJudge;

  void judge(const ConvCase& conv) {
    CausalConv1d call = conv.call, truth = conv.call;
    truth.states = memory_.copy(call.states, c_.states_before);
    call.states = memory_.copy(call.states, c_.states_before);
    call.out = memory_.of(call.out);
    call.draft.states = memory_.of(call.draft.states);
    check_parents(conv);
    if (!take_refused(causal_conv1d(call))) return;
    verdict_.rows += truth.x.shape[0];
    compare(truth, {call.out, call.states, call.draft.states, {}}, {}, Whose::kOurs);
    compare(truth, left_by(c_.gpu()),
            {.products_in_type = true, .flushes = true, .silu_error = 0x1p-21}, Whose::kGpu);
    compare(truth, left_by(c_.reference), {.u = 0x1p-53, .silu_error = 0x1p-50}, Whose::kReference);
  }

 private:
  static RecurrentLeft left_by(const Recorded& r) { return {r.out, r.states, r.draft_states, {}}; }

  void compare(const CausalConv1d& truth, const RecurrentLeft& left,
               const ConvArithmetic& arithmetic, Whose whose) {
    const bool of_rows = whose == Whose::kReference;
    RecurrentJudges j = arrays(whose);
    compare_conv(truth, &arithmetic, of_rows ? DType::kF32 : truth.x.dtype, left,
                 {c_.out_valid, {}, of_rows, -1}, &j);
    if (!of_rows) check_untouched(truth.rows, true, left.states, prefix_of(whose));
    settle(j, whose);
  }

  void check_parents(const ConvCase& conv) {
    const auto& tree = conv.tree;
    if (tree.first_child.empty()) return;
    std::vector<int32_t> parents(tree.first_child.size());
    const int64_t tokens = std::ssize(parents) / conv.call.rows.rows();
    if (!take_refused(tree_parents(tree.first_child, tree.next_sibling, tokens, parents))) return;
    same(
        ArrayJudge("num.exact", "parents"), Whose::kOurs, std::ssize(parents), tokens,
        [&](int64_t i) { return parents[static_cast<size_t>(i)]; },
        [&](int64_t i) { return tree.parents[static_cast<size_t>(i)]; });
  }
};

}  // namespace

RecordedVerdict judge_call(const ConvCase& call, const RecordedCase& c) {
  return judged<ConvJudge>(call, c);
}

}  // namespace shadowgraph
