// Reports that tests of several formats render.
#pragma once

#include <cmath>
#include <string>

#include "report/report.h"

namespace shadowgraph {

inline Finding small_finding() {
  Finding f;
  f.id = "num.bound";
  f.title = "The error is within its bound.";
  f.case_id = "a.safetensors#case001";
  f.where.field = "out";
  f.where.row = 3;
  f.where.col = 7;
  f.expected = "0.5 within 0.001";
  f.got = "0.75";
  f.refs = {"verification.D", "sglang#35045"};
  f.reproduce = "shadowgraph check a.safetensors --case case001";
  return f;
}

/// One file, two cases, one finding.
inline Report small_report() {
  Report r;
  r.verb = "check";
  r.version = "9.8.7";
  r.seed = 5;
  r.isa = "generic";
  r.threads = 2;
  r.arith = "portable";
  r.cases = 2;
  r.skipped = 1;
  r.seconds = 0.25;
  FileReport& file = r.files.emplace_back();
  file.path = "a.safetensors";
  file.kind = "kernel vectors";
  file.cases = 2, file.agreed = 1, file.flagged = 1, file.skipped = 1;
  file.notes = {"skipped, kind not known yet: x"};
  CaseReport& good = r.case_list.emplace_back();
  good.id = "a.safetensors#case000", good.kind = "decode", good.dtype = "f16";
  good.error_over_bound = 0.125, good.gpu_error_over_bound = 0.25;
  good.notes = {"rows that see no key: lse +inf"};
  CaseReport& bad = r.case_list.emplace_back();
  bad.id = "a.safetensors#case001", bad.kind = "decode", bad.dtype = "bf16";
  bad.error_over_bound = 250, bad.known_wrong = {"naive_merged: 37 times its bound"};
  r.findings.push_back(small_finding());
  return r;
}

/// One that was caught, one that nobody noticed, one that cannot be planted.
inline BenchRow quiet_row(const std::string& id) {
  BenchRow r;
  r.shape = id, r.of = "stream_read", r.text = "a row";
  r.ratio = 0.875, r.low = 0.75, r.high = 1, r.goal = 0.5;
  r.reached = r.quiet = true;
  r.ms = 2.5, r.gbps = 25, r.rounds = 7, r.threads = 2;
  r.dtype = "f32", r.arith = "portable", r.isa = "generic";
  r.probes = {{"stream_read", 30}};
  return r;
}

inline Report bench_report() {
  Report r;
  r.verb = "bench", r.version = "9.8.7", r.isa = "generic", r.threads = 2, r.cases = 3;
  BenchReport& b = r.bench.emplace();
  b.machine = {{"cpu", "abacus\x1b[31m"}};
  b.probes = {{"stream_read", 2, "zmm", 30, {}, ""},
              {"stream_read", 1, "zmm", 20, {}, ""},
              {"bf16_peak", 2, "", {}, {}, "none here"}};
  BenchRow loud = quiet_row("loud"), absent = quiet_row("absent");
  loud.quiet = loud.reached = false;
  loud.rejected = {{"somebody else", 14}};
  absent.ratio = absent.low = absent.high = {};
  absent.ms = absent.gbps = {};
  absent.reached = false, absent.rounds = 0, absent.at_most = true;
  absent.void_reason = "none here";
  BenchRow stopped = quiet_row("stopped");
  stopped.quiet = stopped.reached = false, stopped.interrupted = true, stopped.rounds = 3;
  b.rows = {quiet_row("good"), loud, absent, stopped};
  b.plots = {"share.svg"};
  b.against = {"old.json",
               {{"good", 0.9, 0.875, "lost", ""},
                {"absent", {}, {}, "not compared", "not in the older run"}}};
  return r;
}

inline Report faults_report() {
  Report r;
  r.verb = "faults";
  FaultReport& caught = r.faults.emplace_back();
  caught.id = "K31", caught.title = "request 0's encoder length for every request";
  caught.refs = {"sglang#25045"}, caught.planted = caught.detected = true;
  caught.by = {"mem.uninit_read", "len.kv_extent"}, caught.cases = 33, caught.seconds = 0.25;
  caught.reproducer = "K31.json",
  caught.diagnosis = {
      {"extent.of_request", "The length is another request's, of row 0", 24, 28, 1}};
  caught.named = true;
  FaultReport& missed = r.faults.emplace_back();
  missed.id = "K32", missed.title = std::string(58, 'x') + "\xc3\xa9yz", missed.planted = true;
  missed.cases = 100, missed.seconds = 60;
  FaultReport& left = r.faults.emplace_back();
  left.id = "K33", left.title = "a kernel's own", left.why_not = "no twin has this kernel";
  return r;
}

/// Two faults on twelve backends: one pair of each verdict, and more that never acted.
inline Report matrix_report() {
  Report r;
  r.verb = "faults";
  for (const char* fault : {"K31", "K04"}) {
    for (int b = 1; b <= 12; ++b) {
      FaultPair& pair = r.matrix.emplace_back();
      pair.fault = fault, pair.backend = "backend" + std::to_string(b);
      pair.verdict = "never acted", pair.cases = 100, pair.why = "no encoder";
    }
  }
  FaultPair &found = r.matrix[0], &inert = r.matrix[1], &missed = r.matrix[13];
  found.verdict = "found", found.acted = 2, found.cases = 7, found.by = "table.slot";
  found.why = "", found.reproducer = "shadowgraph fuzz --choices 0";
  inert.verdict = "inert", inert.acted = 9, inert.why = "nothing is changed";
  missed.verdict = "missed", missed.acted = 3, missed.why = "attention reads something else";
  return r;
}

/// Row 2 names a page of row 0 in its third column; the last column is read by nobody.
inline TableMap table_sample() {
  TableMap m;
  m.title = "page_table, decode replay, step 3";
  m.rows = 3, m.columns = 4;
  m.entries = {4, 7, 9, 0, 12, 13, 0, 0, 21, 22, 7, 0};
  const int64_t no = TableMap::kUnread;
  m.owners = {0, 0, 0, no, 1, 1, TableMap::kNobody, no, 2, 2, 0, no};
  m.wrong = {{2, 2}};
  return m;
}

/// Query 1 sees a key too many, query 2 one too few.
inline MaskMap mask_sample() {
  MaskMap m;
  m.title = "custom_mask of request 0";
  m.rows = 3, m.columns = 4;
  m.expected = {1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1};
  m.got = {1, 1, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1};
  return m;
}

/// The second replay reads the lengths that the first one left.
inline Timeline timeline_sample() {
  Timeline t;
  t.title = "Buffers of flashattention, decode";
  t.buffers = {"cache_seqlens", "page_table"};
  t.steps = {"capture", "replay 1", "replay 2"};
  t.marks = {{0, 0, Timeline::kWritten, ""},
             {0, 1, Timeline::kWritten, "memcpy H2D, operation 2"},
             {0, 1, Timeline::kRead, "kernel attention_with_kvcache, node 2"},
             {0, 2, Timeline::kStale, "written in step 1"},
             {1, 2, Timeline::kWritten, ""}};
  return t;
}

/// One value past its bound, one that is none, one that was not measured.
inline Heatmap heat_sample() {
  Heatmap m;
  m.title = "Error of out over its bound";
  m.row_name = "row", m.column_name = "head";
  m.rows = 2, m.columns = 3;
  m.values = {0.5, 0.001, 2.5, std::nan(""), -1, 0};
  return m;
}

/// A picture of each kind at the finding, one of the run.
inline Report pictures_report() {
  Report r = small_report();
  r.evidence[0].path = "a.safetensors";
  r.evidence[0].line = 12;
  r.evidence[0].pictures = {table_sample(), mask_sample(), timeline_sample(), heat_sample()};
  r.pictures = {heat_sample()};
  return r;
}

/// What a name from outside may try: markup, a command of a terminal or of a workflow, no text.
inline constexpr char kHostile[] =
    "]]>--><script>\"'&\x1b]0;x\x07\n::error::%0A\x7f\xc2\x9b\xe2\x80\xae\xef\xbf\xbf\xff";

/// The sample with that text wherever a run takes text from outside.
inline Report hostile_report() {
  Report r = small_report();
  const std::string evil = kHostile;
  r.files[0].path = r.files[0].notes[0] = r.case_list[0].id = r.case_list[0].notes[0] = evil;
  Finding& f = r.findings[0];
  f.id = f.case_id = f.got = f.expected = f.where.field = f.where.backend = f.title = evil;
  f.reproduce = f.refs[0] = evil;
  r.warnings = {evil};
  r.evidence[0].path = evil;
  r.findings.push_back(f);
  r.findings[1].case_id += "2", r.findings[1].waived = evil;
  r.coverage.push_back({evil, evil, evil, 1});
  r.faults = faults_report().faults;
  r.faults[0].id = r.faults[0].title = r.faults[0].by[0] = r.faults[0].reproducer = evil;
  r.evidence[0].pictures = pictures_report().evidence[0].pictures;
  std::visit([&](auto& picture) { picture.title = evil; }, r.evidence[0].pictures[2]);
  auto& timeline = std::get<Timeline>(r.evidence[0].pictures[2]);
  timeline.buffers[0] = timeline.steps[0] = timeline.marks[0].note = evil;
  auto& heat = std::get<Heatmap>(r.evidence[0].pictures[3]);
  heat.row_name = heat.column_name = evil, heat.row_names = {evil, evil};
  heat.column_names = {evil, evil, evil};
  r.histograms.push_back({evil, 1, {{evil, 1}}});
  return r;
}

}  // namespace shadowgraph
