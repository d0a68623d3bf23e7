// Lines of engines that have no twin: fields by role, and what an engine means. Each wrong state
// stands beside a right one that differs in the wrong number only.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "check/trace_lines.h"

namespace shadowgraph::trace_laws_test {
namespace {

/// A line of reports/roles.jsonl, all of which agree.
TraceLine line_of(std::string_view id) {
  static const std::vector<TraceLine> kLines = [] {
    std::vector<TraceLine> lines;
    EXPECT_TRUE(
        read_traces(std::string(SHADOWGRAPH_TEST_DATA) + "/reports/roles.jsonl", &lines).ok());
    return lines;
  }();
  const auto line = std::ranges::find(kLines, id, &TraceLine::id);
  EXPECT_NE(line, kLines.end()) << id;
  return *line;
}

TEST(TraceRoles, WhatAgreesIsJudgedWhole) {
  for (const char* id :
       {"roles-decode", "roles-slots", "roles-window", "roles-window-slots", "roles-replay",
        "roles-replay-slots", "roles-extend", "roles-own-names", "roles-verify"}) {
    const TraceVerdict v = judge_trace(line_of(id));
    EXPECT_EQ(v.kind, Kind::kAgreed) << id << ": " << v.findings.to_string();
    EXPECT_TRUE(v.left_out.empty()) << id;
  }
}

/// Element i of a field of the line is one more than it must be; the first finding.
struct Wrong {
  const char* id;
  const char* field;
  size_t i;
  const char* law;
};
constexpr Wrong kWrong[] = {
    {"roles-decode", "kv_lens", 1, "len.kv_extent kv_lens 1"},
    {"roles-decode", "prefix_lens", 0, "len.kv_extent prefix_lens 0"},
    {"roles-decode", "q_lens", 0, "len.q_extent q_lens 0"},
    {"roles-decode", "cu_seqlens_q", 2, "len.q_extent cu_seqlens_q 2"},
    {"roles-decode", "cu_seqlens_k", 1, "len.q_extent cu_seqlens_k 1"},
    {"roles-extend", "q_ends", 0, "len.q_extent q_ends 0"},
    {"roles-decode", "kv_ends", 1, "len.q_extent kv_ends 1"},
    {"roles-decode", "page_table", 1, "table.slot page_table 0 1"},
    {"roles-slots", "slot_table", 10, "table.slot slot_table 1 1"},
    {"roles-decode", "kv_indptr", 1, "len.q_extent kv_indptr 1"},
    {"roles-decode", "kv_indices", 0, "table.slot kv_indices 0 0"},
    {"roles-slots", "slot_indices", 3, "table.slot slot_indices 0 3"},
    {"roles-decode", "kv_last_page_len", 1, "len.kv_extent kv_last_page_len 1"},
    {"roles-window", "swa_page_table", 3, "table.slot swa_page_table 1 0"},
    {"roles-window", "swa_kv_indices", 0, "table.slot swa_kv_indices 0 0"},
    {"roles-window", "swa_out_cache_loc", 0, "slot.write swa_out_cache_loc 0"},
    {"roles-decode", "out_cache_loc", 1, "slot.write out_cache_loc 1"},
    {"roles-decode", "positions", 0, "step.positions positions 0"},
    {"roles-verify", "custom_mask", 13, "mask.bit custom_mask 0 13"},
    {"roles-own-names", "block_tables", 1, "table.slot block_tables 0 1"},
    {"roles-own-names", "slot_mapping", 0, "slot.write slot_mapping 0"},
    {"roles-own-names", "query_start_loc", 1, "len.q_extent query_start_loc 1"},
};

TEST(TraceRoles, EachRoleIsJudgedInItsPlaceByItsOwnName) {
  for (const Wrong& wrong : kWrong) {
    TraceLine line = line_of(wrong.id);
    ++line.expect.at(wrong.field).data[wrong.i];
    ASSERT_FALSE(laws(line).empty()) << wrong.field;
    EXPECT_EQ(laws(line)[0], wrong.law);
  }
  TraceLine line = line_of("roles-decode");
  line.expect.at("max_seqlen_k").data[0] = 8;
  EXPECT_EQ(laws(line), Laws{"len.bound max_seqlen_k"});
  line = line_of("roles-extend");
  line.expect.at("max_seqlen_q").data[0] = 8;
  EXPECT_EQ(laws(line), Laws{"len.bound max_seqlen_q"});
}

TEST(TraceRoles, EveryFieldAloneIsJudged) {
  for (const char* id : {"roles-decode", "roles-slots", "roles-window", "roles-extend"}) {
    const TraceLine whole = line_of(id);
    for (const auto& [name, field] : whole.expect) {
      TraceLine line = whole;
      line.expect = {{name, field}};
      // The window's slots follow from out_cache_loc.
      const bool follows = name == "swa_out_cache_loc";
      EXPECT_EQ(judge_trace(line).kind, follows ? Kind::kSkipped : Kind::kAgreed) << name;
    }
  }
}

TEST(TraceRoles, ARoleThatTheBackendHasNotIsRefusedWithTheNearest) {
  TraceLine line = line_of("roles-own-names");
  line.roles["block_tables"] = "pagetable";
  EXPECT_EQ(refusals(line), Laws{"roles.block_tables: pagetable; did you mean page_table?"});
  line.roles.erase("block_tables");
  EXPECT_EQ(left_out(line), Laws{"block_tables: no field of laws; did you mean page_table?"});
  line = line_of("roles-own-names");
  line.roles["qo_indptr"] = "cu_seqlens_q";
  EXPECT_EQ(found(line), "ok") << "a recorder says the same roles in every mode";
}

TEST(TraceRoles, EachOfSeveralFieldsOfARoleIsJudged) {
  TraceLine line = line_of("roles-own-names");
  line.expect["seq_lens_cpu"] = line.expect["seq_lens"];
  line.expect["slots_cpu"] = line.expect["slot_mapping"];
  line.roles["seq_lens_cpu"] = "kv_lens";
  line.roles["slots_cpu"] = "out_cache_loc";
  EXPECT_EQ(found(line), "ok");
  line.expect["seq_lens_cpu"].data[0] = 6;
  line.expect["slots_cpu"].data[1] = 5;
  EXPECT_EQ(laws(line), (Laws{"len.kv_extent seq_lens_cpu 0", "slot.write slots_cpu 1"}));
  line.expect["slot_mapping"].data[0] = 21;
  EXPECT_EQ(laws(line).at(0), "slot.write slot_mapping 0");
}

TEST(TraceRoles, PositionsOfTheBuilderAndOfTheBatchAreBothJudged) {
  TraceLine line = line_of("roles-decode");
  line.input["positions"] = line.expect["positions"];
  EXPECT_EQ(found(line), "ok");
  line.expect["positions"].data[0] = 5;
  EXPECT_EQ(laws(line), Laws{"step.positions positions 0"});
}

TEST(TraceRoles, ATwinsFieldsMayHaveOtherNames) {
  TraceLine line = decode_line();
  line.expect["block_tables"] = line.expect["page_table"];
  line.expect.erase("page_table");
  line.roles["block_tables"] = "page_table";
  EXPECT_EQ(found(line), "ok");
  EXPECT_EQ(left_out(line), Laws{});
  line.expect["block_tables"].data[1] = 6;
  EXPECT_EQ(laws(line), Laws{"table.slot block_tables 0 1"});
}

TEST(TraceRoles, SlotsOfTheBatchAreHeldAgainstTheFields) {
  TraceLine line = line_of("roles-decode");
  line.input["out_cache_loc"] = line.expect["out_cache_loc"];
  EXPECT_EQ(found(line), "ok");
  line.expect["out_cache_loc"].data[0] = 21;
  EXPECT_EQ(laws(line), Laws{"slot.write out_cache_loc 0"});
}

TEST(TraceRoles, WhatStandsInInputIsNamedThere) {
  TraceLine line = line_of("roles-own-names");
  line.input["out_cache_loc"] = line.expect["slot_mapping"];
  EXPECT_EQ(found(line), "ok");
  line.input["out_cache_loc"].data[1] = 99;
  EXPECT_EQ(laws(line), Laws{"slot.write input.out_cache_loc 1"}) << "the builder's are right";
  line.expect["slot_mapping"].data[1] = 99;
  EXPECT_EQ(laws(line), (Laws{"slot.write input.out_cache_loc 1", "slot.write slot_mapping 1"}));
  line = line_of("roles-decode");
  line.input["positions"] = line.expect["positions"];
  line.input["positions"].data[1] = 99;
  EXPECT_EQ(laws(line), Laws{"step.positions input.positions 1"});
}

/// Two requests of 5 and 9 tokens whose 4 drafts are verified, in pages of 4.
TraceLine verify_line() {
  TraceLine line = line_of("roles-decode");
  line.mode = "target_verify";
  line.config.num_draft_tokens = 4;
  line.input["req_to_token"] = {"pylist", {3, 4}, 4, {0, 0, 0, 0, 2, 5, 6, 0, 3, 10, 1, 7}};
  line.input["req_to_token"].pages = true;
  line.expect.clear();
  line.expect["out_cache_loc"] = {"pylist", {8}, 8, {21, 22, 23, 24, 5, 6, 7, 28}};
  return line;
}

TEST(TraceRoles, DraftsAreStoredWhereTheyAreRead) {
  TraceLine line = verify_line();
  EXPECT_EQ(found(line), "ok");
  for (const int64_t slot : {20, 99}) {  // its own prefix, and nobody's
    line.expect["out_cache_loc"].data[0] = slot;
    EXPECT_EQ(laws(line), Laws{"slot.write out_cache_loc 0"}) << slot;
  }
  line = verify_line();
  for (int64_t& slot : line.expect["out_cache_loc"].data) --slot;
  EXPECT_EQ(laws(line), Laws{"slot.write out_cache_loc 0"});
}

TEST(TraceRoles, BranchesOfADraftAreStoredOverNoKey) {
  TraceLine line = verify_line();
  line.mode = "draft_decode";
  line.config.num_steps = 2;
  line.expect["out_cache_loc"] = {"pylist", {2}, 2, {21, 5}};
  EXPECT_EQ(found(line), "ok") << "the slots of one step";
  line.expect["out_cache_loc"].data[0] = 20;
  EXPECT_EQ(laws(line), Laws{"step.slots out_cache_loc 0"});
  line.expect["out_cache_loc"].data[0] = 5;
  EXPECT_EQ(laws(line), Laws{"slot.duplicate out_cache_loc 2"});
}

TEST(TraceRoles, DraftsThatNobodyReadsMayShareTheSlotOfPadding) {
  TraceLine line = verify_line();
  line.mode = "draft_decode";
  line.config.num_steps = 2, line.config.engine = "sglang";
  line.expect["out_cache_loc"] = {"pylist", {4}, 4, {21, 0, 5, 0}};
  EXPECT_EQ(found(line), "ok");
  line.expect["out_cache_loc"].data = {21, 22, 5, 22};
  EXPECT_EQ(laws(line), Laws{"slot.duplicate out_cache_loc 3"});
}

TEST(TraceRoles, PaddingThatIsFarOutOfThePoolIsNamed) {
  TraceLine line = line_of("roles-replay-slots");
  line.config.conventions["padding_page"] = 0;
  EXPECT_EQ(found(line), "ok");
  line.expect.at("page_table").data[6] = INT64_MAX;
  EXPECT_EQ(laws(line), Laws{"table.page_id page_table 2 0"});
}

/// Wherever a line names a page or a slot.
TEST(TraceRoles, IdsBehindThePoolAreFoundIfItsSizeIsTold) {
  struct Id {
    const char* line;
    std::function<void(TraceLine&)> change;
    Laws with, without;
  };
  const auto put = [](RecordedFields TraceLine::*in, const char* field, size_t i, int64_t value) {
    return [=](TraceLine& line) { (line.*in).at(field).data[i] = value; };
  };
  const auto padding = [](const char* field, int64_t id) {
    return [=](TraceLine& line) {
      line.expect.at("kv_lens").data[2] = 1;
      line.expect.at(field).data[6] = id;
    };
  };
  const std::vector<Id> ids = {
      {"roles-decode",
       put(&TraceLine::input, "req_to_token", 4, 30),
       {"pool.slot req_to_token 1 4", "slot.write out_cache_loc 0"},
       {"slot.write out_cache_loc 0", "table.slot kv_indices 0 1", "table.slot page_table 0 1"}},
      {"roles-decode",
       put(&TraceLine::expect, "page_table", 1, 30),
       {"table.page_id page_table 0 1"},
       {"table.slot page_table 0 1"}},
      {"roles-replay",
       put(&TraceLine::expect, "out_cache_loc", 2, 64),
       {"slot.range out_cache_loc 2"},
       {}},
      {"roles-replay", padding("page_table", 16), {"table.page_id page_table 2 0"}, {}},
      {"roles-replay", padding("page_table", 15), {}, {}},
  };
  for (const Id& id : ids) {
    TraceLine line = line_of(id.line);
    line.config.pool_pages = 16;
    EXPECT_EQ(found(line), "ok");
    id.change(line);
    EXPECT_EQ(laws(line), id.with) << id.line;
    line.config.pool_pages.reset();
    EXPECT_EQ(laws(line), id.without) << id.line;
  }
}

TEST(TraceRoles, ASlotWhereAPageBelongsIsSoInAPoolOfAnySize) {
  TraceLine line = line_of("roles-decode");
  line.expect.at("page_table").data[1] = 20;
  for (const int32_t pages : {16, 64}) {
    line.config.pool_pages = pages;
    EXPECT_EQ(laws(line), Laws{"table.unit page_table 0 1"}) << pages;
  }
  line.config.pool_pages = 16;
  line.expect.at("page_table").data[1] = 17;
  EXPECT_NE(found(line).find("17: no page of any pool; the pool has 16 pages"), std::string::npos)
      << found(line);
}

TEST(TraceRoles, AnEagerStepMayBePaddedByTokensThatAreStoredNowhere) {
  TraceLine line = line_of("roles-decode");
  line.expect["out_cache_loc"] = {"pylist", {4}, 4, {20, 4, -1, -1}};
  line.expect["positions"] = {"pylist", {4}, 4, {4, 8, 0, 0}};
  EXPECT_EQ(found(line), "ok");
  line.expect["out_cache_loc"].data[3] = 8;
  EXPECT_EQ(laws(line), Laws{"slot.write out_cache_loc 3"}) << "a live key's";
  line.expect["out_cache_loc"].data[3] = -1;
  line.config.engine = "sglang";
  EXPECT_FALSE(laws(line).empty()) << "its padding is stored in slot 0";
}

TEST(TraceRoles, ATableOfPagesWhereSlotsBelongIsOfAnotherUnit) {
  TraceLine line = line_of("roles-slots");
  line.expect = {{"slot_table", line.expect["slot_table"]}};
  auto& table = line.expect["slot_table"].data;
  std::ranges::copy(std::vector<int64_t>{2, 5}, table.begin());
  EXPECT_EQ(laws(line), Laws{"table.unit slot_table 0 0"});
  table[1] = 6;  // one page is another's
  EXPECT_EQ(laws(line), Laws{"table.slot slot_table 0 0"});
}

TEST(TraceRoles, RowsThatChangedPlacesAreToldSo) {
  TraceLine line = line_of("roles-decode");
  line.expect = {{"kv_lens", {"pylist", {2}, 2, {9, 5}}}};
  EXPECT_NE(found(line).find("9: what row 1 should have"), std::string::npos) << found(line);
  line.input["seq_lens"].data = {5, 8};
  line.expect["kv_lens"].data = {8, 5};  // also 5 in whole pages
  EXPECT_NE(found(line).find("8: what row 1 should have"), std::string::npos) << found(line);
  line.expect["kv_lens"].data = {8, 8};
  EXPECT_NE(found(line).find("8: rounded up to whole pages"), std::string::npos) << found(line);
}

TEST(TraceEngines, AColumnBeforeTheWindowNamesTheConvention) {
  const std::string said = "it lies before the window: window_columns says whether it is live";
  TraceLine line = line_of("roles-window");
  line.expect.at("swa_page_table").data[3] = 0;
  EXPECT_NE(found(line).find(said), std::string::npos) << found(line);
  line.expect.at("swa_page_table").data = {27, 30, 0, 28, 0, 26};
  EXPECT_EQ(found(line).find(said), std::string::npos) << "the window has keys of this page";
}

TEST(TraceEngines, AnEngineThatIsNotKnownIsRefused) {
  TraceLine line = line_of("roles-decode");
  line.config.engine = "sglong";
  EXPECT_EQ(refusals(line), Laws{"config.engine: sglong; did you mean sglang?"});
  line.config.engine = "sglang";
  EXPECT_EQ(found(line), "ok");
}

/// A change of a line, and its findings under a convention and without.
struct Convention {
  const char* id;
  const char* key;
  std::optional<int32_t> value;
  std::function<void(TraceLine&)> change;
  Laws with, without;
};

std::vector<Convention> conventions() {
  const auto at = [](const char* field, size_t i, int64_t value) {
    return [=](TraceLine& line) { line.expect.at(field).data[i] = value; };
  };
  const auto all_in_page_0 = [](TraceLine& line) {
    std::ranges::replace(line.input.at("req_to_token").data, 2, 0);
    std::ranges::replace(line.expect.at("page_table").data, 2, 0);
    std::ranges::replace(line.expect.at("kv_indices").data, 2, 0);
  };
  const auto padding_in = [](int64_t page) {
    return [page](TraceLine& line) {
      line.expect.at("kv_lens").data[2] = 1;
      line.expect.at("page_table").data[6] = page;
    };
  };
  const Laws kPage = {"table.page_id page_table 2 0"};
  return {
      {"roles-replay", "padding_len", 1, [](TraceLine&) {}, {"len.padding kv_lens 2"}, {}},
      {"roles-replay", "padding_page", 0, padding_in(30), kPage, {}},
      {"roles-replay", "padding_page", 30, padding_in(30), {}, {}},
      {"roles-replay", "padding_page", -1, padding_in(30), kPage, {}},
      {"roles-replay", "padding_page", -1, padding_in(-1), {}, kPage},
      {"roles-replay", "padding_slot", 0, [](TraceLine&) {}, {"slot.write out_cache_loc 2"}, {}},
      {"roles-replay", "padding_slot", -1, [](TraceLine&) {}, {}, {}},
      {"roles-replay", "padding_slot", 0, at("out_cache_loc", 2, 0), {}, {}},
      {"roles-replay",
       "padding_slot",
       -1,
       at("out_cache_loc", 2, 4),
       {"slot.write out_cache_loc 2"},
       {"slot.write out_cache_loc 2"}},
      {"roles-decode", "reserved_page", 0, all_in_page_0, {"pool.slot req_to_token 1 0"}, {}},
      {"roles-decode", "reserved_page", 10, [](TraceLine&) {}, {"pool.slot req_to_token 2 4"}, {}},
      {"roles-decode", "reserved_page", 77, [](TraceLine&) {}, {}, {}},
      {"roles-window",
       "window_columns",
       0,
       at("swa_page_table", 3, 0),
       {},
       {"table.slot swa_page_table 1 0"}},
      {"roles-window",
       "window_columns",
       0,
       at("swa_page_table", 4, 0),
       {"table.slot swa_page_table 1 1"},
       {"table.slot swa_page_table 1 1"}},
      {"roles-window",
       "window_columns",
       0,
       at("page_table", 3, 0),
       {"table.slot page_table 1 0"},
       {"table.slot page_table 1 0"}},
      {"roles-window",
       "window_columns",
       0,
       at("swa_kv_indices", 2, 0),
       {},
       {"table.slot swa_kv_indices 1 0"}},
  };
}

TEST(TraceEngines, EachConventionDecidesOneThing) {
  for (const Convention& c : conventions()) {
    TraceLine line = line_of(c.id);
    c.change(line);
    EXPECT_EQ(laws(line), c.without) << c.key << " " << c.value.value_or(-99);
    line.config.conventions[c.key] = c.value;
    EXPECT_EQ(laws(line), c.with) << c.key << " " << c.value.value_or(-99);
  }
}

TEST(TraceEngines, PaddingMayHaveAMostOfKeys) {
  TraceLine line = line_of("roles-replay-slots");  // padding has 1 key
  line.config.conventions["max_padding_len"] = 1;
  EXPECT_EQ(found(line), "ok");
  line.config.conventions["max_padding_len"] = 0;
  EXPECT_EQ(laws(line), Laws{"len.padding kv_lens 2"});
}

TEST(TraceEngines, WithoutAPoolOfItsOwnAWindowsTableIsTheTable) {
  TraceLine line = line_of("roles-decode");
  line.config.window = 3;
  line.config.conventions["window_columns"] = 0;
  line.input.at("req_to_token").data[6] = 0;  // request 1's tokens 0 to 3, evicted
  line.expect.at("page_table").data[3] = 0;
  line.expect.at("kv_indices").data[2] = 0;
  EXPECT_EQ(found(line), "ok");
  line.expect.at("page_table").data[4] = 0;
  EXPECT_EQ(laws(line), Laws{"table.slot page_table 1 1"});
}

TEST(TraceEngines, InclusiveEndsHaveNoFirstOffset) {
  TraceLine line = line_of("roles-extend");
  line.expect.erase("q_ends");
  line.expect.at("cu_seqlens_q") = {"int32", {2}, 2, {2, 11}};
  EXPECT_EQ(laws(line), Laws{"trace.shape cu_seqlens_q"});
  line.config.conventions["inclusive_ends"] = 1;
  EXPECT_EQ(found(line), "ok");
  line.expect.at("cu_seqlens_q").data[1] = 10;
  EXPECT_EQ(laws(line), Laws{"len.q_extent cu_seqlens_q 1"});
}

TEST(TraceEngines, PagesOfTheMapStandForAllTheirSlots) {
  TraceLine line = line_of("roles-decode");
  RecordedField& map = line.input.at("req_to_token");
  std::vector<int64_t> slots;
  for (const int64_t page : map.data)
    for (int64_t offset = 0; offset < 4; ++offset) slots.push_back(page * 4 + offset);
  map = {"int32", {3, 12}, 12, slots};
  EXPECT_EQ(found(line), "ok");
  line.input.at("seq_lens").pages = true;
  EXPECT_EQ(refusals(line), Laws{"input.seq_lens: pages"});
  line.input.at("seq_lens").pages = false, line.expect.at("page_table").pages = true;
  EXPECT_EQ(refusals(line), Laws{"expect.page_table: pages"});
  line = line_of("roles-decode");
  line.config.page_size = 1 << 24;
  EXPECT_EQ(refusals(line), Laws{"input.req_to_token: 9"}) << "a pool of 2^27 slots";
}

TEST(TraceEngines, ZerosAreSlotsWherePage0IsSomebodys) {
  TraceLine line = line_of("roles-decode");
  line.config.page_size = 1;
  line.input.at("req_to_token") = {"int32", {3, 9}, 9, {0, 0, 0,  0,  0,  0,  0,  0,  0,  //
                                                        1, 2, 3,  4,  0,  0,  0,  0,  0,  //
                                                        8, 9, 10, 11, 12, 13, 14, 15, 16}};
  line.expect = {{"out_cache_loc", {"pylist", {2}, 2, {0, 16}}},
                 {"kv_lens", {"pylist", {2}, 2, {5, 9}}}};
  EXPECT_EQ(found(line), "ok");
  line.expect["out_cache_loc"].data = {0, 0};
  EXPECT_EQ(laws(line), Laws{"slot.write out_cache_loc 1"});
  line.config.engine = "sglang";
  EXPECT_EQ(laws(line), Laws{"pool.slot req_to_token 1 4"}) << "there, zeros say nothing";
}

}  // namespace
}  // namespace shadowgraph::trace_laws_test
