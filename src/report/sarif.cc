// SARIF 2.1.0, as code scanners exchange results: rules are the laws, a result's logical location
// is the element of the metadata, its physical one the line of a trace.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/laws.h"
#include "report/render.h"
#include "report/words.h"

namespace shadowgraph {
namespace {

using Json = nlohmann::ordered_json;

Json text(std::string_view words) { return {{"text", words}}; }

/// A law's; one that is not listed has the finding's own sentence.
Json rule_of(const Finding& example) {
  const Law* law = find_law(example.id);
  const std::string sentence(law != nullptr ? law->sentence : std::string_view(example.title));
  Json rule{{"id", example.id},
            {"shortDescription", text(sentence)},
            {"fullDescription", text(sentence)},
            {"defaultConfiguration",
             {{"level", name_of(law != nullptr ? law->severity : example.severity)}}}};
  const std::string mend(law != nullptr ? law->mend : "");
  rule["help"] = text(mend.empty() ? "`shadowgraph explain " + example.id + "`" : mend);
  if (law != nullptr && !law->refs.empty()) rule["properties"]["refs"] = law->refs;
  return rule;
}

/// A path as a URI: what is no letter of one is %XX.
std::string uri_of(std::string_view path) {
  std::string s = path.starts_with('/') ? "file://" : "";
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~/").find(c) != std::string_view::npos;
    s += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<uint8_t>(c));
  }
  return s;
}

/// "flashattention/decode/replay/page_table[2, 5]"
std::string element_of(const Where& where) {
  std::string s;
  for (const std::string* part : {&where.backend, &where.mode, &where.phase, &where.field}) {
    if (!part->empty()) s += (s.empty() ? "" : "/") + *part;
  }
  return s + where.index();
}

Json location_of(const Finding& f, const Evidence* evidence) {
  Json location = Json::object();
  if (evidence != nullptr && !evidence->path.empty() && evidence->path != "-") {
    Json& physical = location["physicalLocation"];
    physical["artifactLocation"]["uri"] = uri_of(evidence->path);
    if (evidence->line) physical["region"]["startLine"] = *evidence->line;
  }
  if (const std::string element = element_of(f.where); !element.empty()) {
    Json logical{{"fullyQualifiedName", element}, {"kind", "element"}};
    if (!f.where.field.empty()) logical["name"] = f.where.field;
    location["logicalLocations"] = Json::array({std::move(logical)});
  }
  return location;
}

Json result_of(const Finding& f, const Evidence* evidence, size_t rule) {
  Json j{{"ruleId", f.id}, {"ruleIndex", rule}, {"level", name_of(f.severity)}};
  const bool expects = !f.expected.empty();
  std::string message = f.title + '\n' + place_of(f) + (expects ? " is " : ": ") + f.got;
  if (expects) message += ", expected " + f.expected;
  j["message"] = text(message);
  if (Json location = location_of(f, evidence); !location.empty())
    j["locations"] = Json::array({std::move(location)});
  j["partialFingerprints"]["finding/v1"] = f.id + '@' + f.case_id + '@' + element_of(f.where);
  if (!f.waived.empty())
    j["suppressions"] = Json::array({{{"kind", "external"}, {"justification", f.waived}}});
  j["properties"] = {{"case", f.case_id},
                     {"expected", f.expected},
                     {"got", f.got},
                     {"refs", f.refs},
                     {"reproduce", f.reproduce}};
  for (const Explanation& e : f.diagnosis) j["properties"]["diagnosis"].push_back(e.to_string());
  return j;
}

Json notification_of(const PassedOver& p) {
  Json j{{"descriptor", {{"id", p.law}}},
         {"level", p.law.starts_with("skip.") ? "note" : "warning"},
         {"message", text(p.what)}};
  if (p.path != "-") {
    Json location;
    location["physicalLocation"]["artifactLocation"]["uri"] = uri_of(p.path);
    if (p.line) location["physicalLocation"]["region"]["startLine"] = *p.line;
    j["locations"] = Json::array({std::move(location)});
  }
  j["properties"]["count"] = p.count;
  return j;
}

Json invocation_of(const Report& r) {
  Json j{{"executionSuccessful", !r.bad_input && !r.interrupted}, {"exitCode", r.exit_code()}};
  for (const PassedOver& p : r.passed_over)
    j["toolExecutionNotifications"].push_back(notification_of(p));
  for (const std::string& warning : other_warnings(r))
    j["toolExecutionNotifications"].push_back({{"level", "warning"}, {"message", text(warning)}});
  return j;
}

/// The meanings of the ids that notifications have.
Json notifications_of(const Report& r) {
  Json notes = Json::array();
  std::set<std::string> seen;
  for (const PassedOver& p : r.passed_over) {
    if (!seen.insert(p.law).second) continue;
    const Law* law = find_law(p.law);
    notes.push_back(
        {{"id", p.law},
         {"shortDescription", text(law != nullptr ? law->sentence : std::string_view(p.what))}});
  }
  return notes;
}

Json properties_of(const Report& r) {
  Json j{{"verb", r.verb},       {"seed", r.seed},   {"isa", r.isa},          {"arith", r.arith},
         {"threads", r.threads}, {"cases", r.cases}, {"verdict", r.verdict()}};
  if (!r.files.empty()) {
    j["flagged"] = r.flagged_cases();
    j["skipped"] = r.skipped, j["left_out"] = r.left_out;
  }
  if (!r.shard.empty()) j["shard"] = r.shard;
  return j;
}

}  // namespace

std::string render_sarif(const Report& r, const RenderOptions& options) {
  std::vector<std::string> ids;  // of rules
  Json rules = Json::array(), results = Json::array();
  for (const size_t i : findings_in_order(r, options.max_findings)) {
    const Finding& f = r.findings[i];
    const auto rule = static_cast<size_t>(std::ranges::find(ids, f.id) - ids.begin());
    if (rule == ids.size()) {
      ids.push_back(f.id);
      rules.push_back(rule_of(f));
    }
    const auto evidence = r.evidence.find(i);
    results.push_back(
        result_of(f, evidence == r.evidence.end() ? nullptr : &evidence->second, rule));
  }
  Json run;
  run["tool"]["driver"] = {
      {"name", "shadowgraph"}, {"version", r.version}, {"rules", std::move(rules)}};
  if (Json notes = notifications_of(r); !notes.empty())
    run["tool"]["driver"]["notifications"] = std::move(notes);
  run["automationDetails"]["id"] = "shadowgraph/" + r.verb + '/';
  run["invocations"] = Json::array({invocation_of(r)});
  run["results"] = std::move(results);
  run["properties"] = properties_of(r);
  const Json document{{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
                      {"version", "2.1.0"},
                      {"runs", Json::array({std::move(run)})}};
  return document.dump(2, ' ', true, Json::error_handler_t::replace) + '\n';
}

}  // namespace shadowgraph
