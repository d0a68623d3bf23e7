#include "report/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "report/json_members.h"
#include "report/read_bench.h"
#include "report/read_pictures.h"

namespace shadowgraph {
namespace {

constexpr size_t kDepth = 8;  // document, findings, finding, pictures, picture, wrong, cell

void read(JsonMembers& m, StepTally* t) {
  m.need("mode", &t->mode), m.need("phase", &t->phase);
  m.count("agreed", &t->agreed), m.count("flagged", &t->flagged);
  m.count("waived", &t->waived), m.count("skipped", &t->skipped);
}

void read(JsonMembers& m, PassedOver* p) {
  m.need("id", &p->law), m.need("file", &p->path), m.need("what", &p->what);
  m.count("count", &p->count), m.get("line", &p->line);
  m.get("field", &p->field), m.get("why", &p->why);
}

void read(JsonMembers& m, FileReport* f) {
  m.need("path", &f->path), m.need("kind", &f->kind), m.get("role", &f->role);
  m.count("cases", &f->cases), m.count("agreed", &f->agreed), m.count("flagged", &f->flagged);
  m.count("waived", &f->waived), m.count("skipped", &f->skipped);
  m.each("steps", [&](JsonMembers& step) { read(step, &f->steps.emplace_back()); });
  m.get("notes", &f->notes);
  m.each("unread", [&](JsonMembers& p) { read(p, &f->unread.emplace_back()); });
}

void read(JsonMembers& m, CaseReport* c) {
  m.need("case", &c->id), m.need("kind", &c->kind), m.need("dtype", &c->dtype);
  m.get("error_over_bound", &c->error_over_bound);
  m.get("lse_error_over_bound", &c->lse_error_over_bound);
  m.get("twin_error_over_bound", &c->twin_error_over_bound);
  m.get("twin_lse_error_over_bound", &c->twin_lse_error_over_bound);
  m.get("gpu_error_over_bound", &c->gpu_error_over_bound);
  m.get("gpu_lse_error_over_bound", &c->gpu_lse_error_over_bound);
  m.get("kernel", &c->kernel), m.get("marked_rows", &c->marked_rows);
  m.get("notes", &c->notes), m.get("known_wrong", &c->known_wrong);
}

void read(JsonMembers& m, Explanation* e) {
  m.need("mistake", &e->mistake), m.need("sentence", &e->sentence);
  m.count("explained", &e->explained), m.count("wrong", &e->wrong), m.count("broken", &e->broken);
}

void read(JsonMembers& m, FaultReport* f) {
  m.need("id", &f->id), m.need("title", &f->title), m.need("refs", &f->refs);
  m.get("verdict", &f->verdict);
  m.need("planted", &f->planted), m.get("why_not", &f->why_not);
  m.need("detected", &f->detected), m.need("by", &f->by);
  m.count("cases", &f->cases), m.need("seconds", &f->seconds);
  m.get("reproducer", &f->reproducer);
  m.each("diagnosis", [&](JsonMembers& e) { read(e, &f->diagnosis.emplace_back()); });
  m.get("named", &f->named);
}

void read(JsonMembers& m, FaultPair* p) {
  m.need("fault", &p->fault), m.need("backend", &p->backend), m.need("verdict", &p->verdict);
  m.count("cases", &p->cases), m.count("acted", &p->acted);
  m.get("by", &p->by), m.get("why", &p->why), m.get("reproducer", &p->reproducer);
}

void read(JsonMembers& m, CoverageReport* c) {
  m.need("backend", &c->backend), m.need("mode", &c->mode), m.need("phase", &c->phase);
  m.count("cases", &c->cases);
}

void read(JsonMembers& m, ConformanceReport* c) {
  m.need("id", &c->id), m.need("variant", &c->variant), m.need("class", &c->kind);
  m.need("status", &c->status), m.get("why", &c->why);
}

int64_t first_number(const std::string& label) {
  int64_t number = 0;
  std::from_chars(label.data(), label.data() + label.size(), number);
  return number;
}

/// An object has no order: bins are those of numbers, the smallest first.
void read(JsonMembers& m, Histogram* h) {
  m.need("median", &h->median);
  m.inside("bins", [&](JsonMembers& bins) {
    bins.others([&](const std::string& label, const JsonValue&) {
      bins.count(label.c_str(), &h->bins.emplace_back(label, 0).second);
    });
  });
  std::ranges::stable_sort(h->bins, {}, [](const auto& bin) { return first_number(bin.first); });
  m.inside("counts", [&](JsonMembers& counts) {
    counts.others([&](const std::string& value, const JsonValue&) {
      const int64_t number = first_number(value);
      if (std::to_string(number) != value) return counts.fail(value, "a number", "none");
      counts.count(value.c_str(), &h->counts[number]);
    });
  });
}

void read(JsonMembers& m, Finding* f) {
  std::string severity;
  m.need("id", &f->id), m.need("title", &f->title), m.need("severity", &severity);
  for (const Severity s : {Severity::kError, Severity::kWarning, Severity::kNote}) {
    if (severity == name_of(s)) f->severity = s;
  }
  if (severity != name_of(f->severity)) m.fail("severity", "error, warning or note", severity);
  m.need("case", &f->case_id);
  m.inside("where", [&](JsonMembers& where) {
    Where& w = f->where;
    where.get("backend", &w.backend), where.get("mode", &w.mode), where.get("phase", &w.phase);
    where.get("field", &w.field), where.get("row", &w.row), where.get("col", &w.col);
    where.get("further", &w.further);
  });
  m.need("expected", &f->expected), m.need("got", &f->got), m.need("refs", &f->refs);
  m.need("reproduce", &f->reproduce), m.get("waived", &f->waived);
  m.each("diagnosis", [&](JsonMembers& e) { read(e, &f->diagnosis.emplace_back()); });
}

void read_findings(JsonMembers& m, Report* r) {
  m.each("findings", [&](JsonMembers& finding) {
    Evidence evidence;
    finding.get("file", &evidence.path), finding.get("line", &evidence.line);
    finding.each("pictures", [&](JsonMembers& p) { read_picture(p, &evidence.pictures); });
    if (!evidence.path.empty() || evidence.line || !evidence.pictures.empty())
      r->evidence[r->findings.size()] = std::move(evidence);
    read(finding, &r->findings.emplace_back());
  });
}

/// What it counts; findings past --max-findings are counted, and not listed.
void read_summary(JsonMembers& m, Report* r) {
  int64_t open = 0, waived = 0;
  m.inside("summary", [&](JsonMembers& s) {
    s.count("cases", &r->cases), s.count("skipped", &r->skipped);
    s.count("findings", &open), s.count("waived", &waived);
    s.count("unknown_backends", &r->unknown_backends), s.count("left_out", &r->left_out);
    s.need("seconds", &r->seconds);
    s.skip({"gpu_error_over_bound", "flagged", "marked_rows"});
  });
  r->unlisted = open - r->open_findings();
  r->unlisted_waived = waived - r->waived_findings();
  if (r->unlisted < 0 || r->unlisted_waived < 0)
    m.fail("summary", "a count of every finding that is listed", "less");
}

void read_head(JsonMembers& m, Report* r) {
  int64_t threads = 0;
  m.need("verb", &r->verb), m.need("version", &r->version), m.need("seed", &r->seed);
  m.get("shard", &r->shard), m.get("range", &r->range);
  m.need("isa", &r->isa), m.need("arith", &r->arith);
  m.count("threads", &threads);
  r->threads = static_cast<int>(std::min<int64_t>(threads, 1 << 20));
  m.need("interrupted", &r->interrupted), m.need("bad_input", &r->bad_input);
  m.get("void", &r->void_verdict), m.get("warnings", &r->warnings);
  m.get("changed", &r->changed);
  m.skip({"schema", "ok"});
  m.skip({"acted", "idle_laws", "laws_of_other_runs"});  // `planted` and `laws` say them
}

void read_counts(JsonMembers& m, const char* name, std::map<std::string, int64_t>* counts) {
  m.inside(name, [&](JsonMembers& all) {
    all.others(
        [&](const std::string& of, const JsonValue&) { all.count(of.c_str(), &(*counts)[of]); });
  });
}

void read_pairs(JsonMembers& m, Report* r) {
  m.inside("pairs", [&](JsonMembers& all) {
    all.others([&](const std::string& kind, const JsonValue&) {
      all.inside(kind.c_str(), [&](JsonMembers& x) {
        PairsReport& pairs = r->pairs[kind];
        std::string bits;
        x.count("of", &pairs.of), x.need("bits", &bits), x.get("unmet", &pairs.unmet);
        if (!pairs.set_hex(bits)) {
          x.fail("bits", fmt::format("the digits of {} pairs", pairs.of), bits.substr(0, 40));
          pairs = {};
        }
        x.skip({"met"});  // `bits` says it
      });
    });
  });
}

void read_report_members(JsonMembers& m, Report* r) {
  read_head(m, r);
  m.each("passed_over", [&](JsonMembers& x) { read(x, &r->passed_over.emplace_back()); });
  m.each("files", [&](JsonMembers& x) { read(x, &r->files.emplace_back()); });
  m.each("cases", [&](JsonMembers& x) { read(x, &r->case_list.emplace_back()); });
  m.each("faults", [&](JsonMembers& x) { read(x, &r->faults.emplace_back()); });
  m.each("matrix", [&](JsonMembers& x) { read(x, &r->matrix.emplace_back()); });
  m.each("coverage", [&](JsonMembers& x) { read(x, &r->coverage.emplace_back()); });
  m.each("conformance", [&](JsonMembers& x) { read(x, &r->conformance.emplace_back()); });
  read_counts(m, "laws", &r->laws), read_counts(m, "features", &r->features);
  read_counts(m, "planted", &r->planted), read_counts(m, "parameters", &r->parameters);
  read_pairs(m, r);
  m.inside("histogram", [&](JsonMembers& all) {
    all.others([&](const std::string& name, const JsonValue&) {
      all.inside(name.c_str(), [&](JsonMembers& x) {
        Histogram& h = r->histograms.emplace_back();
        h.name = name;
        read(x, &h);
      });
    });
  });
  if (r->verb == "bench") read_bench(m, r->threads, &r->bench.emplace());
  m.each("pictures", [&](JsonMembers& p) { read_picture(p, &r->pictures); });
  read_findings(m, r);
  read_summary(m, r);
}

}  // namespace

Status parse_report(std::string_view text, const std::string& name, Report* report) {
  JsonDocument document;
  Status status = parse_strict_json(text, "io.report", name, 0, &document, kDepth);
  if (!status.ok()) return status;
  JsonMembers m(document.root, "", name, &status);
  std::string schema;
  m.need("schema", &schema);
  if (schema != "shadowgraph.report/1")
    m.fail("schema", "shadowgraph.report/1", schema.empty() ? "none" : schema);
  if (!status.ok()) return status;
  Report r;
  read_report_members(m, &r);
  m.others([&](const std::string& key, const JsonValue&) { m.fail(key, "no such key", "one"); });
  if (status.ok()) *report = std::move(r);
  return status;
}

Status read_report(const std::string& path, Report* report) {
  return with_memory_findings(path, [&] {
    std::vector<std::byte> bytes;
    Status status = read_file(path, &bytes);
    if (!status.ok()) return status;
    return parse_report({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, report);
  });
}

}  // namespace shadowgraph
