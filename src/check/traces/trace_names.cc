#include "check/traces/trace_names.h"

#include <algorithm>

namespace shadowgraph {
namespace {

constexpr std::string_view kForeignBackends[] = {
#define SG_FOREIGN_BACKEND(name) #name,
#include "check/traces/trace_names.inc"
#undef SG_FOREIGN_BACKEND
};

constexpr std::string_view kForeignFields[] = {
#define SG_FOREIGN_FIELD(name) #name,
#include "check/traces/trace_names.inc"
#undef SG_FOREIGN_FIELD
};

bool has(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

const TraceMode* find_trace_mode(std::string_view name) {
  const auto* const it = std::ranges::find(kTraceModes, name, &TraceMode::name);
  return it == std::end(kTraceModes) ? nullptr : it;
}

std::vector<std::string> names_of_keys(std::string_view of) {
  std::vector<std::string> names;
  for (const TraceKey& key : kTraceKeys) {
    if (key.of == of) names.emplace_back(key.name);
  }
  return names;
}

bool is_trace_key(std::string_view of, std::string_view name) {
  return std::ranges::any_of(kTraceKeys,
                             [&](const TraceKey& key) { return key.of == of && key.name == name; });
}

bool is_foreign_backend(std::string_view name) { return has(kForeignBackends, name); }

bool is_field_of_any(std::string_view name) {
  const auto records = [&](const Backend* backend) { return has_field(backend->info(), name); };
  return has(kForeignFields, name) || std::ranges::any_of(all_backends(), records);
}

bool has_field(const BackendInfo& backend, std::string_view name) {
  return std::ranges::any_of(backend.buffers,
                             [&](const BufferInfo& field) { return field.records(name); });
}

std::vector<std::string> names_of_fields(const BackendInfo& backend) {
  std::vector<std::string> names;
  for (const BufferInfo& field : backend.buffers) {
    if (field.shape == FieldShape::kNone) continue;
    if (std::ranges::find(names, field.recorded) == names.end()) names.emplace_back(field.recorded);
  }
  return names;
}

std::string laws_of(const BufferInfo& field) {
  if (field.rule == FieldRule::kDead) return "";
  const bool exact = field.rule == FieldRule::kExact || field.rule == FieldRule::kConstant;
  std::string laws;
  switch (field.shape) {
    case FieldShape::kNone: return "";
    case FieldShape::kRows:
      laws = field.of_last_page ? "len.kv_extent len.padding len.last_page"
                                : "len.kv_extent len.padding";
      break;
    case FieldShape::kSlots: laws = "slot.write"; break;
    case FieldShape::kIndptr: laws = "len.q_extent len.indptr_first len.indptr_monotone"; break;
    case FieldShape::kTable:
    case FieldShape::kList: laws = "table.slot table.unit table.capacity table.page_id"; break;
    case FieldShape::kMask: laws = "mask.bit mask.size"; break;
    case FieldShape::kSteps: laws = "plan.argument"; break;
    case FieldShape::kSizes: return "trace.shape";
    case FieldShape::kScalar:
      laws = field.unsaid                         ? "mask.window"
             : field.rule == FieldRule::kConstant ? "plan.argument"
             : exact                              ? "len.kv_extent"
                                                  : "len.bound";
      break;
  }
  if (field.shape == FieldShape::kIndptr && field.of_queries) laws += " len.total";
  if (field.rule == FieldRule::kBaked) laws += " len.baked_q";
  laws += " trace.shape";
  const bool typed = field.shape != FieldShape::kScalar && field.shape != FieldShape::kSlots;
  return laws + (typed && !field.any_integers ? " trace.dtype" : "");
}

}  // namespace shadowgraph
