// A key of config that nothing reads is named, whoever reads it elsewhere. Each unread key stands
// beside a line that reads it.
#include "check/traces/trace_settings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "check/trace_lines.h"
#include "core/law_counts.h"

namespace shadowgraph::trace_settings_test {
namespace {

TraceLine parsed(const std::string& config, const std::string& mode = "decode",
                 const std::string& backend = "laws", const std::string& fields = "") {
  std::vector<TraceLine> lines;
  const std::string text =
      R"({"id": "x", "backend": ")" + backend + R"(", "mode": ")" + mode +
      R"(", "phase": "eager", "config": {"page_size": 4, )" + config +
      R"(}, "input": {"req_to_token": {"pages": [[2, 5, 6], [3, 10, 1]]}, "req_pool_indices": [0, 1],
      "seq_lens": [5, 8], "seq_lens_sum": null}, "expect": {)" +
      (fields.empty() ? R"("page_table": [[2, 5, 6], [3, 10, 1]])" : fields) + "}}";
  std::string line;
  for (const char c : text) line += c == '\n' ? ' ' : c;
  EXPECT_EQ(parse_traces(line, "x", &lines).to_string(), "ok") << line;
  return lines.empty() ? TraceLine() : lines[0];
}

std::vector<std::string> unread(const TraceLine& line) {
  std::vector<std::string> names;
  for (const LeftOut& part : judge_trace(line).unread) names.push_back(part.name);
  std::ranges::sort(names);
  return names;
}

TEST(TraceSettings, WhatNoFieldDependsOnIsUnread) {
  const TraceLine line = parsed(
      R"("num_heads": 8, "num_kv_heads": 2, "max_kv_splits": 8, "device_core_count": 132,
      "num_steps": 3, "num_draft_tokens": 4, "step_id": 0, "padding_len": 1, "window": 7)");
  EXPECT_EQ(judge_trace(line).kind, Kind::kAgreed) << found(line);
  EXPECT_EQ(unread(line),
            (std::vector<std::string>{
                "config.device_core_count", "config.max_kv_splits", "config.num_draft_tokens",
                "config.num_heads", "config.num_kv_heads", "config.num_steps", "config.padding_len",
                "config.step_id", "config.window", "input.seq_lens_sum"}));
}

TEST(TraceSettings, WhatAFieldDependsOnIsRead) {
  const std::vector<std::string> none = {"input.seq_lens_sum"};
  EXPECT_EQ(unread(parsed(R"("pool_pages": 16, "max_context_len": 12)")), none);
  EXPECT_EQ(unread(parsed(R"("num_draft_tokens": 1)", "target_verify")), none);
  EXPECT_EQ(unread(parsed(R"("num_steps": 2, "step_id": 0)", "draft_decode")), none);
  EXPECT_EQ(
      unread(parsed(R"("num_heads": 8, "max_kv_splits": 8, "device_core_count": 132)", "decode",
                    "triton", R"("num_kv_splits": [1, 1], "attn_logits_shape": [2, 8, 8, 4])")),
      none);
}

TEST(TraceSettings, AFindingIsKnownByItsWordsToo) {
  EXPECT_EQ(unread(parsed(R"("pool_pages": 2, "topk": 1)")),
            (std::vector<std::string>{"config.topk", "input.seq_lens_sum"}));
}

TEST(TraceSettings, WhatHoldsNothingIsUnread) {
  EXPECT_EQ(unread(parsed(R"("pool_pages": null)")),
            (std::vector<std::string>{"config.pool_pages", "input.seq_lens_sum"}));
  const std::string calls = R"("page_table": [[2, 5], [3, 10]], "calls": [])";
  EXPECT_EQ(unread(parsed(R"("pool_pages": 16)", "decode", "laws", calls)),
            (std::vector<std::string>{"expect.calls", "input.seq_lens_sum"}));
}

TEST(TraceSettings, TrialsAreNoJudgements) {
  const TraceLine line = parsed(R"("num_heads": 8, "topk": 1)");
  TraceLine silent = line;
  silent.config.said.clear();
  LawCounts with, without;
  {
    const CountsJudgements counts(&with);
    judge_trace(line);
  }
  {
    const CountsJudgements counts(&without);
    judge_trace(silent);
  }
  EXPECT_TRUE(std::ranges::equal(with.all(), without.all()));
}

}  // namespace
}  // namespace shadowgraph::trace_settings_test
