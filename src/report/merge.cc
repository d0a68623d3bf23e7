#include "report/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <tuple>

#include "io/file.h"

namespace shadowgraph {
namespace {

constexpr uint64_t kMostShards = 1'000'000;

/// A number from 1 on as it is written, or 0.
uint64_t read_number(std::string_view text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return std::to_string(number) == text && number <= kMostShards ? number : 0;
}

/// Looks at the files together before anything is joined.
class Together {
 public:
  Together(const std::vector<ReportFile>& files, Status* status)
      : files_(files), status_(*status) {}

  void check(bool complete) {
    const Report& first = files_[0].report;
    for (const ReportFile& file : files_) {
      const Report& r = file.report;
      same(file, "verb", first.verb, r.verb);
      if (r.bench && files_.size() > 1) fail(file, "verb", "a verb with cases", r.verb);
      same(file, "version", first.version, r.version);
      same(file, "seed", std::to_string(first.seed), std::to_string(r.seed));
      same(file, "arith", first.arith, r.arith);
      add_shards(file);
    }
    if (!complete || count_ == 0) return;
    std::string missing;
    for (uint64_t part = 1; part <= count_; ++part) {
      if (!owners_.contains(part)) missing += (missing.empty() ? "" : ", ") + std::to_string(part);
    }
    if (!missing.empty())
      fail(files_[0], "shard", fmt::format("all {} shards", count_), "without " + missing);
  }

  /// The shards of the joined report.
  std::string shards() const {
    if (count_ == 0 || owners_.size() == count_) return "";
    ShardSet set{{}, count_};
    for (const auto& [part, path] : owners_) set.parts.push_back(part);
    return set.to_string();
  }

 private:
  void fail(const ReportFile& file, std::string field, std::string expected, std::string got) {
    status_.add(
        file_finding("io.shard", file.path, std::move(field), std::move(expected), std::move(got)));
  }

  void same(const ReportFile& file, const char* field, const std::string& first,
            const std::string& mine) {
    if (mine != first) fail(file, field, first + ", as in " + files_[0].path, mine);
  }

  void add_shards(const ReportFile& file) {
    const std::string& text = file.report.shard;
    if (text.empty() && files_.size() == 1) return;
    const auto set = parse_shards(text);
    if (!set) return fail(file, "shard", "a shard, 2/4", text.empty() ? "the whole run" : text);
    if (count_ == 0) count_ = set->count;
    if (set->count != count_)
      return fail(file, "shard", fmt::format("one of {} shards", count_), text);
    for (const uint64_t part : set->parts) {
      const auto [owner, is_new] = owners_.emplace(part, file.path);
      if (!is_new)
        fail(file, "shard", fmt::format("shard {} once", part), "again, after " + owner->second);
    }
  }

  const std::vector<ReportFile>& files_;
  Status& status_;
  uint64_t count_ = 0;
  std::map<uint64_t, std::string> owners_;  // of shards, by path
};

template <class T>
void append(std::vector<T>* to, const std::vector<T>& from) {
  to->insert(to->end(), from.begin(), from.end());
}

/// Each once.
void unite(std::vector<std::string>* to, const std::vector<std::string>& from) {
  for (const std::string& line : from) {
    if (std::ranges::find(*to, line) == to->end()) to->push_back(line);
  }
}

void join_coverage(const std::vector<CoverageReport>& from, std::vector<CoverageReport>* to) {
  const auto name = [](const CoverageReport& c) { return std::tie(c.backend, c.mode, c.phase); };
  for (const CoverageReport& c : from) {
    const auto mine = std::ranges::find(*to, name(c), name);
    if (mine == to->end()) {
      to->push_back(c);
    } else {
      mine->cases += c.cases;
    }
  }
  std::ranges::stable_sort(*to, {}, name);
}

void join_histogram(const Histogram& from, std::vector<Histogram>* to) {
  const auto mine = std::ranges::find(*to, from.name, &Histogram::name);
  if (mine == to->end()) return to->push_back(from);
  for (const auto& [label, cases] : from.bins) {
    const auto bin = std::ranges::find(mine->bins, label, &std::pair<std::string, int64_t>::first);
    if (bin == mine->bins.end()) {
      mine->bins.emplace_back(label, cases);
    } else {
      bin->second += cases;
    }
  }
  for (const auto& [value, cases] : from.counts) mine->counts[value] += cases;
  if (!mine->counts.empty()) mine->median = median_of(mine->counts);
}

void join_findings(const Report& from, Report* to) {
  const auto key = [](const Finding& f) {
    const Where& w = f.where;
    return std::tie(f.id, f.case_id, w.backend, w.mode, w.phase, w.field, w.row, w.col, w.further);
  };
  for (size_t i = 0; i < from.findings.size(); ++i) {
    if (std::ranges::find(to->findings, key(from.findings[i]), key) != to->findings.end()) continue;
    const auto evidence = from.evidence.find(i);
    if (evidence != from.evidence.end()) to->evidence[to->findings.size()] = evidence->second;
    to->findings.push_back(from.findings[i]);
  }
  to->unlisted += from.unlisted, to->unlisted_waived += from.unlisted_waived;
}

/// What a shard could not say another may have said: only if none did, the run says nothing.
void join_void(const std::vector<ReportFile>& files, Report* to) {
  const bool all = std::ranges::none_of(
      files, [](const ReportFile& f) { return f.report.void_verdict.empty(); });
  std::vector<std::string> verdicts;
  for (const ReportFile& file : files) {
    const Report& r = file.report;
    if (all) unite(&verdicts, {r.void_verdict});
    if (all || r.void_verdict.empty()) unite(&to->warnings, r.warnings);
    if (r.unlisted + r.unlisted_waived > 0)
      to->warnings.push_back(
          fmt::format("{}: {} findings are counted and not listed; run it with "
                      "a larger --max-findings",
                      file.path, r.unlisted + r.unlisted_waived));
  }
  to->void_verdict = fmt::format("{}", fmt::join(verdicts, ", "));
}

void join(const Report& from, Report* to) {
  to->threads = std::max(to->threads, from.threads);
  to->cases += from.cases, to->skipped += from.skipped;
  to->unknown_backends += from.unknown_backends, to->left_out += from.left_out;
  to->seconds += from.seconds;
  to->interrupted |= from.interrupted, to->bad_input |= from.bad_input;
  unite(&to->acted, from.acted);
  append(&to->files, from.files);
  append(&to->passed_over, from.passed_over);
  append(&to->case_list, from.case_list);
  append(&to->faults, from.faults);
  append(&to->matrix, from.matrix);
  append(&to->conformance, from.conformance);
  append(&to->pictures, from.pictures);
  join_coverage(from.coverage, &to->coverage);
  for (const auto& [law, judged] : from.laws) to->laws[law] += judged;
  for (const auto& [name, cases] : from.features) to->features[name] += cases;
  for (const Histogram& h : from.histograms) join_histogram(h, &to->histograms);
  join_findings(from, to);
}

}  // namespace

std::string ShardSet::to_string() const {
  return fmt::format("{}/{}", fmt::join(parts, ","), count);
}

std::optional<ShardSet> parse_shards(std::string_view text) {
  const size_t slash = std::min(text.find('/'), text.size());
  ShardSet set;
  set.count = read_number(text.substr(std::min(slash + 1, text.size())));
  for (std::string_view parts = text.substr(0, slash); !parts.empty();) {
    const size_t end = std::min(parts.find(','), parts.size());
    set.parts.push_back(read_number(parts.substr(0, end)));
    parts.remove_prefix(std::min(end + 1, parts.size()));
  }
  const bool ascending =
      std::ranges::adjacent_find(set.parts, std::greater_equal<uint64_t>()) == set.parts.end();
  const bool inside =
      set.count > 0 && !set.parts.empty() && set.parts.front() > 0 && set.parts.back() <= set.count;
  if (!ascending || !inside || set.to_string() != text) return {};
  return set;
}

Status merge_reports(const std::vector<ReportFile>& files, bool complete, Report* joined) {
  Status status;
  Together together(files, &status);
  together.check(complete);
  if (!status.ok()) return status;
  if (files.size() == 1) {
    *joined = files[0].report;
    return status;
  }
  const Report& first = files[0].report;
  Report r;
  r.verb = first.verb, r.version = first.version, r.seed = first.seed, r.arith = first.arith;
  r.shard = together.shards();
  std::vector<std::string> isas;
  for (const ReportFile& file : files) {
    unite(&isas, {file.report.isa});
    join(file.report, &r);
  }
  r.isa = fmt::format("{}", fmt::join(isas, ", "));
  // What one shard did not notice another did. Such findings have no evidence.
  if (r.missed_faults().empty())
    std::erase_if(r.findings, [](const Finding& f) { return f.id == "fault.missed"; });
  std::ranges::stable_sort(r.faults, {}, &FaultReport::id);
  join_void(files, &r);
  *joined = std::move(r);
  return status;
}

}  // namespace shadowgraph
