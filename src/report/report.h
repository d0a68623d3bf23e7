// Report: what a verb found, as plain data, and its renderings (formats.inc). The JSON form is a
// contract for other programs ("schema": "shadowgraph.report/1"; keys are only ever added); text
// and HTML are for people, the others for the tools that read them.
//
// Numbers that JSON cannot hold (infinities, NaN) are the strings "inf", "-inf" and "nan"; what was
// not measured has no key. Text from outside (paths, names, values) never carries control
// characters into any form. Tested by tests/report/report_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/law_counts.h"
#include "report/bench_report.h"
#include "report/pairs.h"
#include "report/pictures.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// "error", "warning", "note".
const char* name_of(Severity severity);

/// What came of an engine's steps of one mode and phase.
struct StepTally {
  std::string mode, phase;
  int64_t agreed = 0, flagged = 0, waived = 0, skipped = 0;
};

/// A group of cases, or of fields of judged cases, that a run of `check` did not judge; or a waiver
/// that waives nothing.
struct PassedOver {
  std::string law;   // skip.*, left_out.*, unread.field, waiver.unused
  std::string path;  // the file that has them
  std::string what;  // "skipped, no twin of torch_native yet (2 lines)"
  int64_t count = 0;
  std::optional<int64_t> line = {};  // the first one's, from 1
  std::string field = {}, why = {};  // of left_out.* and unread.field: "input.seq_len", "not known"
  /// "a.jsonl: left out, colours: not known (1 line) [left_out.unknown_name]"; an unused waiver has
  /// no id
  std::string to_string() const;
};

/// One input file. cases = agreed + flagged + waived (flagged by nothing but waived findings);
/// skipped cases were not judged, and notes say why.
struct FileReport {
  std::string path;
  std::string kind;  // what it was recognised as; empty: nothing
  std::string role;  // of engine traces: which state of the engine, where the file says one
  int64_t cases = 0, agreed = 0, flagged = 0, waived = 0, skipped = 0;
  std::vector<StepTally> steps;  // of engine traces
  std::vector<std::string> notes;
  std::vector<PassedOver> unread;  // keys and fields that nothing reads: nobody is to mend them
};

/// One judged case of a kernel vector. A ratio is the largest error divided by its derived bound:
/// at most 1 is right.
struct CaseReport {
  std::string id;                                                          // "FILE#case007"
  std::string kind, dtype;                                                 // "paged_prefill", "f16"
  std::optional<double> error_over_bound, lse_error_over_bound;            // ours
  std::optional<double> twin_error_over_bound, twin_lse_error_over_bound;  // a planned run's
  std::optional<double> gpu_error_over_bound, gpu_lse_error_over_bound;    // the recorded kernel's
  // "accepted", "not accepted": what was recorded of the kernel, whatever the file's reference is;
  // empty: nothing of it was judged
  std::string kernel;
  int64_t marked_rows = 0;         // that see no key and have a mark of the kernel's own
  std::vector<std::string> notes;  // quirks of the recording
  // Recorded variants that are wrong on purpose, and how far off
  std::vector<std::string> known_wrong;
};

/// How many cases a fuzz run spent where.
struct CoverageReport {
  std::string backend, mode, phase;
  int64_t cases = 0;
};

/// What came of one program of `conformance`, as one variant.
struct ConformanceReport {
  std::string id, variant;
  std::string kind;    // "E", "S", "U"
  std::string status;  // "equal", "in_set", "diagnosed", "differs", "skipped"
  std::string why;     // may be empty
};

/// How a quantity was spread over the cases of a fuzz run.
struct Histogram {
  std::string name;  // "keys", "requests", "head_dim"
  double median = 0;
  std::vector<std::pair<std::string, int64_t>> bins;  // label, cases
  std::map<int64_t, int64_t> counts = {};             // value, cases; empty: not kept
};

/// The smallest value that half of the cases have or stay below; 0 of no case.
double median_of(const std::map<int64_t, int64_t>& counts);

/// What came of planting one fault: who noticed, how soon, and how to see it again.
struct FaultReport {
  std::string id, title;          // "K31"
  std::vector<std::string> refs;  // what documents the fault
  // "found", "missed", "inert", "never acted"; empty: it was not tried
  std::string verdict;
  bool planted = false;  // false: it was not tried, or changed nothing that anything reads
  std::string why_not;   // why, where it was not
  bool detected = false;
  std::vector<std::string> by;  // ids of the laws that noticed, the first one first
  int64_t cases = 0;            // judged until it was noticed, or in all
  double seconds = 0;
  std::string reproducer;              // path of a case file, or one command; may be empty
  std::vector<Explanation> diagnosis;  // of its wrong outputs, the likeliest first; may be empty
  std::optional<bool> named;           // the first of these is what it is; empty: none is
};

/// One fault on one backend.
struct FaultPair {
  std::string fault, backend;    // "K31", "flashattention"
  std::string verdict;           // as FaultReport's
  int64_t cases = 0, acted = 0;  // histories; those in which it acted
  std::string by;                // the law that noticed first
  std::string why;               // of one that is not found
  std::string reproducer;        // one command; empty where it never acted
};

/// What is known of a finding besides.
struct Evidence {
  std::string path;             // of the file that it is about; empty: of none
  std::optional<int64_t> line;  // of that file, from 1
  std::vector<Picture> pictures;
};

struct Report {
  std::string verb, version;
  uint64_t seed = 0;
  // Parts of the run (parts.h): "2/4", the second of four; "512-767", so many cases, both ends
  // included. Empty: all of it, or no --first was given
  std::string shard, range;
  std::string isa;
  int threads = 0;
  std::string arith;
  int64_t cases = 0;             // judged
  int64_t skipped = 0;           // seen, not judged
  int64_t unknown_backends = 0;  // of these, of backends that nobody knows
  int64_t left_out = 0;          // fields and keys of judged cases that nobody looked at
  double seconds = 0;
  bool interrupted = false;  // ended by Ctrl-C: what follows is what was found until then
  bool bad_input = false;    // some input was refused; its findings say why
  // "nothing was judged", "K31 never acted": the run says nothing, and warnings say why
  std::string void_verdict;
  std::map<std::string, int64_t> planted;  // "K31": how often it acted; 0, too
  // Something that is read differs from a run without the plants, and nothing noticed it
  bool changed = false;
  std::vector<std::string> warnings;  // shown with --quiet, too
  // Skipped cases, left-out fields and unused waivers, each counted once. Files' notes have those
  // that are skipped, and warnings the others, as to_string() says them.
  std::vector<PassedOver> passed_over;
  std::vector<FileReport> files;
  std::vector<CaseReport> case_list;
  std::vector<FaultReport> faults;
  std::vector<FaultPair> matrix;  // fault by fault; all have the same backends in the same order
  std::vector<CoverageReport> coverage;
  std::vector<ConformanceReport> conformance;
  std::map<std::string, int64_t> laws;       // by id: judgements; also 0 of those it can judge
  std::map<std::string, int64_t> features;   // "histories topk": cases; also 0 of those it can draw
  std::map<std::string, PairsReport> pairs;  // by kind of cases: "histories flashattention"
  std::map<std::string, int64_t> parameters;  // "flashinfer sinks merged", or whole: steps
  std::vector<Histogram> histograms;
  std::optional<BenchReport> bench;
  std::vector<Finding> findings;
  std::map<size_t, Evidence> evidence;  // by the index of the finding
  std::vector<Picture> pictures;        // of the whole run
  // Findings that a report which was read counts and does not list
  int64_t unlisted = 0, unlisted_waived = 0;

  /// The laws of such runs (Law::judged_in), and what else was judged.
  void add_laws(const LawCounts& counts, std::span<const std::string_view> runs);
  /// Laws that the run could judge and that judged nothing; and those that it cannot judge, since
  /// only other runs have what they are about. Both are empty where no law is counted.
  std::vector<std::string> idle_laws() const;
  std::vector<std::string> laws_of_other_runs() const;
  /// The planted faults that did act: "K31".
  std::vector<std::string> acted() const;
  /// The planted faults that were not noticed (fault.missed), where nothing else was found: "K31".
  std::string missed_faults() const;
  /// Those that acted, and the laws that noticed: "K31: found by table.slot, num.bound". Empty:
  /// none did.
  std::string found_faults() const;
  /// Findings that count, and those that a waiver covers.
  int64_t open_findings() const;
  int64_t waived_findings() const;
  /// Cases of files that are flagged.
  int64_t flagged_cases() const;
  /// Rows of recorded kernels that see no key and have a mark of the kernel's own.
  int64_t marked_rows() const;
  /// Whether recorded work was judged in part only. What `fuzz` draws and cannot run is no work.
  bool is_partial() const;
  bool ok() const { return exit_code() == 0; }
  /// The largest gpu_error_over_bound per dtype: a bound that no real kernel comes near proves
  /// nothing.
  std::map<std::string, double> largest_gpu_error() const;
  /// 0 clean, 1 findings, 3 bad input, or a run that says nothing.
  int exit_code() const;
  /// The plain sentence that ends the text form.
  std::string verdict() const;
};

/// A table of names: what `list` prints. Every row has a cell per column.
struct Listing {
  std::string kind;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

enum class Format : uint8_t {
#define SG_FORMAT(constant, name) constant,
#include "report/formats.inc"
#undef SG_FORMAT
};

struct RenderOptions {
  Format format = Format::kText;
  bool color = false;  // text: terminal colours
  bool quiet = false;  // text: findings and the verdict only
  // text: true shows the cases of each backend, mode and phase, and histograms; false shows one
  // line a mode instead if there are more than 20 such rows
  bool coverage = false;
  size_t max_findings = 100;  // how many are listed; the summary counts all
};

/// All formats with their names: "text", "json", ...
std::span<const std::pair<Format, std::string_view>> formats();

/// The whole document, ending with a newline. A listing is text or JSON: other formats give its
/// text.
std::string render(const Report& report, const RenderOptions& options);
std::string render(const Listing& listing, const RenderOptions& options);

}  // namespace shadowgraph
