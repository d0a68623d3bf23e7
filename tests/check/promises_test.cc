// Recordings as users have them: parts that are missing, what they promise, and what a finding says
// of the kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "attn/visit/visit_attention.h"
#include "check/recorded/judge.h"
#include "core/float_formats.h"
#include "io/recorded/recorded_cases.h"

namespace shadowgraph::promises_test {
namespace {

using Ids = std::multiset<std::string>;

std::vector<RecordedCase> cases_of(const std::string& name) {
  std::vector<RecordedCase> cases;
  std::vector<SkippedCase> skipped;
  const Status status = read_recorded_cases(SHADOWGRAPH_TEST_DATA "/" + name, &cases, &skipped);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return cases;
}

RecordedCase case_named(const std::string& file, const std::string& id) {
  for (RecordedCase& c : cases_of(file))
    if (c.id == id) return std::move(c);
  ADD_FAILURE() << id;
  return {};
}

/// "num.recorded gpu.lse" of each finding.
Ids findings_of(const RecordedVerdict& v) {
  Ids ids;
  for (const Finding& f : v.findings.findings())
    ids.insert(std::string(f.id) + ' ' + f.where.field);
  return ids;
}

void expect_answers(const std::string& file, const std::map<std::string, Ids>& answers) {
  const std::vector<RecordedCase> cases = cases_of(file);
  EXPECT_EQ(cases.size(), answers.size());
  for (const RecordedCase& c : cases) {
    const RecordedVerdict v = judge_recorded(c);
    ASSERT_TRUE(answers.contains(c.id)) << c.id;
    EXPECT_EQ(findings_of(v), answers.at(c.id)) << c.id << ": " << v.findings.to_string();
    EXPECT_EQ(v.kernel_accepted, std::optional(answers.at(c.id).empty())) << c.id;
  }
}

const std::string kOut = "num.recorded gpu.out", kLse = "num.recorded gpu.lse";

TEST(Promises, APaddedTileIsFoundWhateverTheUserHasBesideIt) {
  expect_answers("reports/padded_tile.safetensors", {{"padded-tile-wrong", {kOut, kLse}},
                                                     {"padded-tile-right", {}},
                                                     {"padded-tile-wrong-no-lse", {kOut}},
                                                     {"padded-tile-right-no-lse", {}},
                                                     {"padded-tile-wrong-kernel-only", {kOut}},
                                                     {"padded-tile-right-kernel-only", {}},
                                                     {"padded-tile-wrong-f16-cache", {kOut, kLse}},
                                                     {"padded-tile-right-f16-cache", {}}});
}

TEST(Promises, RowsOfNoKeyAreExactWhereTheCaseSaysSo) {
  expect_answers("reports/empty_rows.safetensors", {{"empty-lse-sentinel", {kLse}},
                                                    {"empty-lse-minus-1e4", {kLse}},
                                                    {"empty-lse-plus-inf", {kLse}},
                                                    {"empty-lse-nan", {kLse}},
                                                    {"empty-out-nan", {kOut}},
                                                    {"empty-exact", {}},
                                                    {"empty-lse-sentinel-not-asked", {}}});
}

TEST(Promises, AMarkThatNobodyPromisedIsCounted) {
  const std::string file = "reports/empty_rows.safetensors";
  const RecordedVerdict marked = judge_recorded(case_named(file, "empty-lse-sentinel-not-asked"));
  EXPECT_EQ(marked.marked_rows, 12);
  EXPECT_EQ(marked.notes.size(), 1U);
  RecordedCase c = case_named(file, "empty-lse-sentinel-not-asked");
  c.gpu().empty_mark.lse = double{load_float(c.gpu().lse.data, DType::kF32, 0)};
  const RecordedVerdict promised = judge_recorded(c);
  EXPECT_TRUE(promised.findings.ok()) << promised.findings.to_string();
  EXPECT_EQ(promised.marked_rows, 0);
  for (const double other : {-49993.0, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    c.gpu().empty_mark.lse = other;
    EXPECT_EQ(findings_of(judge_recorded(c)), Ids{kLse}) << other;
  }
}

TEST(Promises, NaNInARowOfNoKeyIsAFindingWithoutAWord) {
  RecordedCase c = case_named("reports/empty_rows.safetensors", "empty-out-nan");
  c.gpu().empty_mark = {};
  EXPECT_EQ(findings_of(judge_recorded(c)), Ids{kOut});
}

TEST(Promises, SinksCountInTheLseAsTheCaseSays) {
  expect_answers("reports/sinks_lse.safetensors", {{"sinks-forgotten", {kOut}},
                                                   {"sinks-counted-in-lse", {}},
                                                   {"sinks-not-in-lse", {}},
                                                   {"sinks-said-in-lse-but-not", {kLse}}});
}

TEST(Promises, RowsOfAnotherCaseHaveItsBits) {
  const std::string file = "reports/same_rows.safetensors";
  expect_answers(file, {{"same-rows-alone", {}},
                        {"same-rows-same-bits", {}},
                        {"same-rows-other-bits", {"num.bits gpu.out"}}});
  const RecordedCase other = case_named(file, "same-rows-other-bits");
  const RecordedVerdict v = judge_recorded(other);
  const Finding& f = v.findings.findings()[0];
  EXPECT_EQ(f.where.index(), "[0, 0, 1]");
  EXPECT_EQ(f.expected, "-1.609375, as row 0 of same-rows-alone");
  EXPECT_EQ(f.got, "-1.6171875 (28 of 256 elements have other bits)");
}

TEST(Promises, EveryBitOfTheseRowsCounts) {
  const RecordedCase same = case_named("reports/same_rows.safetensors", "same-rows-same-bits");
  const auto with_changed = [&](ConstTensorView Recorded::*array, int64_t at) {
    RecordedCase c = same;
    const ConstTensorView& t = c.gpu().*array;
    std::vector<std::byte> bytes(t.data,
                                 t.data + t.numel() * static_cast<int64_t>(size_of(t.dtype)));
    bytes[static_cast<size_t>(at) * size_of(t.dtype)] ^= std::byte{1};
    (c.gpu().*array).data = bytes.data();
    return findings_of(judge_recorded(c));
  };
  EXPECT_EQ(with_changed(&Recorded::out, 0), Ids{"num.bits gpu.out"});
  EXPECT_EQ(with_changed(&Recorded::out, 8 * 2 * 16 - 1), Ids{"num.bits gpu.out"});
  EXPECT_EQ(with_changed(&Recorded::out, 8 * 2 * 16), Ids{});  // the first row of this case alone
  EXPECT_EQ(with_changed(&Recorded::lse, 7), Ids{"num.bits gpu.lse"});
}

TEST(Promises, PlacesAreThoseOfTheUsersOwnAxes) {
  RecordedCase c = case_named("reports/same_rows.safetensors", "same-rows-same-bits");
  const auto places = [&](ConstTensorView Recorded::*array) {
    ConstTensorView& t = c.gpu().*array;
    const ConstTensorView before = t;
    std::vector<std::byte> bytes(t.data,
                                 t.data + t.numel() * static_cast<int64_t>(size_of(t.dtype)));
    t.data = bytes.data();
    // Row 5 of head 1, its last element.
    const int64_t at = t.rank == 3 ? t.offset(5, 1, t.shape[2] - 1) : t.offset(5, 1);
    bytes[static_cast<size_t>(at + 1) * size_of(t.dtype) - 1] ^= std::byte{0x40};
    std::string all;
    const RecordedVerdict v = judge_recorded(c);
    for (const Finding& f : v.findings.findings()) all += f.where.field + f.where.index() + ' ';
    t = before;
    return all;
  };
  EXPECT_EQ(places(&Recorded::out), "gpu.out[5, 1, 15] gpu.out[5, 1, 15] ");
  EXPECT_EQ(places(&Recorded::lse), "gpu.lse[1, 5] gpu.lse[1, 5] ");
  c.gpu().axes = {.q_len = 4, .lse_heads_first = true};
  EXPECT_EQ(places(&Recorded::out), "gpu.out[1, 1, 1, 15] gpu.out[1, 1, 1, 15] ");
  EXPECT_EQ(places(&Recorded::lse), "gpu.lse[1, 1, 1] gpu.lse[1, 1, 1] ");
  c.gpu().axes = {};
  EXPECT_EQ(places(&Recorded::lse), "gpu.lse[5, 1] gpu.lse[5, 1] ");
}

TEST(Promises, RowsBeginWhereTheCaseSays) {
  RecordedCase c = case_named("reports/same_rows.safetensors", "same-rows-same-bits");
  SameRows& rows = *c.same_rows;
  rows.calls.clear();  // as where keys are appended first
  rows.from = 8;
  const auto behind = [](ConstTensorView t) {
    t.data += 8 * t.stride[0] * static_cast<int64_t>(size_of(t.dtype)), t.shape[0] -= 8;
    return t;
  };
  rows.out = behind(c.gpu().out), rows.lse = behind(c.gpu().lse);
  EXPECT_EQ(findings_of(judge_recorded(c)), Ids{});
  rows.from = 7;
  const RecordedVerdict v = judge_recorded(c);
  EXPECT_EQ(findings_of(v), (Ids{"num.bits gpu.lse", "num.bits gpu.out"}));
  EXPECT_EQ(v.findings.findings()[0].where.row, 7);
}

TEST(Promises, RowsWithOtherInputsCannotHaveTheSameBits) {
  RecordedCase c = case_named("reports/same_rows.safetensors", "same-rows-same-bits");
  c.same_rows->from = 1;
  const RecordedVerdict v = judge_recorded(c);
  EXPECT_EQ(findings_of(v), Ids{"vector.case rows_of"});
  EXPECT_EQ(v.findings.findings()[0].where.row, 1);
}

TEST(Promises, WhatDiffersOfTheInputsIsNamed) {
  const auto got = [](const std::function<void(PagedAttention&)>& change) {
    RecordedCase c = case_named("reports/same_rows.safetensors", "same-rows-same-bits");
    change(std::get<PagedAttention>(c.same_rows->calls[0]));
    const RecordedVerdict v = judge_recorded(c);
    return v.findings.ok() ? "" : v.findings.findings()[0].got;
  };
  EXPECT_EQ(got([](PagedAttention&) {}), "");
  EXPECT_EQ(got([](PagedAttention& call) { call.params.sm_scale *= 2; }), "others: sm_scale");
  EXPECT_EQ(got([](PagedAttention& call) { call.params.logits_soft_cap = 9; }), "others: softcap");
  EXPECT_EQ(got([](PagedAttention& call) { call.params.window_left = 0; }),
            "others: how many keys it sees");
  EXPECT_EQ(got([](PagedAttention& call) { std::swap(call.cache.k, call.cache.v); }),
            "others: keys, values");
  std::vector<std::byte> q;
  EXPECT_EQ(got([&](PagedAttention& call) {
              const int64_t size = call.q.numel() * static_cast<int64_t>(size_of(call.q.dtype));
              q.assign(call.q.data, call.q.data + size);
              q[1] ^= std::byte{0x40};
              call.q.data = q.data();
            }),
            "others: q");
}

/// The finding about a case, if only the one that it names has these terms.
std::string said_of_terms(const AttentionTerms& other) {
  RecordedCase c = case_named("reports/same_rows.safetensors", "same-rows-same-bits");
  auto& its = std::get<PagedAttention>(c.same_rows->calls[0]);
  its.params.terms = other;
  its.params.window_right = -1;  // causal says it
  const RecordedVerdict v = judge_recorded(c);
  return v.findings.ok() ? "" : v.findings.findings()[0].got;
}

TEST(Promises, EveryTermThatReachesARowIsNamed) {
  const RecordedCase c = case_named("reports/same_rows.safetensors", "same-rows-same-bits");
  const auto& its = std::get<PagedAttention>(c.same_rows->calls[0]);
  const auto heads = static_cast<size_t>(its.params.num_qo_heads);
  const auto kv_heads = static_cast<size_t>(its.params.num_kv_heads);
  size_t keys = 0;
  for (const int32_t n : its.pages.cache_seqlens) keys += static_cast<size_t>(n);
  const std::vector<float> slopes(heads, 0.25F), halves(kv_heads, 0.5F), one = {1};
  const std::vector<float> bias(heads * keys, 1), far(heads * 3, 1);
  const std::vector<uint8_t> all_see = {0};
  const std::vector<int32_t> second = {1}, short_rows = {1}, range = {0, 2}, ranges = {0, 1};
  const std::string fewer = "others: how many keys it sees";
  std::map<std::string, std::pair<AttentionTerms, std::string>> cases;
  const auto add = [&](const std::string& name, const AttentionTerms& terms) {
    cases[name] = {terms, "others: " + name};
  };
  const auto add_hiding = [&](const std::string& name, const AttentionTerms& terms) {
    cases[name] = {terms, fewer};
  };
  add("alibi_slopes", {.alibi_slopes = slopes});
  add("key_bias", {.key_bias = bias});
  add("qq_bias", {.qq_bias = one});
  add("relative_bias", {.relative_bias = far});
  add("temperature_len", {.temperature_len = 2});
  add("k_scales", {.k_scales = halves});
  add("v_scales", {.v_scales = halves});
  add("q_scale", {.q_scale = 2});
  add("out_scale", {.out_scale = 2});
  add_hiding("attention_chunk", {.attention_chunk = 2});
  add_hiding("request_causal", {.request_causal = all_see});
  add_hiding("cache_leftpad", {.cache_leftpad = second});
  add_hiding("bidirectional_ranges",
             {.bidirectional_ranges = range, .bidirectional_indptr = ranges});
  add_hiding("seqused_q", {.seqused_q = short_rows});
  // Say something only beside another term, or of packed keys.
  std::set<std::string> unseen = {"alibi", "chunk_lookback", "bidirectional_indptr", "seqused_k"};
  for (const auto& [name, one_case] : cases)
    EXPECT_EQ(said_of_terms(one_case.first), one_case.second) << name;
  AttentionTerms terms;
  auto visit = [&](const char* name, auto&) {
    EXPECT_TRUE(cases.contains(name) || unseen.contains(name)) << name;
  };
  visit_fields(visit, terms);
  visit_lists(visit, terms);
}

TEST(Promises, TermsThatReachNoRowAreTheSame) {
  EXPECT_EQ(said_of_terms({.temperature_len = 1000}), "");
  EXPECT_EQ(said_of_terms({.attention_chunk = 1000, .chunk_lookback = 1}), "");
  EXPECT_EQ(said_of_terms({.alibi = AttentionTerms::Alibi::kSqrt}), "");
}

TEST(Promises, TheFormOfSlopesIsNamedByThem) {
  RecordedCase c = case_named("reports/same_rows.safetensors", "same-rows-same-bits");
  auto& mine = std::get<PagedAttention>(c.attention().calls[0]);
  auto& its = std::get<PagedAttention>(c.same_rows->calls[0]);
  const std::vector<float> slopes(static_cast<size_t>(mine.params.num_qo_heads), 0.25F);
  mine.params.terms.alibi_slopes = its.params.terms.alibi_slopes = slopes;
  its.params.terms.alibi = AttentionTerms::Alibi::kSqrt;
  EXPECT_NE(judge_recorded(c).findings.to_string().find("others: alibi_slopes"), std::string::npos);
}

TEST(Promises, KeysOfEveryHeadAreHeldAgainstEachOther) {
  RecordedCase c = case_named("reports/same_rows.safetensors", "same-rows-same-bits");
  auto& its = std::get<PagedAttention>(c.same_rows->calls[0]);
  const auto heads = static_cast<size_t>(its.params.num_qo_heads);
  std::vector<float> hides(heads * static_cast<size_t>(its.pages.cache_seqlens[0]), 0);
  hides[hides.size() / heads * (heads - 1)] = -std::numeric_limits<float>::infinity();
  its.params.terms.key_bias = hides;  // the last head's first key
  EXPECT_NE(judge_recorded(c).findings.to_string().find("others: how many keys it sees"),
            std::string::npos);
}

TEST(Promises, AnArithmeticThatNoListHasIsBadInput) {
  std::vector<RecordedCase> cases = cases_of("reports/padded_tile.safetensors");
  const size_t all = cases.size();
  EXPECT_TRUE(take_unknown_arithmetics("f", &cases).ok());
  cases[1].gpu().kernel = "tensor_core";
  const std::string id = cases[1].id;
  const Status status = take_unknown_arithmetics("f", &cases);
  ASSERT_EQ(status.findings().size(), 1U);
  EXPECT_EQ(status.findings()[0].case_id, "f#" + id);
  EXPECT_EQ(cases.size(), all - 1);
  EXPECT_EQ(std::ranges::count(cases, id, &RecordedCase::id), 0);
}

TEST(Promises, AnArithmeticThatAcceptsEveryRowIsNamed) {
  RecordedCase c = case_named("reports/same_rows.safetensors", "same-rows-alone");
  const auto named = [&] {
    std::vector<std::string> mistakes;
    const RecordedVerdict v = judge_recorded(c, {.diagnose = true});
    for (const Finding& f : v.findings.findings())
      for (const Explanation& e : f.diagnosis) mistakes.push_back(e.mistake + ": " + e.sentence);
    return mistakes;
  };
  EXPECT_TRUE(named().empty());
  // One unit in the last place of a bf16 more: rounded weights make it, f32 does not.
  ConstTensorView& out = c.gpu().out;
  std::vector<std::byte> bytes(out.data, out.data + out.numel() * 2);
  ASSERT_EQ(out.dtype, DType::kBF16);
  bytes[0] ^= std::byte{1};
  out.data = bytes.data();
  EXPECT_TRUE(named().empty());
  c.gpu().kernel = "plain_f32";
  const std::vector<std::string> mistakes = named();
  ASSERT_FALSE(mistakes.empty());
  EXPECT_EQ(
      mistakes[0],
      "arithmetic: The bound of tensor_cores accepts every row: is that how the kernel computes?");
  bytes[1] ^= std::byte{0x40};  // another number, which no arithmetic makes
  ASSERT_EQ(named().size(), 1U);
  EXPECT_TRUE(named()[0].starts_with("unknown: ")) << named()[0];
}

TEST(Promises, ANaNInTheInputIsToldSo) {
  RecordedCase c = case_named("reports/padded_tile.safetensors", "padded-tile-right");
  auto& call = std::get<PagedAttention>(c.attention().calls[0]);
  std::vector<std::byte> q(
      call.q.data, call.q.data + call.q.numel() * static_cast<int64_t>(size_of(call.q.dtype)));
  std::fill_n(q.begin(), size_of(call.q.dtype), std::byte{0xff});
  call.q.data = q.data();
  const RecordedVerdict v = judge_recorded(c);
  ASSERT_FALSE(v.findings.ok());
  EXPECT_NE(v.findings.to_string().find("as q, keys or values of the row hold a NaN"),
            std::string::npos);
  EXPECT_NE(std::ranges::find_if(v.notes,
                                 [](const std::string& note) {
                                   return note.find(" NaN in float64, too") != std::string::npos;
                                 }),
            v.notes.end());
}

TEST(Promises, ACaseThatTheEngineRefusesHasNoRows) {
  RecordedCase c = case_named("reports/same_rows.safetensors", "same-rows-same-bits");
  auto& other = std::get<PagedAttention>(c.same_rows->calls[0]);
  const std::vector<int32_t> beyond(other.pages.page_table.size(), 1 << 20);
  other.pages.page_table = beyond;
  EXPECT_EQ(findings_of(judge_recorded(c)), Ids{"vector.case rows_of"});
}

TEST(Promises, AWrongReferenceIsNotTheKernels) {
  RecordedCase c = case_named("reports/padded_tile.safetensors", "padded-tile-right");
  const RecordedCase wrong = case_named("reports/padded_tile.safetensors", "padded-tile-wrong");
  c.reference.out = wrong.gpu().out;
  const RecordedVerdict v = judge_recorded(c);
  EXPECT_EQ(findings_of(v), Ids{"num.reference ref.out"});
  EXPECT_EQ(v.kernel_accepted, std::optional(true));
  EXPECT_TRUE(v.findings.findings()[0].got.ends_with("the kernel is accepted"));
  c.gpu().out = c.reference.out;
  const RecordedVerdict both = judge_recorded(c);
  EXPECT_EQ(findings_of(both), (Ids{kOut, "num.reference ref.out"}));
  EXPECT_EQ(both.kernel_accepted, std::optional(false));
  EXPECT_TRUE(both.findings.findings()[1].got.ends_with("the kernel is not accepted, either"));
  c.recorded.clear();
  EXPECT_EQ(judge_recorded(c).kernel_accepted, std::nullopt);
}

}  // namespace
}  // namespace shadowgraph::promises_test
