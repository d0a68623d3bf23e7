// sg_step: a line of engine traces that is built from tensors, and judged without JSON.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "c_api/errors.h"
#include "c_api/report.h"
#include "c_api/tensors.h"
#include "check/traces/traces.h"
#include "io/strict_json.h"
#include "io/traces/trace_line.h"
#include "io/traces/trace_write.h"

using namespace shadowgraph;

/// The head is what a line says beside its fields; the reader of lines turns it into `line`.
struct sg_step {
  JsonValue::Object head;
  TraceLine line;
  std::string text;  // what sg_step_line handed out
};

namespace shadowgraph::c_api {
namespace {

/// The same step with another head. Not ok: a line says no such thing, and the step stays.
Status set_head(JsonValue::Object head, sg_step* step) {
  JsonDocument document;
  JsonValue::Object root = head;
  root["input"].value = JsonValue::Object{};
  root["expect"].value = JsonValue::Object{};
  document.root.value = std::move(root);
  TraceLine line;
  Status status = read_trace_line(document, "step", 1, &line);
  if (!status.ok()) return status;
  line.input = std::move(step->line.input), line.expect = std::move(step->line.expect);
  step->line = std::move(line), step->head = std::move(head);
  return status;
}

/// Sets a member of the head; in: the object that holds it, null: the head itself.
sg_status set_member(sg_step* step, const char* in, const char* key, JsonValue value) {
  return guarded(nullptr, [&]() -> sg_status {
    if (step == nullptr || key == nullptr) return fail(SG_USAGE, "step, or a name, is NULL");
    JsonValue::Object head = step->head;
    if (in == nullptr)
      head[key] = std::move(value);
    else
      std::get<JsonValue::Object>(head[in].value)[key] = std::move(value);
    return hand_out(set_head(std::move(head), step), SG_BAD_INPUT, nullptr);
  });
}

sg_status set_text(sg_step* step, const char* in, const char* key, const char* text) {
  if (text == nullptr) return fail(SG_USAGE, "step, or a name, is NULL");
  return guarded(nullptr, [&] { return set_member(step, in, key, JsonValue{std::string(text)}); });
}

sg_status set_field(sg_step* step, RecordedFields TraceLine::*fields, const char* key,
                    const DLTensor* tensor, bool pages) {
  return guarded(nullptr, [&]() -> sg_status {
    if (step == nullptr || key == nullptr) return fail(SG_USAGE, "step or key is NULL");
    Status status;
    TensorReader::Integers read = TensorReader(&status).integers(key, tensor);
    if (!status.ok()) return hand_out(status, SG_BAD_INPUT, nullptr);
    RecordedField field{read.dtype, std::move(read.shape), 0, std::move(read.data)};
    field.cols = field.width(), field.pages = pages;
    (step->line.*fields)[key] = std::move(field);
    return SG_OK;
  });
}

/// What nobody judged is a note of the report.
void add_notes(const TraceVerdict& verdict, sg_report* report) {
  for (const LeftOut& part : verdict.left_out)
    report->report.passed_over.push_back({std::string(part.law),
                                          "step",
                                          "left out, " + part.to_string(),
                                          1,
                                          {},
                                          part.name,
                                          part.why});
  report->report.left_out = std::ssize(verdict.left_out);
}

sg_status hand_out(TraceVerdict verdict, const TraceLine& line, sg_report** report) {
  TraceVerdict skipped = verdict;
  skipped.left_out.clear();
  for (Finding& f : passed_over(line, skipped)) verdict.findings.add(std::move(f));
  sg_report* made = nullptr;
  const sg_status status = hand_out_verdict(verdict.findings, report == nullptr ? nullptr : &made);
  std::unique_ptr<sg_report> owned(made);
  if (report == nullptr || (owned == nullptr && verdict.left_out.empty())) return status;
  if (owned == nullptr) owned = std::make_unique<sg_report>();
  add_notes(verdict, owned.get());
  *report = owned.release();
  return status;
}

}  // namespace
}  // namespace shadowgraph::c_api

using namespace shadowgraph::c_api;

extern "C" {

sg_status sg_step_new(const char* backend, const char* mode, const char* phase, sg_step** step) {
  return guarded(nullptr, [&]() -> sg_status {
    if (backend == nullptr || mode == nullptr || phase == nullptr || step == nullptr)
      return fail(SG_USAGE, "backend, mode, phase or step is NULL");
    *step = nullptr;
    auto made = std::make_unique<sg_step>();
    JsonValue::Object head;
    head["id"].value = std::string("step"), head["backend"].value = std::string(backend);
    head["mode"].value = std::string(mode), head["phase"].value = std::string(phase);
    head["config"].value = JsonValue::Object{}, head["roles"].value = JsonValue::Object{};
    const Status status = set_head(std::move(head), made.get());
    if (status.ok()) *step = made.release();
    return hand_out(status, SG_BAD_INPUT, nullptr);
  });
}

sg_status sg_step_id(sg_step* step, const char* id) { return set_text(step, nullptr, "id", id); }

sg_status sg_step_config(sg_step* step, const char* key, int64_t value) {
  const JsonValue number = value < 0 ? JsonValue{value} : JsonValue{static_cast<uint64_t>(value)};
  const sg_status status = set_member(step, "config", key, number);
  if (status != SG_BAD_INPUT || value < 0 || value > 1) return status;
  // Where a line has a truth, its reader takes no number.
  return set_member(step, "config", key, JsonValue{value == 1});
}

sg_status sg_step_config_text(sg_step* step, const char* key, const char* text) {
  return set_text(step, "config", key, text);
}

sg_status sg_step_role(sg_step* step, const char* field, const char* role) {
  return set_text(step, "roles", field, role);
}

sg_status sg_step_input(sg_step* step, const char* key, const DLTensor* tensor) {
  return set_field(step, &TraceLine::input, key, tensor, false);
}

sg_status sg_step_pages(sg_step* step, const char* key, const DLTensor* tensor) {
  return set_field(step, &TraceLine::input, key, tensor, true);
}

sg_status sg_step_field(sg_step* step, const char* key, const DLTensor* tensor) {
  return set_field(step, &TraceLine::expect, key, tensor, false);
}

sg_status sg_step_number(sg_step* step, const char* key, int64_t value) {
  return guarded(nullptr, [&]() -> sg_status {
    if (step == nullptr || key == nullptr) return fail(SG_USAGE, "step or key is NULL");
    step->line.expect[key] = {"pyint", {}, 1, {value}};
    return SG_OK;
  });
}

sg_status sg_step_judge(const sg_step* step, sg_report** report) {
  return guarded(report, [&]() -> sg_status {
    if (step == nullptr) return fail(SG_USAGE, "step is NULL");
    return hand_out(judge_trace(step->line), step->line, report);
  });
}

sg_status sg_step_line(sg_step* step, const char** text, size_t* size) {
  return guarded(nullptr, [&]() -> sg_status {
    if (step == nullptr || text == nullptr) return fail(SG_USAGE, "step or text is NULL");
    step->text = trace_text(step->head, step->line.input, step->line.expect);
    *text = step->text.c_str();
    if (size != nullptr) *size = step->text.size();
    return SG_OK;
  });
}

void sg_step_free(sg_step* step) { delete step; }

}  // extern "C"
