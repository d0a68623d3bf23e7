// sg_check: the judge of a step in memory.
#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <string>
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
  return it == std::end(kEngines) ? nullptr : it;
}

bool read_options(const sg_judge_options* given, const sg_batch& batch,
                  testing::JudgeOptions* options) {
  const sg_judge_options defaults = SG_JUDGE_INIT;
  sg_judge_options o;
  if (!take("options", given == nullptr ? &defaults : given, &o)) return false;
  options->engine = engine_of(o.engine);
  if (options->engine == nullptr) {
    fail(SG_USAGE, "options.engine is none of sglang, sglang_npu, any");
    return false;
  }
  options->page_size = batch.page_size, options->pool_pages = batch.pool_pages;
  options->max_context_len = o.max_context_len, options->window_left = o.window_left;
  options->pad_kv_lens = {o.pad_kv_least, o.pad_kv_most};
  return true;
}

bool read_values(const sg_role_value* values, size_t count, TensorReader& reader,
                 std::vector<testing::RoleValue>* read) {
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
      value.values = reader.need(name.c_str(), v.values, v.values->ndim == 2 ? 2 : 1);
    else
      value.number = v.number;
    read->push_back(value);
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
    std::vector<testing::RoleValue> read;
    if (!read_values(values, count, reader, &read)) return SG_USAGE;
    if (status.ok()) status = testing::judge(batch->step.batch(), read, o);
    return hand_out_verdict(status, report);
  });
}
