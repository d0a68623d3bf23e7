// sg_step: a line of engine traces that is built from tensors, and judged without JSON.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "c_api/errors.h"
#include "c_api/report.h"
#include "c_api/tensors.h"
#include "check/traces/trace_names.h"
#include "check/traces/traces.h"
#include "io/file.h"
#include "io/strict_json.h"
#include "io/traces/trace_calls.h"
#include "io/traces/trace_line.h"
#include "io/traces/trace_write.h"

using namespace shadowgraph;

/// The head is what a line says beside its fields; the reader of lines turns it into `line`.
struct sg_step {
  JsonValue::Object head;
  TraceLine line;
  JsonValue::Array calls;                 // {wrapper, call}, in order
  std::vector<RecordedFields> arguments;  // of each; those of named calls are fields, too
  JsonValue exception;
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
  for (Finding& f : status.findings()) f.where.row.reset();  // it is in no file
  if (!status.ok()) return status;
  TraceLine& old = step->line;
  old.line = line.line, old.id = line.id, old.backend = line.backend, old.mode = line.mode,
  old.phase = line.phase;
  old.config = std::move(line.config), old.config_keys = std::move(line.config_keys);
  old.roles = std::move(line.roles);
  step->head = std::move(head);
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

/// SG_OK, or a key of `config` that no trace has.
sg_status know_config(const char* key) {
  if (key == nullptr || is_trace_key("config", key)) return SG_OK;
  return fail_word("key", key, names_of_keys("config"));
}

sg_status set_text(sg_step* step, const char* in, const char* key, const char* text) {
  if (text == nullptr) return fail(SG_USAGE, "step, or a name, is NULL");
  return guarded(nullptr, [&] { return set_member(step, in, key, JsonValue{std::string(text)}); });
}

/// Reads a field and hands it to `keep`; no tensor: nothing.
template <class Keep>
sg_status with_field(sg_step* step, const char* key, const DLTensor* tensor, const Keep& keep) {
  return guarded(nullptr, [&]() -> sg_status {
    if (step == nullptr || key == nullptr) return fail(SG_USAGE, "step or key is NULL");
    if (tensor == nullptr) return keep(nullptr);
    Status status;
    TensorReader::Integers read = TensorReader(&status).integers(key, tensor);
    if (!status.ok()) return hand_out(status, SG_BAD_INPUT, nullptr);
    RecordedField field{read.dtype, std::move(read.shape), 0, std::move(read.data)};
    field.cols = field.width();
    return keep(&field);
  });
}

/// A field has a value or holds nothing.
sg_status set_field(RecordedFields& fields, std::vector<std::string>& nulls, const char* key,
                    RecordedField* field) {
  std::erase(nulls, key);
  if (field != nullptr) {
    fields[key] = std::move(*field);
  } else {
    fields.erase(key);
    nulls.emplace_back(key);
  }
  return SG_OK;
}

sg_status set_input(sg_step* step, const char* key, const DLTensor* tensor, bool pages) {
  return with_field(step, key, tensor, [&](RecordedField* field) {
    if (field != nullptr) field->pages = pages;
    return set_field(step->line.input, step->line.null_inputs, key, field);
  });
}

/// Names follow from all calls: another one may take an earlier one's.
void name_arguments(sg_step* step) {
  for (const TraceCall& call : step->line.calls)
    std::erase_if(step->line.expect, [&](const auto& field) {
      return !call.name.empty() && field.first.starts_with(call.name + '.');
    });
  step->line.calls = name_calls(step->calls);
  for (size_t i = 0; i < step->calls.size(); ++i) {
    const std::string& name = step->line.calls[i].name;
    if (name.empty()) continue;
    for (const auto& [key, field] : step->arguments[i]) step->line.expect[name + '.' + key] = field;
  }
}

/// Parts that nobody judged are notes of the report.
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
  for (Finding& f : verdict.findings.findings())
    if (f.id == "io.line") f.where.row.reset();  // it is in no file
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
  if (know_config(key) != SG_OK) return SG_USAGE;
  const JsonValue number = value < 0 ? JsonValue{value} : JsonValue{static_cast<uint64_t>(value)};
  const sg_status status = set_member(step, "config", key, number);
  if (status != SG_BAD_INPUT || value < 0 || value > 1) return status;
  // The reader of lines takes no number for a truth.
  return set_member(step, "config", key, JsonValue{value == 1});
}

sg_status sg_step_config_text(sg_step* step, const char* key, const char* text) {
  return know_config(key) == SG_OK ? set_text(step, "config", key, text) : SG_USAGE;
}

sg_status sg_step_role(sg_step* step, const char* field, const char* role) {
  return set_text(step, "roles", field, role);
}

sg_status sg_step_input(sg_step* step, const char* key, const DLTensor* tensor) {
  return set_input(step, key, tensor, false);
}

sg_status sg_step_pages(sg_step* step, const char* key, const DLTensor* tensor) {
  return set_input(step, key, tensor, true);
}

sg_status sg_step_field(sg_step* step, const char* key, const DLTensor* tensor) {
  return with_field(step, key, tensor, [&](RecordedField* field) {
    return set_field(step->line.expect, step->line.null_fields, key, field);
  });
}

sg_status sg_step_number(sg_step* step, const char* key, int64_t value) {
  return guarded(nullptr, [&]() -> sg_status {
    if (step == nullptr || key == nullptr) return fail(SG_USAGE, "step or key is NULL");
    RecordedField field{"pyint", {}, 1, {value}};
    return set_field(step->line.expect, step->line.null_fields, key, &field);
  });
}

sg_status sg_step_call(sg_step* step, const char* wrapper, const char* call) {
  return guarded(nullptr, [&]() -> sg_status {
    if (step == nullptr || (wrapper == nullptr) != (call == nullptr))
      return fail(SG_USAGE, "step, wrapper or call is NULL");
    step->line.no_calls = wrapper == nullptr && step->calls.empty();
    if (wrapper == nullptr) return SG_OK;
    JsonValue::Object made;
    made["wrapper"].value = std::string(wrapper), made["call"].value = std::string(call);
    step->arguments.reserve(step->arguments.size() + 1);
    step->calls.push_back(JsonValue{std::move(made)});
    step->arguments.emplace_back();
    name_arguments(step);
    return SG_OK;
  });
}

sg_status sg_step_argument(sg_step* step, const char* key, const DLTensor* tensor) {
  if (step == nullptr || step->calls.empty())
    return fail(SG_USAGE, "step is NULL, or has no call yet");
  return with_field(step, key, tensor, [&](RecordedField* field) {
    if (field == nullptr) return fail(SG_USAGE, "tensor is NULL");
    step->arguments.back()[key] = *field;
    const std::string& name = step->line.calls.back().name;
    if (!name.empty()) step->line.expect[name + '.' + key] = std::move(*field);
    return sg_status{SG_OK};
  });
}

sg_status sg_step_exception(sg_step* step, const char* type, const char* message) {
  return guarded(nullptr, [&]() -> sg_status {
    if (step == nullptr || type == nullptr || message == nullptr)
      return fail(SG_USAGE, "step, type or message is NULL");
    JsonValue::Object raised;
    raised["type"].value = std::string(type), raised["msg"].value = std::string(message);
    step->line.exception = printable(type) + ": " + printable(message);
    step->exception.value = std::move(raised);
    return SG_OK;
  });
}

sg_status sg_step_judge(const sg_step* step, sg_report** report) {
  return guarded(report, [&]() -> sg_status {
    if (step == nullptr) return fail(SG_USAGE, "step is NULL");
    return hand_out(judge_fields(step->line), step->line, report);
  });
}

sg_status sg_step_line(sg_step* step, const char** text, size_t* size) {
  return guarded(nullptr, [&]() -> sg_status {
    if (step == nullptr || text == nullptr) return fail(SG_USAGE, "step or text is NULL");
    const bool raised = !step->line.exception.empty();
    step->text =
        trace_text({step->head, step->line, step->arguments, raised ? &step->exception : nullptr});
    *text = step->text.c_str();
    if (size != nullptr) *size = step->text.size();
    return SG_OK;
  });
}

void sg_step_free(sg_step* step) { delete step; }

}  // extern "C"
