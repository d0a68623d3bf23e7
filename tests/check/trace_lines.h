// Small lines of traces, and what is found in them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "check/traces/traces.h"
#include "io/traces/traces.h"

namespace shadowgraph {

using Kind = TraceVerdict::Kind;

/// traces/*.jsonl of the folder that SHADOWGRAPH_VECTORS names; by default the curated ones.
inline const std::vector<TraceLine>& all_lines() {
  static const std::vector<TraceLine> kLines = [] {
    const char* folder = std::getenv("SHADOWGRAPH_VECTORS");
    const std::filesystem::path root =
        std::filesystem::path(folder == nullptr ? SHADOWGRAPH_TEST_DATA : folder) / "traces";
    std::vector<std::string> files;
    std::error_code missing;
    for (const auto& entry : std::filesystem::directory_iterator(root, missing)) {
      if (entry.path().extension() == ".jsonl") files.push_back(entry.path().string());
    }
    std::ranges::sort(files);
    std::vector<TraceLine> lines;
    for (const std::string& file : files)
      EXPECT_EQ(read_traces(file, &lines).to_string(), "ok") << file;
    return lines;
  }();
  return kLines;
}

/// Two requests of 5 and 9 tokens that decode, in pages of 4 slots; the second row of the table has
/// a column that nothing reads.
inline TraceLine decode_line() {
  TraceLine line;
  line.id = "x";
  line.backend = "flashattention";
  line.mode = "decode";
  line.phase = "eager";
  line.config.page_size = 4;
  line.config.max_context_len = 12;
  const auto vector = [](std::vector<int64_t> data) {
    const auto size = static_cast<int64_t>(data.size());
    return RecordedField{"int32", {size}, size, std::move(data)};
  };
  const auto table = [](int64_t width, std::vector<int64_t> data) {
    const auto rows = static_cast<int64_t>(data.size()) / width;
    return RecordedField{"int32", {rows, width}, width, std::move(data)};
  };
  line.input["seq_lens"] = vector({5, 9});
  line.input["req_pool_indices"] = vector({1, 2});
  line.input["req_to_token"] = table(12, {0,  0,  0,  0,  0,  0,  0,  0,  0, 0, 0, 0,  //
                                          8,  9,  10, 11, 20, 0,  0,  0,  0, 0, 0, 0,  //
                                          12, 13, 14, 15, 40, 41, 42, 43, 4, 0, 0, 0});
  line.expect["cache_seqlens_int32"] = vector({5, 9});
  line.expect["cu_seqlens_q"] = vector({0, 1, 2});
  line.expect["page_table"] = table(3, {2, 5, 77, 3, 10, 1});
  return line;
}

inline std::string found(const TraceLine& line) {
  const TraceVerdict v = judge_trace(line);
  return v.why.empty() ? v.findings.to_string() : v.why;
}

/// The words of what nobody judges in the line, without the laws.
inline std::vector<std::string> left_out(const TraceLine& line) {
  std::vector<std::string> words;
  for (const LeftOut& one : judge_trace(line).left_out) words.push_back(one.to_string());
  return words;
}

/// "law: field[row, col]" of each finding.
inline std::vector<std::string> laws(const TraceLine& line) {
  std::vector<std::string> s;
  const TraceVerdict v = judge_trace(line);
  for (const Finding& f : v.findings.findings()) {
    s.push_back(f.id + ' ' + f.where.field);
    if (f.where.row) s.back() += ' ' + std::to_string(*f.where.row);
    if (f.where.col) s.back() += ' ' + std::to_string(*f.where.col);
  }
  return s;
}
using Laws = std::vector<std::string>;

/// The same in a bucket of three rows.
inline TraceLine replay_line() {
  TraceLine line = decode_line();
  line.phase = "replay";
  line.input["raw_bs"] = {"pyint", {}, 1, {2}};
  const auto grow = [](RecordedField& f, std::vector<int64_t> row) {
    ++f.shape[0];
    if (f.shape.size() == 1) ++f.cols;
    f.data.insert(f.data.end(), row.begin(), row.end());
  };
  grow(line.input["seq_lens"], {1});
  grow(line.input["req_pool_indices"], {0});
  grow(line.expect["cache_seqlens_int32"], {1});
  grow(line.expect["cu_seqlens_q"], {3});
  grow(line.expect["page_table"], {0, 50, -1});
  return line;
}

/// "expect.page_table: of dtype float32" of each refusal of a line.
inline std::vector<std::string> refusals(const TraceLine& line) {
  const TraceVerdict v = judge_trace(line);
  EXPECT_EQ(v.kind, Kind::kRefused);
  std::vector<std::string> s;
  for (const Finding& f : v.findings.findings()) {
    EXPECT_EQ(f.id, "io.line");
    EXPECT_EQ(f.where.row, static_cast<int64_t>(line.line));
    s.push_back(f.where.field + ": " + f.got);
  }
  return s;
}

}  // namespace shadowgraph
