// FlashAttention-3's and FlashMLA's cases with one planted slip each: the recording answers another
// call then, and both it and the file's reference must say so.
#include <gtest/gtest.h>

#include <cstring>

#include "check/recorded/judge.h"
#include "io/curated_vectors.h"

namespace shadowgraph::flash_vectors_test {
namespace {

std::set<std::string> laws(const RecordedVerdict& verdict) {
  std::set<std::string> ids;
  for (const Finding& f : verdict.findings.findings()) ids.insert(f.id);
  return ids;
}

const std::set<std::string> kAnotherCall = {"num.recorded", "num.reference"};

/// The case's first call, to be changed.
PagedAttention& call_of(RecordedCase& v) {
  return std::get<PagedAttention>(v.attention().calls.at(0));
}

RecordedCase read(const char* kind) {
  const auto [id, file] = case_of_kind(kind);
  const Parsed p = parse(file);
  EXPECT_EQ(p.status.to_string(), "ok");
  EXPECT_EQ(judge_recorded(p.cases.at(0)).findings.to_string(), "ok") << kind;
  return p.cases.at(0);
}

/// One key too few in every request that keeps one.
TEST(FlashVectors, WrongLengthIsFound) {
  for (const char* kind :
       {"decode_causal", "decode_full", "extend_causal", "softcap", "dense_f16"}) {
    RecordedCase v = read(kind);
    std::vector<int32_t> lens(call_of(v).pages.cache_seqlens.begin(),
                              call_of(v).pages.cache_seqlens.end());
    for (int32_t& n : lens) n -= n > 1;
    call_of(v).pages.cache_seqlens = lens;
    EXPECT_EQ(laws(judge_recorded(v)), kAnotherCall) << kind;
  }
}

TEST(FlashVectors, WrongPageIsFound) {
  for (const char* kind : {"decode_full", "decode_long_split", "dense_empty"}) {
    RecordedCase v = read(kind);
    std::vector<int32_t> table(call_of(v).pages.page_table.begin(),
                               call_of(v).pages.page_table.end());
    table[0] = table[0] == 1 ? 2 : 1;
    call_of(v).pages.page_table = table;
    EXPECT_TRUE(laws(judge_recorded(v)).contains("num.recorded")) << kind;
  }
}

TEST(FlashVectors, WindowOffByOneIsFound) {
  for (const char* kind : {"extend_window_causal", "extend_window_local"}) {
    for (const int32_t by : {-1, 1}) {
      RecordedCase v = read(kind);
      AttentionParams& p = call_of(v).params;
      int32_t& side = p.window_left > 0 ? p.window_left : p.window_right;
      side += by;
      EXPECT_EQ(laws(judge_recorded(v)), kAnotherCall) << kind << ' ' << by;
    }
  }
}

TEST(FlashVectors, ChunkOffByOneIsFound) {
  auto [id, file] = case_of_kind("attention_chunk");
  const int32_t chunk = Json::parse(file.metadata.at(id)).at("attention_chunk");
  for (const int32_t wrong : {0, chunk - 1, chunk + 1}) {
    set_field(file, id, "attention_chunk", wrong);
    EXPECT_EQ(laws(judge_recorded(parse(file).cases.at(0))), kAnotherCall) << wrong;
  }
}

TEST(FlashVectors, DroppedAppendedKeyIsFound) {
  RecordedCase v = read("append");
  std::vector<int64_t> slots(v.attention().appended->store.out_cache_loc.begin(),
                             v.attention().appended->store.out_cache_loc.end());
  slots.back() = -1;
  v.attention().appended->store.out_cache_loc = slots;
  EXPECT_TRUE(laws(judge_recorded(v)).contains("num.exact"));
}

TEST(FlashVectors, KeyAppendedToAnotherSlotIsFound) {
  RecordedCase v = read("append");
  std::vector<int64_t> slots(v.attention().appended->store.out_cache_loc.begin(),
                             v.attention().appended->store.out_cache_loc.end());
  slots.back() += 1;
  v.attention().appended->store.out_cache_loc = slots;
  const RecordedVerdict verdict = judge_recorded(v);
  EXPECT_TRUE(laws(verdict).contains("num.exact"));
  EXPECT_TRUE(laws(verdict).contains("num.recorded")) << "attention reads what we stored";
  const Where& where = verdict.findings.findings()[0].where;
  const int64_t page_size = v.attention().appended->store.cache.page_size;
  EXPECT_EQ(*where.row * page_size + *where.col, slots.back() - 1);
}

TEST(FlashVectors, AppendThatTheEngineRefusesIsNamed) {
  RecordedCase v = read("append");
  const std::vector<int64_t> slots(v.attention().appended->store.out_cache_loc.size(), INT64_MAX);
  v.attention().appended->store.out_cache_loc = slots;
  const RecordedVerdict verdict = judge_recorded(v);
  EXPECT_TRUE(laws(verdict).contains("slot.range"));
  EXPECT_TRUE(names(verdict.findings, "append.out_cache_loc")) << verdict.findings.to_string();
}

TEST(FlashVectors, OnlyPagedCallsReadWhatIsAppended) {
  RecordedCase v = read("append");
  const float values[] = {1, 5}, lse[] = {0, 0};
  MergeStates<LseBase::kLog2> merge;
  merge.v = ConstTensorView(values, DType::kF32, {1, 2, 1, 1});
  merge.s = ConstTensorView(lse, DType::kF32, {1, 2, 1});
  v.attention().calls.emplace_back(merge);
  const RecordedVerdict alone = judge_recorded(read("append")), both = judge_recorded(v);
  EXPECT_EQ(both.findings.to_string(), "ok");
  EXPECT_EQ(both.rows, alone.rows + 1);
}

TEST(FlashVectors, JudgingLeavesTheFilesCacheAlone) {
  const auto [id, file] = case_of_kind("append");
  const Parsed p = parse(file);
  for (const char* name : {"/k_cache", "/v_cache"}) {
    const ConstTensorView& t = file.tensors.at(id + name);
    const std::vector<std::byte> before(t.data, t.data + t.numel() * 2);
    judge_recorded(p.cases.at(0));
    EXPECT_EQ(std::memcmp(before.data(), t.data, before.size()), 0) << name;
  }
}

TEST(FlashVectors, RowsThatSeeNoKeyAreDescribedNotJudged) {
  const RecordedVerdict mla = judge_recorded(read("dense_empty"));
  EXPECT_GT(mla.empty_rows, 0);
  EXPECT_EQ(mla.notes, (std::vector<std::string>{"gpu: " + std::to_string(mla.empty_rows) +
                                                 " rows that see no key have lse inf"}));
  const RecordedVerdict fa3 = judge_recorded(read("empty_rows"));  // -inf is our law, too
  EXPECT_GT(fa3.empty_rows, 0);
  EXPECT_TRUE(fa3.notes.empty());
}

}  // namespace
}  // namespace shadowgraph::flash_vectors_test
