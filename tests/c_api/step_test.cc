// Steps of C: built from tensors, judged as the line that they write.
#include <cstring>
#include <fstream>

#include "c_api/dl_tensors.h"
#include "check/traces/traces.h"
#include "io/strict_json.h"
#include "io/traces/traces.h"

namespace shadowgraph::c_api::step_test {
namespace {

struct StepHandle {
  sg_step* handle = nullptr;

  StepHandle() = default;
  StepHandle(const StepHandle&) = delete;
  StepHandle& operator=(const StepHandle&) = delete;
  ~StepHandle() { sg_step_free(handle); }

  TraceLine line() const {
    const char* text = nullptr;
    size_t size = 0;
    EXPECT_EQ(sg_step_line(handle, &text, &size), SG_OK);
    EXPECT_EQ(std::strlen(text), size);
    std::vector<TraceLine> lines;
    const Status status = parse_traces(text, "step", &lines);
    EXPECT_TRUE(status.ok()) << status.to_string() << text;
    return lines.empty() ? TraceLine() : lines[0];
  }
};

/// A decode over pages of 4: 5 keys in pages 2 and 5, 8 in pages 3 and 10.
struct Decoded : StepHandle {
  Tensor<int32_t> pages{{2, 2}, {2, 5, 3, 10}}, table{{3, 2}, {2, 5, 3, 10, 0, 0}};
  Tensor<int64_t> rows{{2}, {0, 1}}, lens{{2}, {5, 8}}, kv_lens{{3}, {5, 8, 0}};
  DLTensor pages_t = pages.dl(), table_t = table.dl(), rows_t = rows.dl(), lens_t = lens.dl(),
           kv_lens_t = kv_lens.dl();

  /// rows: of the metadata; a replay may have one of padding.
  explicit Decoded(const char* phase = "replay", int64_t rows_of_metadata = 3) {
    table.shape[0] = kv_lens.shape[0] = rows_of_metadata;
    EXPECT_EQ(sg_step_new("laws", "decode", phase, &handle), SG_OK) << sg_last_error();
    EXPECT_EQ(sg_step_config(handle, "page_size", 4), SG_OK);
    EXPECT_EQ(sg_step_pages(handle, "req_to_token", &pages_t), SG_OK);
    EXPECT_EQ(sg_step_input(handle, "req_pool_indices", &rows_t), SG_OK);
    EXPECT_EQ(sg_step_input(handle, "seq_lens", &lens_t), SG_OK);
    EXPECT_EQ(sg_step_role(handle, "block_tables", "page_table"), SG_OK);
    set();
  }
  void set() {
    EXPECT_EQ(sg_step_field(handle, "block_tables", &table_t), SG_OK) << sg_last_error();
    EXPECT_EQ(sg_step_field(handle, "kv_lens", &kv_lens_t), SG_OK);
    EXPECT_EQ(sg_step_number(handle, "max_seqlen_k", 8), SG_OK);
  }
  Found judged(sg_status status) const {
    sg_report* report = nullptr;
    EXPECT_EQ(sg_step_judge(handle, &report), status) << sg_last_error();
    return taken(report);
  }
};

TEST(CStep, AStepIsJudgedByItsTensors) {
  Decoded d("eager", 2);
  EXPECT_EQ(d.judged(SG_OK), Found{});
  d.table.values[3] = 11;
  d.kv_lens.values[0] = 4;
  d.set();
  EXPECT_EQ(d.judged(SG_FINDINGS), (Found{"len.kv_extent kv_lens", "table.slot block_tables"}));
  EXPECT_EQ(sg_step_number(d.handle, "max_seqlen_k", 7), SG_OK);
  EXPECT_EQ(sg_step_id(d.handle, "step 7"), SG_OK);
  sg_report* report = nullptr;
  EXPECT_EQ(sg_step_judge(d.handle, &report), SG_FINDINGS);
  EXPECT_EQ(sg_report_size(report), 3);
  sg_finding f = SG_FINDING_INIT;
  EXPECT_EQ(sg_report_get(report, 0, &f), SG_OK);
  EXPECT_NE(std::strstr(f.text, "step 7"), nullptr);
  sg_report_free(report);
}

TEST(CStep, WordsAndTruthsOfItsEngineCount) {
  Decoded d;
  EXPECT_EQ(sg_step_config_text(d.handle, "engine", "sglang"), SG_OK);
  EXPECT_EQ(d.judged(SG_FINDINGS), Found{"len.padding kv_lens"});
  EXPECT_EQ(sg_step_config(d.handle, "padding_len", 0), SG_OK);
  EXPECT_EQ(d.judged(SG_OK), Found{});
  EXPECT_EQ(sg_step_config(d.handle, "window_columns", 1), SG_OK) << sg_last_error();
  EXPECT_EQ(sg_step_config(d.handle, "window_columns", 2), SG_BAD_INPUT);
  EXPECT_EQ(d.line().config.conventions.at("window_columns"), 1);
}

TEST(CStep, WhatALineMayNotSayLeavesTheStepAsItWas) {
  Decoded d;
  EXPECT_EQ(sg_step_config(d.handle, "page_size", 0), SG_BAD_INPUT);
  EXPECT_NE(std::strstr(sg_last_error(), "config.page_size"), nullptr);
  EXPECT_EQ(sg_step_config_text(d.handle, "page_size", "four"), SG_BAD_INPUT);
  Tensor<float> real({2}, 5);
  DLTensor real_t = real.dl();
  EXPECT_EQ(sg_step_field(d.handle, "kv_lens", &real_t), SG_BAD_INPUT);
  EXPECT_EQ(d.judged(SG_OK), Found{});
  EXPECT_EQ(sg_step_field(nullptr, "kv_lens", &real_t), SG_USAGE);
  EXPECT_EQ(sg_step_config(d.handle, nullptr, 0), SG_USAGE);
  EXPECT_EQ(sg_step_config(d.handle, "windo", 3), SG_USAGE);
  EXPECT_NE(std::strstr(sg_last_error(), "windo; did you mean window?"), nullptr);
  StepHandle unknown;
  EXPECT_EQ(sg_step_new("laws", "Decode", "eager", &unknown.handle), SG_OK);
  sg_report* report = nullptr;
  EXPECT_EQ(sg_step_judge(unknown.handle, &report), SG_BAD_INPUT);
  EXPECT_EQ(taken(report), Found{"io.line mode"});
  EXPECT_EQ(sg_step_judge(nullptr, nullptr), SG_USAGE);
}

TEST(CStep, WhatNobodyJudgesIsANoteAndNoFinding) {
  Decoded d;
  EXPECT_EQ(sg_step_number(d.handle, "colours", 3), SG_OK);
  sg_report* report = nullptr;
  EXPECT_EQ(sg_step_judge(d.handle, &report), SG_OK);
  EXPECT_EQ(sg_report_size(report), 0);
  ASSERT_NE(report, nullptr);
  EXPECT_NE(std::strstr(sg_report_text(report, "json"), "colours"), nullptr);
  EXPECT_NE(std::strstr(sg_report_text(report, "text"), "clean as far as judged"), nullptr);
  sg_report_free(report);
  StepHandle unknown;
  ASSERT_EQ(sg_step_new("no_backend", "decode", "eager", &unknown.handle), SG_OK);
  EXPECT_EQ(sg_step_judge(unknown.handle, &report), SG_BAD_INPUT);
  EXPECT_EQ(taken(report), Found{"skip.unknown_backend "});
}

/// A recorded field as a tensor with memory of its own.
struct FieldTensor {
  Tensor<int64_t> wide;
  std::vector<int32_t> narrow;
  std::vector<uint8_t> truths;
  DLTensor t;

  explicit FieldTensor(const RecordedField& field) : wide(field.shape, field.data) {
    t = wide.dl();
    if (field.dtype == "int32") {
      narrow.assign(field.data.begin(), field.data.end());
      t.data = narrow.data(), t.dtype = dl_type<int32_t>();
    } else if (field.dtype == "bool" || field.dtype == "uint8") {
      truths.assign(field.data.begin(), field.data.end());
      t.data = truths.data(),
      t.dtype = field.dtype == "bool" ? dl_type<bool>() : dl_type<uint8_t>();
    }
  }
};

std::vector<std::string> texts_of(const TraceVerdict& verdict) {
  std::vector<std::string> texts;
  for (const Finding& f : verdict.findings.findings()) texts.push_back(f.to_string());
  return texts;
}

/// The step of a recorded line; false: a tensor cannot say some of it.
bool rebuild(const TraceLine& line, const JsonValue& root, StepHandle* step) {
  EXPECT_EQ(sg_step_new(line.backend.c_str(), line.mode.c_str(), line.phase.c_str(), &step->handle),
            SG_OK);
  sg_step* s = step->handle;
  EXPECT_EQ(sg_step_id(s, line.id.c_str()), SG_OK);
  for (const auto& [key, value] : *root.find("config")->as<JsonValue::Object>()) {
    const auto* word = value.as<std::string>();
    const auto number = value.number();
    if (word != nullptr) {
      EXPECT_EQ(sg_step_config_text(s, key.c_str(), word->c_str()), SG_OK);
    } else if (number) {
      EXPECT_EQ(sg_step_config(s, key.c_str(), static_cast<int64_t>(*number)), SG_OK);
    }
  }
  for (const std::string& key : line.null_inputs)
    EXPECT_EQ(sg_step_input(s, key.c_str(), nullptr), SG_OK);
  for (const std::string& key : line.null_fields)
    EXPECT_EQ(sg_step_field(s, key.c_str(), nullptr), SG_OK);
  if (line.no_calls) {
    EXPECT_EQ(sg_step_call(s, nullptr, nullptr), SG_OK);
  }
  if (!line.exception.empty()) return false;
  const auto tell = [&](const RecordedField& field, auto set) {
    if (!field.unreadable.empty() || field.cols != field.width()) return false;
    FieldTensor tensor(field);
    EXPECT_EQ(set(&tensor.t), SG_OK) << sg_last_error();
    return true;
  };
  bool whole = true;
  for (const auto& [key, field] : line.input) {
    whole &= tell(field, [&, name = key.c_str(), pages = field.pages](const DLTensor* t) {
      return pages ? sg_step_pages(s, name, t) : sg_step_input(s, name, t);
    });
  }
  RecordedFields own = line.expect;
  for (const TraceCall& call : line.calls) {
    EXPECT_EQ(sg_step_call(s, call.wrapper.c_str(), call.kind.c_str()), SG_OK);
    for (const auto& [key, field] : line.expect) {
      if (call.name.empty() || !key.starts_with(call.name + '.')) continue;
      const std::string name = key.substr(call.name.size() + 1);
      whole &= tell(field, [&](const DLTensor* t) { return sg_step_argument(s, name.c_str(), t); });
      own.erase(key);
    }
  }
  for (const auto& [key, field] : own)
    whole &= tell(field,
                  [&, name = key.c_str()](const DLTensor* t) { return sg_step_field(s, name, t); });
  return whole;
}

/// Texts of what sg_step_judge finds.
std::vector<std::string> judged_texts(const StepHandle& step) {
  sg_report* report = nullptr;
  const sg_status status = sg_step_judge(step.handle, &report);
  std::vector<std::string> texts;
  for (int64_t i = 0; i < sg_report_size(report); ++i) {
    sg_finding f = SG_FINDING_INIT;
    EXPECT_EQ(sg_report_get(report, i, &f), SG_OK);
    texts.emplace_back(f.text);
  }
  sg_report_free(report);
  EXPECT_EQ(status, texts.empty() ? SG_OK : SG_FINDINGS) << sg_last_error();
  return texts;
}

/// Judges every line of a recording both ways, and how many there were.
void expect_alike(const char* name, int least_steps) {
  std::ifstream file(std::string(SHADOWGRAPH_TEST_DATA "/traces/") + name);
  int steps = 0, flagged = 0;
  for (std::string text; std::getline(file, text);) {
    std::vector<TraceLine> lines;
    ASSERT_TRUE(parse_traces(text, "file", &lines).ok());
    JsonDocument document;
    ASSERT_TRUE(parse_strict_json(text, "io.line", "file", 1, &document, 8).ok());
    StepHandle step;
    if (!rebuild(lines.at(0), document.root, &step)) continue;
    const TraceVerdict verdict = judge_trace(lines[0]), written = judge_trace(step.line());
    const std::vector<std::string> texts = judged_texts(step);
    EXPECT_EQ(texts, texts_of(verdict)) << lines[0].id;
    EXPECT_EQ(texts, texts_of(written)) << lines[0].id;
    ++steps, flagged += !texts.empty();
  }
  EXPECT_GE(steps, least_steps) << name;
  EXPECT_GT(flagged, 0) << name;
}

TEST(CStep, RecordedLinesAreJudgedAlikeFromTensors) {
  expect_alike("flashattention.current.jsonl", 20);
  expect_alike("flashinfer.latest.jsonl", 9);
}

TEST(CStep, ABuilderThatRaisedIsAFinding) {
  Decoded d;
  EXPECT_EQ(sg_step_exception(d.handle, "IndexError", "index 3"), SG_OK);
  const Found found = d.judged(SG_FINDINGS);
  EXPECT_EQ(found, Found{"trace.exception exception"});
  EXPECT_EQ(d.line().exception, "IndexError: index 3");
  EXPECT_EQ(sg_step_exception(d.handle, nullptr, "index 3"), SG_USAGE);
}

TEST(CStep, APlanThatIsMadeAgainTakesTheName) {
  StepHandle step;
  ASSERT_EQ(sg_step_new("flashinfer", "decode", "eager", &step.handle), SG_OK);
  Tensor<int32_t> map({1, 3}, {5, 6, 7}), row({1}, 0), len({1}, 3);
  Tensor<int32_t> first({2}, {0, 9}), second({2}, {0, 3});
  DLTensor map_t = map.dl(), row_t = row.dl(), len_t = len.dl(), first_t = first.dl(),
           second_t = second.dl();
  EXPECT_EQ(sg_step_input(step.handle, "req_to_token", &map_t), SG_OK);
  EXPECT_EQ(sg_step_input(step.handle, "req_pool_indices", &row_t), SG_OK);
  EXPECT_EQ(sg_step_input(step.handle, "seq_lens", &len_t), SG_OK);
  EXPECT_EQ(sg_step_argument(step.handle, "kv_indptr", &first_t), SG_USAGE);
  EXPECT_FALSE(step.line().no_calls);
  EXPECT_EQ(sg_step_call(step.handle, nullptr, nullptr), SG_OK);
  EXPECT_TRUE(step.line().no_calls);
  EXPECT_EQ(sg_step_call(step.handle, "decode_wrappers[0]", "plan"), SG_OK);
  EXPECT_EQ(sg_step_argument(step.handle, "kv_indptr", &first_t), SG_OK);
  EXPECT_EQ(step.line().expect.at("decode[0].kv_indptr").data, (std::vector<int64_t>{0, 9}));
  EXPECT_FALSE(step.line().no_calls);
  const auto is_wrong = [](const std::string& text) { return text.starts_with("len."); };
  EXPECT_TRUE(std::ranges::any_of(judged_texts(step), is_wrong));
  EXPECT_EQ(sg_step_call(step.handle, "decode_wrappers[0]", "plan"), SG_OK);
  EXPECT_FALSE(step.line().expect.contains("decode[0].kv_indptr"));
  EXPECT_FALSE(std::ranges::any_of(judged_texts(step), is_wrong));
  EXPECT_EQ(sg_step_argument(step.handle, "kv_indptr", &second_t), SG_OK);
  EXPECT_EQ(step.line().expect.at("decode[0].kv_indptr").data, (std::vector<int64_t>{0, 3}));
  EXPECT_FALSE(std::ranges::any_of(judged_texts(step), is_wrong));
  EXPECT_EQ(sg_step_call(step.handle, nullptr, "plan"), SG_USAGE);
}

}  // namespace
}  // namespace shadowgraph::c_api::step_test
