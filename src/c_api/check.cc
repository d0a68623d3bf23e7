// sg_check: the judge of a step in memory.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c_api/batch.h"
#include "c_api/errors.h"
#include "c_api/tensors.h"
#include "shadowgraph/judge.h"

namespace shadowgraph::c_api {
namespace {

/// nullptr: there is none of that name.
const Engine* engine_of(const char* name) {
  if (name == nullptr) return &kAnyEngine;
  const auto* const it = std::ranges::find(kEngines, name, &Engine::name);
  if (it != std::end(kEngines)) return it;
  std::vector<std::string> known;
  for (const Engine& engine : kEngines) known.emplace_back(engine.name);
  fail_word("options.engine", name, known);
  return nullptr;
}

bool read_options(const sg_judge_options* given, const sg_batch& batch,
                  testing::JudgeOptions* options) {
  const sg_judge_options defaults = SG_JUDGE_INIT;
  sg_judge_options o;
  if (!take("options", given == nullptr ? &defaults : given, &o)) return false;
  options->engine = engine_of(o.engine);
  if (options->engine == nullptr) return false;
  options->page_size = batch.page_size, options->pool_pages = batch.pool_pages;
  options->max_context_len = o.max_context_len, options->window_left = o.window_left;
  options->pad_kv_lens = {o.pad_kv_least, o.pad_kv_most};
  return true;
}

/// Values that a call was given, and copies of those whose integers the judge does not read.
struct Values {
  std::vector<testing::RoleValue> read;
  std::deque<std::vector<int64_t>> wide;
};

ConstTensorView view_of(const char* name, const DLTensor& t, TensorReader& reader, Values* to) {
  static constexpr DType kRead[] = {DType::kI32, DType::kI64, DType::kU8, DType::kBool};
  const std::optional<DType> dtype = dtype_of(t.dtype);
  const bool direct = dtype && std::ranges::find(kRead, *dtype) != std::end(kRead);
  if (t.ndim < 1 || t.ndim > 2) {
    reader.fail("input.shape", name, "1 axis, or 2 of a table",
                "a tensor of " + std::to_string(t.ndim) + " axes");
    return {};
  }
  if (direct) return reader.need(name, &t, t.ndim);
  TensorReader::Integers read = reader.integers(name, &t);
  if (!reader.ok()) return {};
  to->wide.push_back(std::move(read.data));
  if (t.ndim == 1) return {to->wide.back().data(), DType::kI64, {read.shape[0]}};
  return {to->wide.back().data(), DType::kI64, {read.shape[0], read.shape[1]}};
}

bool read_values(const sg_role_value* values, size_t count, TensorReader& reader, Values* to) {
  const auto* bytes = reinterpret_cast<const std::byte*>(values);
  for (size_t i = 0; i < count; ++i) {
    sg_role_value v;
    if (!take("values", reinterpret_cast<const sg_role_value*>(bytes), &v)) return false;
    if (v.role == nullptr) {
      fail(SG_USAGE, "values.role is NULL");
      return false;
    }
    testing::RoleValue value{.role = v.role, .values = {}, .number = {}, .unit = v.unit};
    if (v.name != nullptr) value.name = v.name;
    const std::string name(value.name.empty() ? value.role : value.name);
    if (v.values != nullptr)
      value.values = view_of(name.c_str(), *v.values, reader, to);
    else
      value.number = v.number;
    to->read.push_back(value);
    bytes += v.struct_size;
  }
  return true;
}

/// A finding that no law of metadata has: something could not be judged.
bool is_unjudged(const Finding& f) {
  return std::ranges::any_of(std::array{"input.", "io.", "test.", "left_out.", "skip."},
                             [&](const char* group) { return f.id.starts_with(group); });
}

}  // namespace

sg_status hand_out_verdict(const Status& findings, sg_report** report) {
  const bool unjudged = std::ranges::all_of(findings.findings(), is_unjudged);
  return hand_out(findings, unjudged ? SG_BAD_INPUT : SG_FINDINGS, report);
}

}  // namespace shadowgraph::c_api

using namespace shadowgraph;
using namespace shadowgraph::c_api;

extern "C" sg_status sg_check(const sg_batch* batch, const sg_role_value* values, size_t count,
                              const sg_judge_options* options, sg_report** report) {
  return guarded(report, [&]() -> sg_status {
    if (batch == nullptr) return fail(SG_USAGE, "batch is NULL");
    testing::JudgeOptions o;
    if (!read_options(options, *batch, &o)) return SG_USAGE;
    Status status;
    TensorReader reader(&status);
    Values read;
    if (!read_values(values, count, reader, &read)) return SG_USAGE;
    if (status.ok()) status = testing::judge(batch->step.batch(), read.read, o);
    return hand_out_verdict(status, report);
  });
}
