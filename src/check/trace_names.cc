#include "check/trace_names.h"

#include <algorithm>

namespace shadowgraph {
namespace {

constexpr std::string_view kForeignBackends[] = {
#define SG_FOREIGN_BACKEND(name) #name,
#include "check/trace_names.inc"
#undef SG_FOREIGN_BACKEND
};

constexpr std::string_view kForeignFields[] = {
#define SG_FOREIGN_FIELD(name) #name,
#include "check/trace_names.inc"
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
  const auto records = [&](const Backend* backend) {
    return std::ranges::find(backend->info().fields, name, &Field::recorded) !=
           backend->info().fields.end();
  };
  return has(kForeignFields, name) || std::ranges::any_of(all_backends(), records);
}

std::vector<std::string> names_of_fields(const BackendInfo& backend) {
  std::vector<std::string> names;
  for (const Field& field : backend.fields) {
    if (std::ranges::find(names, field.recorded) == names.end()) names.emplace_back(field.recorded);
  }
  return names;
}

std::string_view laws_of(const Field& field) {
  if (field.rule == FieldRule::kDead) return "";
  switch (field.shape) {
    case FieldShape::kRows: return "len.kv_extent len.padding slot.write trace.shape";
    case FieldShape::kIndptr:
      return "len.q_extent len.indptr_first len.indptr_monotone trace.shape";
    case FieldShape::kTable:
      return "table.slot table.unit table.capacity table.page_id trace.shape";
    case FieldShape::kScalar: break;
  }
  if (field.rule == FieldRule::kBaked) return "len.bound len.baked_q";
  return field.rule == FieldRule::kAtLeast ? "len.bound" : "len.kv_extent";
}

}  // namespace shadowgraph
