#include "io/recorded/recorded_cases.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "core/nearest.h"
#include "io/file.h"
#include "io/recorded/attention_fields.h"
#include "io/recorded/same_rows.h"

namespace shadowgraph {
namespace {

struct RecordedKind {
  std::string_view system, kind, kernel;
  void (*read)(CaseReader&, RecordedCase*);
};
constexpr RecordedKind kKinds[] = {
#define SG_RECORDED_KIND(system, kind, kernel, reader) {system, kind, kernel, reader},
#include "io/recorded/recorded_kinds.inc"
#undef SG_RECORDED_KIND
};

/// Attention's is its kernel's family.
std::string_view form_of(const RecordedKind& line) {
  return line.system.empty() ? line.kernel.substr(0, line.kernel.find('_')) : line.system;
}

bool is_kind(const RecordedKind& line, std::string_view kind) {
  if (!kind.starts_with(line.kind)) return false;
  if (kind.size() == line.kind.size() || line.kind.ends_with('_')) return true;
  return !line.system.empty() && kind[line.kind.size()] == '_';
}

const RecordedKind* find_kind(std::string_view system, std::string_view kind) {
  const auto* line = std::ranges::find_if(
      kKinds, [&](const RecordedKind& k) { return k.system == system && is_kind(k, kind); });
  return line == std::end(kKinds) ? nullptr : line;
}

/// The line of a form of attention that the case names; null if it has no such kind.
const RecordedKind* find_form(CaseReader& reader, std::string_view kind) {
  const std::string form = reader.text("form");
  std::vector<std::string> forms;
  const RecordedKind* found = nullptr;
  for (const RecordedKind& line : kKinds) {
    if (!line.system.empty()) continue;
    forms.emplace_back(form_of(line));
    const bool fits = line.kind.starts_with('(') || is_kind(line, kind);
    if (found == nullptr && forms.back() == form && fits) found = &line;
  }
  if (reader.ok() && std::ranges::count(forms, form) == 0)
    reader.bad_field("form", "fa2, fa3, flashmla or flashinfer" + did_you_mean(form, forms),
                     '"' + printable(form) + '"');
  return found;
}

/// Null: no reader knows the case. Sets the names that it gives itself.
const RecordedKind* recognise(CaseReader& reader, bool systems, RecordedCase* c) {
  if (systems) c->system = reader.text("system");
  const bool by_mode = !systems && !reader.has("kind");  // FlashAttention-2's is only a name
  if (!by_mode || reader.has("mode")) c->kind = reader.text(by_mode ? "mode" : "kind");
  if (systems) return c->system.empty() ? nullptr : find_kind(c->system, c->kind);
  if (reader.has("form")) return find_form(reader, c->kind);
  if (by_mode && (reader.has_tensor("k_cache") || reader.has_tensor("page_table")))
    return find_kind("", "(fa2)");
  if (reader.has("q_layout")) return find_kind("", "(fa3)");
  return by_mode || c->kind.starts_with('(') ? nullptr : find_kind("", c->kind);
}

/// The names that `kind` may have: of the case's system or form, if it names one.
std::string kinds_of(const JsonValue& members) {
  const auto text = [&](const char* name) {
    const JsonValue* v = members.find(name);
    const auto* s = v == nullptr ? nullptr : v->as<std::string>();
    return s == nullptr ? std::string() : *s;
  };
  const std::string system = text("system"), form = text("form");
  std::string kinds;
  for (const RecordedKind& line : kKinds) {
    const bool fits = line.system == system && (form.empty() || form_of(line) == form);
    if (fits && !line.kind.starts_with('('))
      kinds += (kinds.empty() ? "" : ", ") + std::string(line.kind);
  }
  return "a kind of call: " + kinds;
}

bool any_system(const SafetensorsFile& file) {
  bool found = false;
  for (const auto& [id, text] : file.metadata) {
    JsonDocument document;
    if (!parse_strict_json(text, "vector.case", id, 0, &document).ok()) continue;
    const JsonValue* system = document.root.find("system");
    const auto* name = system == nullptr ? nullptr : system->as<std::string>();
    found |= name != nullptr && !name->empty() &&
             std::ranges::find(kKinds, *name, &RecordedKind::system) != std::end(kKinds);
  }
  return found;
}

Status read_case(const SafetensorsFile& file, const std::string& file_name, bool systems,
                 const std::string& id, std::vector<RecordedCase>* cases,
                 std::vector<SkippedCase>* skipped) {
  Status status;
  const std::string case_name = file_name + '#' + id;
  const auto metadata = file.metadata.find(id);
  if (metadata == file.metadata.end()) {
    status.add(file_finding("vector.case", case_name, "__metadata__", "a JSON string for this case",
                            "missing"));
    return status;
  }
  JsonDocument document;
  status = parse_strict_json(metadata->second, "vector.case", case_name, 0, &document);
  if (!status.ok()) return status;
  CaseReader reader(file, file_name, id, document.root);
  RecordedCase c;
  const RecordedKind* kind = recognise(reader, systems, &c);
  if (!reader.ok()) return reader.take_status();
  if (kind == nullptr && c.kind.empty()) {
    reader.bad_field("kind", kinds_of(document.root), "missing");
    return reader.take_status();
  }
  if (kind == nullptr) {
    const std::string name = systems ? c.system + ' ' + c.kind : c.kind;
    skipped->push_back({id, printable(name), "kind not known yet"});
    return status;
  }
  c.id = id;
  c.recorded.emplace_back().kernel = kind->kernel;
  kind->read(reader, &c);
  if (std::holds_alternative<AttentionCalls>(c.call)) read_promises(reader, &c);
  reader.check_all_read(form_of(*kind), c.kind);
  if (!reader.ok()) return reader.take_status();
  c.storage = reader.take_storage();
  cases->push_back(std::move(c));
  return status;
}

}  // namespace

std::set<std::string> case_ids(const SafetensorsFile& file) {
  std::set<std::string> ids, strays;
  const auto add = [&](const std::string& name) {
    const bool stray = name.find('/') == std::string::npos;
    (stray ? strays : ids).emplace(case_of(file, name));
  };
  for (const auto& [name, view] : file.tensors) add(name);
  for (const SkippedTensor& tensor : file.skipped) add(tensor.name);
  for (const auto& [key, value] : file.metadata) {
    if (key.starts_with("case") || value.starts_with("{")) ids.insert(key);
  }
  if (!ids.empty()) ids.merge(strays);
  return ids;
}

bool names_systems(const SafetensorsFile& file) {
  bool found = false;
  // Out of memory: whoever reads the cases says so.
  (void)with_memory_findings("", [&] {
    found = any_system(file);
    return Status();
  });
  return found;
}

Status parse_recorded_cases(const SafetensorsFile& file, const std::string& name,
                            std::vector<RecordedCase>* cases, std::vector<SkippedCase>* skipped) {
  return with_memory_findings(name, [&] {
    Status status;
    std::vector<RecordedCase> read;
    std::vector<SkippedCase> left_out;
    const std::set<std::string> ids = case_ids(file);
    if (ids.empty()) status.add(file_finding("io.kind", name, "file", "at least one case", "none"));
    const bool systems = any_system(file);
    for (const std::string& id : ids)
      status.add(read_case(file, name, systems, id, &read, &left_out));
    status.add(find_same_rows(name, &read));
    cases->reserve(cases->size() + read.size());  // whatever can fail, first
    skipped->reserve(skipped->size() + left_out.size());
    std::move(read.begin(), read.end(), std::back_inserter(*cases));
    std::move(left_out.begin(), left_out.end(), std::back_inserter(*skipped));
    return status;
  });
}

Status read_recorded_cases(const std::string& path, std::vector<RecordedCase>* cases,
                           std::vector<SkippedCase>* skipped) {
  SafetensorsFile file;
  Status status = read_safetensors(path, &file);
  if (!status.ok()) return status;
  return parse_recorded_cases(file, path, cases, skipped);
}

}  // namespace shadowgraph
