// Renders a report as JSON.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "report/render.h"

namespace shadowgraph {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

void add(Json& object, const char* key, const std::optional<double>& value) {
  if (value) object[key] = number(*value);
}

void add(Json& object, const char* key, const std::string& value) {
  if (!value.empty()) object[key] = value;
}

void add(Json& object, const char* key, const std::optional<int64_t>& value) {
  if (value) object[key] = *value;
}

template <class T>
void add(Json& object, const char* key, const std::vector<T>& values) {
  if (!values.empty()) object[key] = values;
}

Json to_json(const StepTally& t) {
  return {{"mode", t.mode},       {"phase", t.phase},   {"agreed", t.agreed},
          {"flagged", t.flagged}, {"waived", t.waived}, {"skipped", t.skipped}};
}

Json to_json(const PassedOver& p) {
  Json j{{"id", p.law}, {"file", p.path}, {"what", p.what}, {"count", p.count}};
  add(j, "line", p.line);
  add(j, "field", p.field), add(j, "why", p.why);
  return j;
}

Json to_json(const FileReport& f) {
  Json j{{"path", f.path},       {"kind", f.kind},     {"cases", f.cases},    {"agreed", f.agreed},
         {"flagged", f.flagged}, {"waived", f.waived}, {"skipped", f.skipped}};
  add(j, "role", f.role);
  for (const StepTally& t : f.steps) j["steps"].push_back(to_json(t));
  add(j, "notes", f.notes);
  for (const PassedOver& p : f.unread) j["unread"].push_back(to_json(p));
  return j;
}

Json to_json(const CaseReport& c) {
  Json j{{"case", c.id}, {"kind", c.kind}, {"dtype", c.dtype}};
  add(j, "error_over_bound", c.error_over_bound);
  add(j, "lse_error_over_bound", c.lse_error_over_bound);
  add(j, "twin_error_over_bound", c.twin_error_over_bound);
  add(j, "twin_lse_error_over_bound", c.twin_lse_error_over_bound);
  add(j, "gpu_error_over_bound", c.gpu_error_over_bound);
  add(j, "gpu_lse_error_over_bound", c.gpu_lse_error_over_bound);
  add(j, "kernel", c.kernel);
  if (c.marked_rows > 0) j["marked_rows"] = c.marked_rows;
  j["notes"] = c.notes;
  j["known_wrong"] = c.known_wrong;
  return j;
}

Json to_json(const Explanation& e) {
  return {{"mistake", e.mistake},
          {"sentence", e.sentence},
          {"explained", e.explained},
          {"wrong", e.wrong},
          {"broken", e.broken}};
}

Json to_json(const FaultReport& f) {
  Json j{{"id", f.id}, {"title", f.title}, {"refs", f.refs}};
  add(j, "verdict", f.verdict);
  j["planted"] = f.planted;
  add(j, "why_not", f.why_not);
  j["detected"] = f.detected;
  j["by"] = f.by;
  j["cases"] = f.cases;
  j["seconds"] = number(f.seconds);
  add(j, "reproducer", f.reproducer);
  for (const Explanation& e : f.diagnosis) j["diagnosis"].push_back(to_json(e));
  if (f.named) j["named"] = *f.named;
  return j;
}

Json to_json(const FaultPair& p) {
  Json j{{"fault", p.fault},
         {"backend", p.backend},
         {"verdict", p.verdict},
         {"cases", p.cases},
         {"acted", p.acted}};
  add(j, "by", p.by);
  add(j, "why", p.why);
  add(j, "reproducer", p.reproducer);
  return j;
}

Json to_json(const CoverageReport& c) {
  return {{"backend", c.backend}, {"mode", c.mode}, {"phase", c.phase}, {"cases", c.cases}};
}

Json to_json(const ConformanceReport& c) {
  Json j{{"id", c.id}, {"variant", c.variant}, {"class", c.kind}, {"status", c.status}};
  add(j, "why", c.why);
  return j;
}

Json to_json(const PairsReport& pairs) {
  Json j = {{"of", pairs.of}, {"met", pairs.num_met()}, {"bits", pairs.to_hex()}};
  add(j, "unmet", pairs.unmet);
  return j;
}

Json to_json(const Histogram& h) {
  Json bins = Json::object();
  for (const auto& [label, cases] : h.bins) bins[label] = cases;
  Json j{{"median", number(h.median)}, {"bins", std::move(bins)}};
  for (const auto& [value, cases] : h.counts) j["counts"][std::to_string(value)] = cases;
  return j;
}

Json to_json(const TableMap& m) {
  Json wrong = Json::array();
  for (const Cell& cell : m.wrong) wrong.push_back({cell.row, cell.column});
  return {{"kind", "table"},          {"title", m.title},     {"rows", m.rows},
          {"columns", m.columns},     {"entries", m.entries}, {"owners", m.owners},
          {"wrong", std::move(wrong)}};
}

Json to_json(const MaskMap& m) {
  return {{"kind", "mask"},       {"title", m.title},       {"rows", m.rows},
          {"columns", m.columns}, {"expected", m.expected}, {"got", m.got}};
}

Json to_json(const Timeline& t) {
  Json marks = Json::array();
  for (const Timeline::Mark& m : t.marks) {
    Json& mark =
        marks.emplace_back(Json{{"buffer", m.buffer}, {"step", m.step}, {"what", name_of(m.kind)}});
    add(mark, "note", m.note);
  }
  return {{"kind", "timeline"},
          {"title", t.title},
          {"buffers", t.buffers},
          {"steps", t.steps},
          {"marks", std::move(marks)}};
}

Json to_json(const Heatmap& m) {
  Json j{{"kind", "heat"},         {"title", m.title},
         {"row_name", m.row_name}, {"column_name", m.column_name},
         {"rows", m.rows},         {"columns", m.columns}};
  add(j, "row_names", m.row_names);
  add(j, "column_names", m.column_names);
  j["values"] = Json::array();
  for (const double value : m.values) j["values"].push_back(number(value));
  return j;
}

Json to_json(const Picture& picture) {
  return std::visit([](const auto& p) { return to_json(p); }, picture);
}

Json to_json(const Finding& f) {
  Json where = Json::object();
  add(where, "backend", f.where.backend);
  add(where, "mode", f.where.mode);
  add(where, "phase", f.where.phase);
  add(where, "field", f.where.field);
  add(where, "row", f.where.row);
  add(where, "col", f.where.col);
  add(where, "further", f.where.further);
  Json j{{"id", f.id},
         {"title", f.title},
         {"severity", name_of(f.severity)},
         {"case", f.case_id},
         {"where", std::move(where)},
         {"expected", f.expected},
         {"got", f.got},
         {"refs", f.refs},
         {"reproduce", f.reproduce}};
  add(j, "waived", f.waived);
  for (const Explanation& e : f.diagnosis) j["diagnosis"].push_back(to_json(e));
  return j;
}

template <class Items>
Json to_array(const Items& items) {
  Json array = Json::array();
  for (const auto& item : items) array.push_back(to_json(item));
  return array;
}

/// In the order of discovery; what is not listed is counted only.
Json findings_of(const Report& r, size_t most) {
  Json array = Json::array();
  for (size_t i = 0; i < std::min(most, r.findings.size()); ++i) {
    Json& finding = array.emplace_back(to_json(r.findings[i]));
    const auto evidence = r.evidence.find(i);
    if (evidence == r.evidence.end()) continue;
    add(finding, "file", evidence->second.path);
    add(finding, "line", evidence->second.line);
    if (!evidence->second.pictures.empty())
      finding["pictures"] = to_array(evidence->second.pictures);
  }
  return array;
}

Json to_json(const BenchProbe& p) {
  Json j{{"threads", p.threads}};
  add(j, "variant", p.variant);
  add(j, "gbps", p.gbps);
  add(j, "gflops", p.gflops);
  add(j, "void", p.void_reason);
  return j;
}

Json to_json(const BenchRow& r) {
  Json j{{"shape", r.shape}};
  add(j, "ratio", r.ratio);
  j["of"] = r.of;
  add(j, "ms", r.ms);
  add(j, "gbps", r.gbps);
  add(j, "gflops", r.gflops);
  j["rounds"] = r.rounds;
  j["quiet"] = r.quiet;
  if (r.interrupted) j["interrupted"] = true;
  add(j, "low", r.low);
  add(j, "high", r.high);
  add(j, "goal", r.goal);
  if (r.goal) j["goal_is"] = r.at_most ? "at_most" : "at_least";
  j["reached"] = r.reached;
  add(j, "void", r.void_reason);
  j["threads"] = r.threads;
  j["dtype"] = r.dtype;
  j["arith"] = r.arith;
  j["isa"] = r.isa;
  j["text"] = r.text;
  for (const auto& [name, figure] : r.probes) j["probes"][name] = number(figure);
  for (const auto& [name, ms] : r.others_ms) j["others_ms"][name] = number(ms);
  for (const auto& [why, times] : r.rejected) j["rejected"][why] = times;
  return j;
}

Json to_json(const BenchComparison& c) {
  Json j{{"file", c.path}, {"rows", Json::array()}};
  for (const BenchPair& pair : c.rows) {
    Json& row = j["rows"].emplace_back(Json{{"shape", pair.shape}});
    add(row, "was", pair.was), add(row, "is", pair.is);
    row["verdict"] = pair.verdict;
    add(row, "why", pair.why);
  }
  return j;
}

/// Probes by name; those of another number of threads than the run's have it in their name.
void add(Json& document, const BenchReport& bench, int threads) {
  document["machine"] = Json::object();
  for (const auto& [what, value] : bench.machine) document["machine"][what] = value;
  document["probes"] = Json::object();
  for (const BenchProbe& p : bench.probes) {
    const std::string suffix = p.threads == threads ? "" : "_" + std::to_string(p.threads) + "t";
    document["probes"][p.name + suffix] = to_json(p);
  }
  document["bench"] = Json::array();
  for (const BenchRow& row : bench.rows) document["bench"].push_back(to_json(row));
  if (!bench.plots.empty()) document["plots"] = bench.plots;
  if (bench.against) document["against"] = to_json(*bench.against);
}

Json summary_of(const Report& r) {
  Json j{{"cases", r.cases},
         {"findings", r.open_findings()},
         {"waived", r.waived_findings()},
         {"skipped", r.skipped},
         {"unknown_backends", r.unknown_backends},
         {"left_out", r.left_out},
         {"seconds", number(r.seconds)}};
  if (!r.files.empty()) j["flagged"] = r.flagged_cases();
  if (r.marked_rows() > 0) j["marked_rows"] = r.marked_rows();
  if (const auto largest = r.largest_gpu_error(); !largest.empty()) {
    for (const auto& [dtype, ratio] : largest) j["gpu_error_over_bound"][dtype] = number(ratio);
  }
  return j;
}

/// Bytes that are not UTF-8 become U+FFFD: a report is valid JSON whatever a path holds.
std::string dump(const Json& document) {
  return document.dump(2, ' ', true, Json::error_handler_t::replace) + '\n';
}

}  // namespace

std::string render_json(const Report& r, const RenderOptions& options) {
  Json j{{"schema", "shadowgraph.report/1"},
         {"verb", r.verb},
         {"version", r.version},
         {"seed", r.seed},
         {"isa", r.isa},
         {"threads", r.threads},
         {"arith", r.arith},
         {"ok", r.ok()},
         {"interrupted", r.interrupted},
         {"bad_input", r.bad_input},
         {"summary", summary_of(r)},
         {"files", to_array(r.files)},
         {"coverage", to_array(r.coverage)}};
  if (!r.faults.empty()) j["faults"] = to_array(r.faults);
  if (!r.matrix.empty()) j["matrix"] = to_array(r.matrix);
  add(j, "shard", r.shard), add(j, "range", r.range);
  add(j, "void", r.void_verdict);
  add(j, "acted", r.acted());
  if (!r.planted.empty()) j["planted"] = r.planted;
  if (r.changed) j["changed"] = true;
  add(j, "warnings", r.warnings);
  if (!r.passed_over.empty()) j["passed_over"] = to_array(r.passed_over);
  if (!r.laws.empty()) j["laws"] = r.laws;
  add(j, "idle_laws", r.idle_laws());
  add(j, "laws_of_other_runs", r.laws_of_other_runs());
  if (!r.features.empty()) j["features"] = r.features;
  if (!r.parameters.empty()) j["parameters"] = r.parameters;
  for (const auto& [kind, pairs] : r.pairs) j["pairs"][kind] = to_json(pairs);
  for (const Histogram& h : r.histograms) j["histogram"][h.name] = to_json(h);
  if (!r.case_list.empty()) j["cases"] = to_array(r.case_list);
  if (!r.conformance.empty()) j["conformance"] = to_array(r.conformance);
  if (r.bench) add(j, *r.bench, r.threads);
  if (!r.pictures.empty()) j["pictures"] = to_array(r.pictures);
  j["findings"] = findings_of(r, options.max_findings);
  return dump(j);
}

std::string render_json(const Listing& listing) {
  Json items = Json::array();
  for (const auto& row : listing.rows) {
    Json item = Json::object();
    for (size_t c = 0; c < listing.columns.size(); ++c) item[listing.columns[c]] = row[c];
    items.push_back(std::move(item));
  }
  return dump(
      {{"schema", "shadowgraph.list/1"}, {"kind", listing.kind}, {"items", std::move(items)}});
}

}  // namespace shadowgraph
