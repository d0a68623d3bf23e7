#include "campaign/campaign_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "io/file.h"
#include "report/json_members.h"

namespace shadowgraph {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "shadowgraph.ledger/1";
constexpr size_t kNoteLength = 160;

/// The values by which two campaigns are compared.
std::map<std::string, std::string> words_of(const Campaign& c) {
  std::map<std::string, std::string> words(c.options.begin(), c.options.end());
  words["cases"] = std::to_string(c.cases), words["range"] = std::to_string(c.range);
  words["max_findings"] = std::to_string(c.most_of_a_law);
  words["stale_seconds"] = fmt::format("{}", c.stale_seconds);
  words["case_seconds"] = fmt::format("{}", c.case_seconds);
  return words;
}

/// The place at which a long text is cut so that its difference from another one is seen.
size_t seen_from(const std::string& a, const std::string& b) {
  constexpr size_t kBefore = 40, kShort = 100;
  const auto in_a = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  const auto same = static_cast<size_t>(in_a - a.begin());
  return same > kShort ? same - kBefore : 0;
}
std::string shown(const std::string& text, size_t from) {
  if (text.empty()) return "none";
  return (from > 0 ? "..." : "") + printable(std::string_view(text).substr(from));
}

void check_values(JsonMembers& m, const std::string& schema, const Campaign& c) {
  if (schema != kSchema) m.fail("schema", kSchema, schema);
  if (c.range == 0) m.fail("range", "1 or more", "0");
  if (!(c.stale_seconds > 0))
    m.fail("stale_seconds", "more than 0", fmt::format("{}", c.stale_seconds));
  if (!(c.case_seconds > 0))
    m.fail("case_seconds", "more than 0", fmt::format("{}", c.case_seconds));
  for (const std::string& path : c.corpus) {
    const bool inside = std::ranges::count(path, '/') == 1 && !path.starts_with('.') &&
                        path.find("/.") == std::string::npos;
    if (!inside) m.fail("corpus", "LAW/NAME.json", printable(path));
  }
}

void read(JsonMembers& m, Campaign* c) {
  std::string schema;
  uint64_t most = 0;
  m.need("schema", &schema);
  m.inside("options", [&](JsonMembers& options) {
    options.others([&](const std::string& key, const JsonValue& value) {
      std::string text;
      if (!from_json(value, &text)) options.fail(key, "a string", value.describe());
      c->options.emplace_back(key, text);
    });
  });
  m.need("cases", &c->cases), m.need("range", &c->range), m.need("most_of_a_law", &most);
  m.need("stale_seconds", &c->stale_seconds), m.need("case_seconds", &c->case_seconds);
  m.need("corpus", &c->corpus);
  c->most_of_a_law = most;
  check_values(m, schema, *c);
}

}  // namespace

std::string to_json(const Campaign& c) {
  Json j{{"schema", kSchema}, {"options", Json::object()}};
  for (const auto& [name, value] : c.options) j["options"][name] = value;
  j["cases"] = c.cases, j["range"] = c.range, j["most_of_a_law"] = c.most_of_a_law;
  j["stale_seconds"] = c.stale_seconds, j["case_seconds"] = c.case_seconds;
  j["corpus"] = c.corpus;
  return j.dump(2, ' ', true, Json::error_handler_t::replace) + '\n';
}

Status parse_campaign(std::string_view text, const std::string& name, Campaign* campaign) {
  JsonDocument document;
  Campaign read_one;
  Status status = parse_strict_json(text, "io.ledger", name, 0, &document);
  if (status.ok()) {
    JsonMembers members(document.root, "", name, &status);
    read(members, &read_one);
  }
  if (status.ok()) {
    *campaign = std::move(read_one);
    return status;
  }
  Status mine;  // under the ledger's own law
  for (const Finding& f : std::as_const(status).findings())
    mine.add(file_finding("io.ledger", name, f.where.field, f.expected, f.got));
  return mine;
}

Status compare(const Campaign& ledger, const Campaign& worker, const std::string& name) {
  const std::map<std::string, std::string> theirs = words_of(ledger), mine = words_of(worker);
  std::set<std::string> keys;
  for (const auto& [key, value] : theirs) keys.insert(key);
  for (const auto& [key, value] : mine) keys.insert(key);
  const auto value_of = [](const std::map<std::string, std::string>& words,
                           const std::string& key) {
    const auto it = words.find(key);
    return it == words.end() ? "" : it->second;
  };
  Status status;
  for (const std::string& key : keys) {
    const std::string expected = value_of(theirs, key), got = value_of(mine, key);
    if (expected == got) continue;
    const size_t from = seen_from(expected, got);
    status.add(file_finding("io.ledger", name, key,
                            shown(expected, from) + ", as this ledger's campaign has it",
                            shown(got, from)));
  }
  return status;
}

std::string to_json(const ClaimNote& note) {
  std::string line = Json{{"worker", note.worker}, {"at", note.at}, {"alone", note.alone}}.dump(
      -1, ' ', true, Json::error_handler_t::replace);
  line.resize(std::max(line.size(), kNoteLength), ' ');
  return line;
}

std::vector<ClaimNote> parse_notes(std::string_view lines) {
  std::vector<ClaimNote> notes;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    JsonDocument document;
    Status status = parse_strict_json(line, "io.ledger", "", 0, &document);
    ClaimNote note;
    if (status.ok()) {
      JsonMembers m(document.root, "", note.worker, &status);
      std::string worker;
      m.need("worker", &worker), m.need("at", &note.at), m.need("alone", &note.alone);
      note.worker = worker;
    }
    if (status.ok()) notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace shadowgraph
