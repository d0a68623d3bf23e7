// Mutated calls of every kind: a slice of the grid has no finding; a check that is forgotten, a
// refusal of what is legal, one for another reason, and a wrong result are seen.
#include "fuzz/mutate/call_grid.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "fuzz/call/attention_scene.h"
#include "fuzz/call/merge_laws.h"
#include "fuzz/mutate/legal_calls.h"
#include "fuzz/mutate/member_mutations.h"
#include "fuzz/mutate/mutant.h"
#include "fuzz/mutate/mutant_judge.h"

namespace shadowgraph::call_grid_test {
namespace {

CallGridResult run(const CaseRange& range, const AnswerTap& tap = {}, size_t max_findings = 20) {
  const std::atomic<bool> stop = false;
  return run_call_grid(
      2, max_findings, [](uint64_t, uint64_t) {}, stop, range, {}, tap);
}

/// Every so manieth case.
CaseRange slice(uint64_t of) { return {0, CaseRange::kNoEnd, {0, of}}; }

std::set<std::string> laws_of(const CallGridResult& result) {
  std::set<std::string> laws;
  for (const Finding& f : result.findings.findings()) laws.insert(f.id);
  return laws;
}

TEST(CallGrid, MutatedCallsAreRefusedForTheRightReasonOrRight) {
  const CallGridResult result = run(slice(41));
  EXPECT_EQ(result.findings.to_string(), "ok");
  EXPECT_EQ(result.cases, slice(41).within(0, call_grid_size()).size());
  std::map<std::string, int64_t> calls, kinds;
  std::map<CallVerdict, int64_t> verdicts;
  for (const auto& [key, count] : result.counts) {
    const auto& [call, kind, verdict] = key;
    calls[call] += count, kinds[kind] += count, verdicts[verdict] += count;
  }
  EXPECT_EQ(calls.size(), 21u);  // 19 kinds of drawn calls, and two of caches
  EXPECT_EQ(kinds.size(), 10u);
  EXPECT_GT(verdicts[CallVerdict::kRefused], verdicts[CallVerdict::kUnbacked]);
  EXPECT_GT(verdicts[CallVerdict::kRight], verdicts[CallVerdict::kUnbacked]);
  EXPECT_EQ(verdicts[CallVerdict::kWrong], 0);
}

TEST(CallGrid, HasACaseForEachNumber) {
  const uint64_t size = call_grid_size();
  EXPECT_GT(size, 40'000u);
  EXPECT_EQ(run({size - 3, 100}).cases, 3u);
  EXPECT_EQ(run({size, 1}).cases, 0u);
  CallGridResult sum;
  for (uint64_t first = 700; first < 760; first += 20) sum.add(run({first, 20}));
  EXPECT_EQ(sum.counts, run({700, 60}).counts);
}

/// Cases of one kind of call.
CaseRange cases_of(const std::string& name) {
  uint64_t first = 0;
  for (const LegalCallId& id : legal_calls()) {
    const auto call = make_legal_call(id);
    if (call->name() == name) return {first, call->num_mutations()};
    first += call->num_mutations();
  }
  return {0, 0};
}

TEST(CallGrid, SeesACheckThatIsForgotten) {
  for (const auto& [law, call] : {std::pair{"len.total", "prefill_paged"},
                                  {"table.page_id", "prefill_paged"},
                                  {"input.shape", "prefill_paged"},
                                  {"len.indptr_monotone", "prefill_ragged"}}) {
    const CallGridResult result = run(cases_of(call), [law = law](const Mutation&, Status* said) {
      Status kept;
      for (const Finding& f : std::as_const(*said).findings())
        if (f.id != law) kept.add(f);
      *said = kept;
    });
    EXPECT_TRUE(laws_of(result).contains(law)) << law << ": " << result.findings.to_string();
  }
}

TEST(CallGrid, SeesARefusalOfWhatIsLegal) {
  for (const std::string name :
       {"with rows apart", "lse absent", "with a row of nobody", "with a tail of no pages"}) {
    bool acted = false;
    const CallGridResult result = run(
        {0, CaseRange::kNoEnd, {}},
        [&](const Mutation& m, Status* said) {
          if (!m.name.ends_with(name) || acted) return;
          acted = true;
          said->add(make_finding("len.capacity", at(m.member), "less", "more"));
        },
        1);
    EXPECT_TRUE(acted) << name;
    EXPECT_TRUE(laws_of(result).contains("len.capacity")) << name;
  }
}

TEST(CallGrid, SeesARefusalForAnotherReason) {
  const CallGridResult result =
      run(cases_of("prefill_ragged"), [](const Mutation& m, Status* said) {
        if (m.kind != &kTypeMutation || said->ok()) return;
        *said = Status();
        said->add(make_finding("param.window", at("window_left"), ">= -1", "-7"));
      });
  EXPECT_EQ(laws_of(result), std::set<std::string>{"param.window"});
}

TEST(CallGrid, SeesAWrongResultAndAWriteElsewhere) {
  const Case x = {CaseData::kRandom, 3, MergeCase{.rows = 3, .states = 4, .heads = 2}};
  const MergeData data = make_merge_data(x);
  MergeScene scene(x, data, MergeArrangement::of(x));
  scene.lay(0);
  const Mutant<MergeCall> same(scene.call());
  ASSERT_TRUE(execute(same.call).ok());
  const Footprint spans = footprint_of(same.call);
  EXPECT_EQ(judge_mutant(same.call, same.call).to_string(), "ok");
  EXPECT_EQ(scene.check_changed(spans).to_string(), "ok");
  const auto& call = std::get<MergeStates<LseBase::kNatural>>(same.call);
  *reinterpret_cast<float*>(call.out.at(1, 0, 2)) += 1;
  EXPECT_EQ(judge_mutant(same.call, same.call).findings()[0].id, "num.bound");
  *const_cast<std::byte*>(call.v.data) ^= std::byte{1};
  EXPECT_EQ(scene.check_changed(spans).findings()[0].id, "num.write_set");
  scene.restore();
  EXPECT_EQ(scene.check_untouched().to_string(), "ok");
}

TEST(CallGrid, ChangesEveryNumberAndEveryEnumerator) {
  EXPECT_EQ(enumerators<KvOrder>().size(), 3u);
  EXPECT_EQ(enumerators<LseSink>().size(), 2u);
  std::set<std::string> members;
  for (const LegalCallId& id : legal_calls()) {
    const auto* x = std::get_if<Case>(&id);
    if (x == nullptr || x->as<MergeCase>() != nullptr) continue;
    const auto* a = x->as<AttentionCase>();
    if (a == nullptr || a->kernel != CaseKernel::kPrefillPaged) continue;
    const AttentionData data = make_attention_data(*x);
    AttentionScene scene(*x, data, AttentionArrangement::of(*x));
    scene.lay(0);
    const Mutant<AttentionCall> same(scene.call());
    for (const Mutation& m : same.mutations()) members.insert(m.member);
  }
  for (const char* member : {"q",
                             "out",
                             "lse",
                             "sinks",
                             "page_table",
                             "cache_seqlens",
                             "kv_indptr",
                             "last_page_len",
                             "cu_seqlens_q",
                             "params.window_left",
                             "params.causal",
                             "params.terms.q_scale",
                             "params.custom_mask.kind",
                             "cache.page_size",
                             "cache.k.page_stride",
                             "cache.k.order",
                             "pages.form",
                             "pages.max_pages",
                             "max_seqlen_q",
                             "options.lse_sink",
                             "key_bias"})
    EXPECT_TRUE(members.contains(member)) << member;
}

}  // namespace
}  // namespace shadowgraph::call_grid_test
