#include "conformance/records.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "conformance/json_values.h"
#include "io/file.h"

namespace shadowgraph {
namespace {

constexpr int kMaxDepth = 6;          // of nested containers; a record has five
constexpr size_t kMaxNodes = 1000;    // of one graph
constexpr int32_t kMaxPort = 1 << 8;  // ports and types of edges are bytes

std::map<std::string, int32_t> count_types(const GraphDump& dump) {
  std::map<std::string, int32_t> counts;
  for (const std::string& node : dump.order) ++counts[node.substr(0, node.find(':'))];
  return counts;
}

/// Reads one line; everything that is wrong with it becomes a finding.
class LineReader {
 public:
  LineReader(std::string place, Status* status) : place_(std::move(place)), status_(status) {}

  bool ok() const { return ok_; }

  Json parse(std::string_view line) {
    std::vector<std::set<std::string>> keys;
    // The parser would skip a byte order mark, take NUL for the end, and let the last key win.
    if (line.empty() || line.front() != '{' || line.find('\0') != std::string_view::npos) {
      wrong("vector.case", "line", "a JSON object", std::string(line.substr(0, 20)));
      return Json::object();
    }
    const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
      if (event == Json::parse_event_t::object_start) keys.emplace_back();
      if (event == Json::parse_event_t::object_end) keys.pop_back();
      if (event == Json::parse_event_t::key &&
          !keys.back().insert(parsed.get<std::string>()).second) {
        wrong("io.key", parsed, "a key that occurs once", "a second one");
      }
      if (depth < kMaxDepth) return true;
      if (ok_)
        wrong("vector.case", "line", "at most " + std::to_string(kMaxDepth) + " levels", "more");
      return false;
    };
    Json json = Json::parse(line, watch, /*allow_exceptions=*/false);
    if (json.is_discarded()) wrong("vector.case", "line", "valid JSON", "something else");
    return ok_ ? json : Json::object();
  }

  RecordedProgram read(const Json& json) {
    RecordedProgram c;
    Record& r = c.record;
    only(json, "record",
         {"id", "class", "undefined", "title", "variant", "steps", "capture_status", "nodes",
          "edges", "graphs", "buffers", "facts", "host_calls", "timeout", "exit", "complete",
          "note"});
    need(json, "", "id", "text", &r.id);
    need(json, "", "class", "E, S or U", &c.verdict);
    need(json, "", "variant", "text", &r.variant);
    if (json.contains("title")) need(json, "", "title", "text", &c.title);
    each(json, "steps", [&](const Json& step, const std::string& field) {
      read_step(step, field, &r.steps.emplace_back());
    });
    need(json, "", "capture_status", "a list of texts", &r.capture_status);
    each(json, "graphs", [&](const Json& graph, const std::string& field) {
      read_graph(graph, field, &r.graphs.emplace_back());
    });
    read_buffers(json, &r);
    need(json, "", "facts", "an object of booleans, integers and texts", &r.facts);
    need(json, "", "host_calls", "an integer", &r.host_calls);
    need(json, "", "complete", "a boolean", &r.complete);
    return c;
  }

  void wrong(LawId law, const std::string& field, std::string expected, const std::string& got) {
    ok_ = false;
    status_->add(file_finding(law, place_, printable(field), std::move(expected), printable(got)));
  }

 private:
  template <class T>
  bool need(const Json& object, const std::string& in, const char* key, const char* expected,
            T* out) {
    const auto it = object.find(key);
    if (it != object.end() && convert(*it, out)) return true;
    const std::string got = it == object.end() ? "nothing" : text_of(*it);
    wrong("vector.case", in.empty() ? key : in + '.' + key, expected, got);
    return false;
  }

  /// Refuses what it would not compare.
  void only(const Json& object, const std::string& field,
            std::initializer_list<std::string_view> known) {
    if (!object.is_object()) return wrong("vector.case", field, "an object", text_of(object));
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      wrong("vector.case", field, "fields that are known", key);
    }
  }

  template <class Read>
  void each(const Json& json, const std::string& key, const Read& read_item) {
    const auto it = json.find(key);
    if (it == json.end() || !it->is_array()) {
      return wrong("vector.case", key, "a list", it == json.end() ? "nothing" : text_of(*it));
    }
    for (size_t i = 0; i < it->size(); ++i) {
      const std::string field = key + '[' + std::to_string(i) + ']';
      if ((*it)[i].is_object()) {
        read_item((*it)[i], field);
      } else {
        wrong("vector.case", field, "an object", text_of((*it)[i]));
      }
    }
  }

  void read_step(const Json& json, const std::string& field, RecordedStep* step) {
    only(json, field, {"call", "args", "ret", "name", "out", "thread", "did_not_return"});
    need(json, field, "call", "text", &step->call);
    need(json, field, "ret", "an integer, or null", &step->ret);
    if (json.contains("out")) need(json, field, "out", "text", &step->out);
    if (!json.contains("thread")) return;
    step->thread_b = json["thread"] == "B";
    if (!step->thread_b) wrong("vector.case", field + ".thread", "B", text_of(json["thread"]));
  }

  void read_graph(const Json& json, const std::string& field, GraphDump* dump) {
    only(json, field, {"label", "null", "nodes", "order", "edges", "edge_data"});
    need(json, field, "label", "text", &dump->label);
    need(json, field, "null", "a boolean", &dump->null);
    need(json, field, "order", "a list of texts", &dump->order);
    need(json, field, "edges", "a list of pairs", &dump->edges);
    if (json.contains("edge_data")) {
      need(json, field, "edge_data", "a list of four integers each", &dump->edge_data);
    }
    if (json.contains("nodes")) {
      std::map<std::string, int32_t> nodes;
      need(json, field, "nodes", "an object of integers", &nodes);
      if (nodes != count_types(*dump)) {
        wrong("vector.case", field + ".nodes", "the types in order, counted",
              text_of(json["nodes"]));
      }
    }
    check_graph(*dump, field);
  }

  void check_graph(const GraphDump& dump, const std::string& field) {
    const size_t num_nodes = dump.order.size();
    if (num_nodes > kMaxNodes) {
      wrong("vector.case", field, "at most " + std::to_string(kMaxNodes) + " nodes",
            std::to_string(num_nodes));
    }
    const auto in = [](int32_t i, size_t size) { return i >= 0 && static_cast<size_t>(i) < size; };
    for (const auto& [from, to] : dump.edges) {
      if (in(from, num_nodes) && in(to, num_nodes)) continue;
      wrong("vector.case", field + ".edges", "ordinals below " + std::to_string(num_nodes),
            std::to_string(from) + ", " + std::to_string(to));
    }
    for (const auto& [edge, from_port, to_port, type] : dump.edge_data) {
      const bool bytes = in(from_port, kMaxPort) && in(to_port, kMaxPort) && in(type, kMaxPort);
      if (bytes && in(edge, dump.edges.size())) continue;
      wrong("vector.case", field + ".edge_data", "an edge and three bytes", std::to_string(edge));
    }
  }

  void read_buffers(const Json& json, Record* r) {
    std::map<std::string, int32_t> error;
    const auto it = json.find("buffers");
    if (it == json.end() || !it->is_object()) {
      return wrong("vector.case", "buffers", "an object", "something else");
    }
    for (const auto& [name, values] : it->items()) {
      if (values.is_array() && convert(values, &r->buffers[name])) continue;
      r->buffers.erase(name);
      error.clear();
      if (convert(values, &error) && error.size() == 1 && error.contains("error")) {
        r->buffer_errors[name] = error["error"];
      } else {
        wrong("vector.case", "buffers." + name, "a list of integers, or an error", text_of(values));
      }
    }
  }

  std::string place_;
  Status* status_;
  bool ok_ = true;
};

std::string in_words(const Json& env) {
  std::string words;
  for (const char* key : {"device", "driver", "runtime", "version"}) {
    const auto it = env.find(key);
    if (it == env.end()) continue;
    if (!words.empty()) words += ", " + std::string(key) + ' ';
    words += it->is_string() ? it->get_ref<const std::string&>() : text_of(*it);
  }
  return words;
}

Json to_json(const RecordedStep& step) {
  Json j{{"call", step.call}};
  if (step.ret) {
    j["ret"] = *step.ret;
    j["name"] = name_of(static_cast<DeviceError>(*step.ret));
  } else {
    j["ret"] = nullptr;
    j["did_not_return"] = true;
  }
  if (!step.out.empty()) j["out"] = step.out;
  if (step.thread_b) j["thread"] = "B";
  return j;
}

Json to_json(const GraphDump& dump) {
  Json j{{"label", dump.label},
         {"null", dump.null},
         {"nodes", count_types(dump)},
         {"order", dump.order},
         {"edges", dump.edges}};
  if (!dump.edge_data.empty()) j["edge_data"] = dump.edge_data;
  return j;
}

Json to_json(const RecordedProgram& c) {
  const Record& r = c.record;
  Json j{{"id", r.id}, {"class", name_of(c.verdict)}};
  if (c.verdict == Verdict::kUndefined) j["undefined"] = true;
  j["title"] = c.title;
  j["variant"] = r.variant;
  for (const char* list : {"steps", "capture_status", "graphs"}) j[list] = Json::array();
  for (const char* object : {"buffers", "facts"}) j[object] = Json::object();
  for (const RecordedStep& step : r.steps) j["steps"].push_back(to_json(step));
  for (const std::string& status : r.capture_status) j["capture_status"].push_back(status);
  for (const GraphDump& dump : r.graphs) j["graphs"].push_back(to_json(dump));
  for (const auto& [name, values] : r.buffers) j["buffers"][name] = values;
  for (const auto& [name, error] : r.buffer_errors) j["buffers"][name] = {{"error", error}};
  for (const auto& [name, fact] : r.facts) {
    Json& slot = j["facts"][name];
    std::visit([&](const auto& value) { slot = value; }, fact);
  }
  j["host_calls"] = r.host_calls;
  j["complete"] = r.complete;
  return j;
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kExact: return "E";
    case Verdict::kSet: return "S";
    case Verdict::kUndefined: return "U";
  }
  return "";
}

Status parse_records(std::string_view text, const std::string& path, RecordFile* file) {
  Status status;
  file->path = path;
  std::set<std::pair<std::string, std::string>> seen;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    LineReader reader(path + ':' + std::to_string(number), &status);
    const Json json = reader.parse(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!reader.ok()) continue;
    if (json.contains("id") && json["id"] == "_env") {
      file->recorded_on = in_words(json);
      continue;
    }
    RecordedProgram c = reader.read(json);
    if (reader.ok() && !seen.emplace(c.record.id, c.record.variant).second) {
      reader.wrong("io.key", "variant", "a record that occurs once",
                   "a second one of " + c.record.id + ' ' + c.record.variant);
    }
    if (reader.ok()) file->cases.push_back(std::move(c));
  }
  return status;
}

Status read_records(const std::string& path, RecordFile* file) {
  return with_memory_findings(path, [&]() -> Status {
    file->path = path;
    std::vector<std::byte> bytes;
    Status status = read_file(path, &bytes);
    if (!status.ok()) return status;
    return parse_records({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, file);
  });
}

Status write_records(const std::string& path, std::string_view device, std::string_view version,
                     std::span<const RecordedProgram> cases) {
  const Json env{{"id", "_env"}, {"device", device}, {"version", version}};
  std::string text = text_of(env) + '\n';
  for (const RecordedProgram& c : cases) text += text_of(to_json(c)) + '\n';
  return write_file(path, std::as_bytes(std::span(text)));
}

}  // namespace shadowgraph
