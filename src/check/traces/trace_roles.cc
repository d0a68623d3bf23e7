#include "check/traces/trace_roles.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "check/traces/trace_batch.h"
#include "check/traces/trace_names.h"
#include "core/laws.h"
#include "core/nearest.h"

namespace shadowgraph {
namespace {

/// The role of inclusive ends, in place of the role of offsets.
std::string ends_of(const std::string& role) {
  if (role == "cu_seqlens_q") return "q_ends";
  return role == "cu_seqlens_k" ? "kv_ends" : role;
}

class Renaming {
 public:
  Renaming(TraceLine&& line, const BackendInfo& backend)
      : backend_(backend),
        is_laws_(backend.name == "laws"),
        ends_(is_laws_ && engine_of(line, backend).inclusive_ends),
        has_slots_(line.input.contains("out_cache_loc")),
        fields_(std::exchange(line.expect, {})),
        nulls_(std::exchange(line.null_fields, {})),
        named_{.line = std::move(line)} {}

  NamedLine run() {
    for (auto& [name, field] : fields_) add(role_of(name), name, std::move(field));
    for (const std::string& name : nulls_) {
      const std::string role = role_of(name);
      if (named_.line.expect.contains(role) ||
          std::ranges::find(named_.line.null_fields, role) != named_.line.null_fields.end()) {
        named_.other_nulls.push_back(name);
        continue;
      }
      named_.line.null_fields.push_back(role);
      note(role, name);
    }
    for (const auto& [name, role] : named_.line.roles) {
      if (!is_input(role) && !has_field(backend_, role))
        refuse(name,
               is_laws_ ? one_of(names_of_fields(backend_))
                        : "a name of `list fields " + std::string(backend_.name) + "`",
               role + meant_by(role, names_of_fields(backend_)));
    }
    return std::move(named_);
  }

 private:
  std::string role_of(const std::string& name) const {
    const auto said = named_.line.roles.find(name);
    const std::string& role = said == named_.line.roles.end() ? name : said->second;
    return ends_ ? ends_of(role) : role;
  }

  /// Backend `laws` takes a field of this role for the batch's own.
  bool is_input(std::string_view role) const {
    return is_laws_ && (role == "out_cache_loc" || role == "positions");
  }

  void add(const std::string& role, const std::string& name, RecordedField&& field) {
    const bool moves = is_input(role) && !named_.line.input.contains(role);
    // Slots that the batch has, too, are held against it; all else is judged once more.
    const bool held = role == "out_cache_loc" && has_slots_;
    const bool twice = is_input(role) && !moves && !held;
    named_.judges_input = named_.judges_input || moves || twice;
    if (moves) named_.moved.insert(role);
    RecordedFields& to = moves ? named_.line.input : named_.line.expect;
    if (!twice && to.try_emplace(role, std::move(field)).second)
      note(role, name);
    else
      named_.again.push_back({role, name, std::move(field)});
  }

  void note(const std::string& role, const std::string& name) {
    if (role != name) named_.own.emplace(role, name);
  }

  void refuse(const std::string& name, std::string expected, std::string got) {
    named_.refused.add(
        make_finding("io.line", at("roles." + name), std::move(expected), std::move(got)));
  }

  const BackendInfo& backend_;
  const bool is_laws_;
  const bool ends_, has_slots_;
  RecordedFields fields_;
  const std::vector<std::string> nulls_;
  NamedLine named_;
};

}  // namespace

NamedLine name_fields(TraceLine&& line, const BackendInfo& backend) {
  return Renaming(std::move(line), backend).run();
}

TraceLine NamedLine::with(const Again& other) const {
  TraceLine changed = line;
  const bool is_input = changed.input.contains(other.role) && !changed.expect.contains(other.role);
  (is_input ? changed.input : changed.expect)[other.role] = other.field;
  return changed;
}

void NamedLine::tell_own_names(TraceVerdict* verdict) const {
  const auto rename = [&](std::string* name) {
    for (const std::string_view part : {"", "expect.", "input."}) {
      if (!name->starts_with(part)) continue;
      if (part == "input." && !moved.contains(name->substr(part.size()))) continue;
      const auto it = own.find(name->substr(part.size()));
      if (it == own.end()) continue;
      *name = it->second;
      return;
    }
  };
  for (Finding& f : verdict->findings.findings()) rename(&f.where.field);
  for (LeftOut& left : verdict->left_out) rename(&left.name);
  for (LeftOut& unread : verdict->unread) rename(&unread.name);
  for (const std::string& name : other_nulls)
    verdict->left_out.push_back({LawId("left_out.null").law().id, name, "null"});
}

}  // namespace shadowgraph
