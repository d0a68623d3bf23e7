#include "check/traces/trace_names.h"

#include <algorithm>

#include "core/nearest.h"

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

/// Words that engines have for one thing, with a blank on either side.
struct Synonyms {
  std::string_view words;

  bool has(std::string_view name) const {
    return words.find(' ' + std::string(name) + ' ') != std::string_view::npos;
  }
};
constexpr Synonyms kSynonyms[] = {
#define SG_SYNONYMS(words) {" " words " "},
#include "check/traces/trace_names.inc"
#undef SG_SYNONYMS
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

std::vector<std::string> names_of_fields(const BackendInfo& backend, const Meta* meta) {
  std::vector<std::string> names;
  for (const BufferInfo& field : backend.buffers) {
    if (field.shape == FieldShape::kNone) continue;
    // A scalar has no buffer, but may be of one.
    const int buffer = field.shape == FieldShape::kScalar ? field.lens : field.buffer;
    const bool is_bound = buffer < 0 || (meta != nullptr && meta->has(static_cast<size_t>(buffer)));
    if (meta != nullptr && (field.rule == FieldRule::kDead || !is_bound)) continue;
    if (std::ranges::find(names, field.recorded) == names.end()) names.emplace_back(field.recorded);
  }
  return names;
}

std::string meant_by(std::string_view name, const std::vector<std::string>& names) {
  const std::string_view own = name.substr(name.rfind('.') + 1);  // of a plan's argument too
  const auto* const same =
      std::ranges::find_if(kSynonyms, [&](const Synonyms& s) { return s.has(own); });
  std::string hint;
  const auto add = [&](const std::string& other, const std::string& prefix) {
    if (same->has(std::string_view(other).substr(other.rfind('.') + 1)) && other != name)
      hint += (hint.empty() ? "; did you mean " : " or ") + prefix + other;
  };
  if (same != std::end(kSynonyms)) {
    for (const std::string& other : names) add(other, "");
    if (hint.empty())
      for (const TraceKey& key : kTraceKeys) {
        if (key.of == "input" && !key.what.starts_with("not read"))
          add(std::string(key.name), "input.");
      }
  }
  return hint.empty() ? did_you_mean(name, names) : hint + '?';
}

std::string laws_of(const BufferInfo& field) {
  if (field.rule == FieldRule::kDead) return "";
  const bool exact = field.rule == FieldRule::kExact || field.rule == FieldRule::kConstant;
  std::string laws;
  switch (field.shape) {
    case FieldShape::kNone: return "";
    case FieldShape::kRows:
      laws =
          field.role == Role::kQueryLens ? "len.q_extent len.padding" : "len.kv_extent len.padding";
      if (field.of_last_page) laws += " len.last_page";
      break;
    case FieldShape::kSlots: laws = "slot.write"; break;
    case FieldShape::kIndptr: laws = "len.q_extent len.indptr_first len.indptr_monotone"; break;
    case FieldShape::kEnds: laws = "len.q_extent len.indptr_monotone"; break;
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
  const bool offsets = field.shape == FieldShape::kIndptr || field.shape == FieldShape::kEnds;
  if (offsets && field.of_queries) laws += " len.total";
  if (field.rule == FieldRule::kBaked) laws += " len.baked_q";
  laws += " trace.shape";
  const bool typed = field.shape != FieldShape::kScalar && field.shape != FieldShape::kSlots;
  return laws + (typed && !field.any_integers ? " trace.dtype" : "");
}

}  // namespace shadowgraph
