#include "check/traces/trace_roles.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "check/traces/trace_batch.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

/// What stands for the offsets of an engine that has ends instead.
std::string ends_of(const std::string& role) {
  if (role == "cu_seqlens_q") return "q_ends";
  return role == "cu_seqlens_k" ? "kv_ends" : role;
}

class Renaming {
 public:
  Renaming(const TraceLine& line, const BackendInfo& backend)
      : is_laws_(backend.name == "laws"), named_{.line = line, .own = {}, .refused = {}} {
    named_.line.expect.clear();
    named_.line.null_fields.clear();
    ends_ = is_laws_ && engine_of(line, backend).inclusive_ends;
  }

  NamedLine run(const TraceLine& line) {
    for (const auto& [name, field] : line.expect) add(role_of(line, name), name, field);
    for (const std::string& name : line.null_fields) {
      named_.line.null_fields.push_back(role_of(line, name));
      note(named_.line.null_fields.back(), name);
    }
    for (const auto& [name, role] : line.roles) {
      const bool is_null = std::ranges::find(line.null_fields, name) != line.null_fields.end();
      if (!line.expect.contains(name) && !is_null)
        refuse(name, "a name of expect", "no such field");
    }
    return std::move(named_);
  }

 private:
  std::string role_of(const TraceLine& line, const std::string& name) const {
    const auto said = line.roles.find(name);
    const std::string& role = said == line.roles.end() ? name : said->second;
    return ends_ ? ends_of(role) : role;
  }

  void add(const std::string& role, const std::string& name, const RecordedField& field) {
    const bool is_input = is_laws_ && (role == "out_cache_loc" || role == "positions") &&
                          !named_.line.input.contains(role);
    RecordedFields& to = is_input ? named_.line.input : named_.line.expect;
    if (to.emplace(role, field).second)
      note(role, name);
    else
      refuse(name, "a role that no other field has", role);
  }

  void note(const std::string& role, const std::string& name) {
    if (role != name) named_.own.emplace(role, name);
  }

  void refuse(const std::string& name, std::string expected, std::string got) {
    named_.refused.add(
        make_finding("io.line", at("roles." + name), std::move(expected), std::move(got)));
  }

  const bool is_laws_;
  bool ends_ = false;
  NamedLine named_;
};

}  // namespace

NamedLine name_fields(const TraceLine& line, const BackendInfo& backend) {
  return Renaming(line, backend).run(line);
}

void NamedLine::tell_own_names(TraceVerdict* verdict) const {
  const auto rename = [&](std::string& text, size_t size) {
    for (const std::string_view part : {"", "expect.", "input."}) {
      const std::string_view name = std::string_view(text).substr(0, size);
      if (!name.starts_with(part)) continue;
      const auto it = own.find(name.substr(part.size()));
      if (it == own.end()) continue;
      text.replace(0, size, it->second);
      return;
    }
  };
  for (Finding& f : verdict->findings.findings()) rename(f.where.field, f.where.field.size());
  for (LeftOut& left : verdict->left_out)
    rename(left.words, std::min(left.words.find(':'), left.words.size()));
}

}  // namespace shadowgraph
