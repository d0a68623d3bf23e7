#include "io/linear_vectors.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "io/linear_case.h"

namespace shadowgraph {
namespace {

/// A system may have several lines: its kinds are those of all its tables, asked in turn.
struct LinearSystem {
  std::string_view name;
  std::span<const LinearKind> (*kinds)();
};

constexpr LinearSystem kSystems[] = {
    {"gdn", gdn_kinds},          {"kda", kda_kinds},
    {"conv", conv_kinds},        {"mamba2", mamba2_kinds},
    {"dsa", indexer_kinds},      {"lightning", lightning_kinds},
    {"dsv4", compress_kinds},    {"dsa", dsa_sparse_kinds},
    {"dsv4", dsv4_sparse_kinds}, {"dualchunk", dualchunk_kinds},
};

bool is_system(std::string_view name) {
  return std::any_of(std::begin(kSystems), std::end(kSystems),
                     [&](const LinearSystem& s) { return s.name == name; });
}

bool is_kind(const LinearKind& line, std::string_view kind) {
  return kind.starts_with(line.name) &&
         (kind.size() == line.name.size() || kind[line.name.size()] == '_');
}

void (*find_kind(std::string_view system, std::string_view kind))(CaseReader&, LinearVector*) {
  for (const LinearSystem& known : kSystems) {
    if (known.name != system) continue;
    for (const LinearKind& line : known.kinds())
      if (is_kind(line, kind)) return line.read;
  }
  return nullptr;
}

void read_known(CaseReader& reader, LinearVector* vector) {
  vector->system = reader.text("system");
  vector->kind = reader.text("kind");
  find_kind(vector->system, vector->kind)(reader, vector);
}

/// name: "SYSTEM KIND", since systems have kinds of the same name.
void (*recognise(CaseReader& reader, std::string* name))(CaseReader&, LinearVector*) {
  const std::string system = reader.text("system"), kind = reader.text("kind");
  *name = system + ' ' + kind;
  return find_kind(system, kind) == nullptr ? nullptr : read_known;
}

}  // namespace

bool holds_linear_cases(const SafetensorsFile& file) {
  bool found = false;
  // Out of memory: whoever reads the file next says so.
  (void)with_memory_findings("", [&] {
    for (const auto& [id, text] : file.metadata) {
      JsonDocument document;
      if (!parse_strict_json(text, "vector.case", id, 0, &document).ok()) continue;
      const JsonValue* system = document.root.find("system");
      const auto* name = system == nullptr ? nullptr : system->as<std::string>();
      found |= name != nullptr && is_system(*name);
    }
    return Status();
  });
  return found;
}

Status parse_linear_vectors(const SafetensorsFile& file, const std::string& name,
                            std::vector<LinearVector>* cases, std::vector<SkippedCase>* skipped) {
  return read_cases<LinearVector>(file, name, recognise, cases, skipped);
}

Status read_linear_vectors(const std::string& path, std::vector<LinearVector>* cases,
                           std::vector<SkippedCase>* skipped) {
  SafetensorsFile file;
  Status status = read_safetensors(path, &file);
  if (!status.ok()) return status;
  return parse_linear_vectors(file, path, cases, skipped);
}

}  // namespace shadowgraph
