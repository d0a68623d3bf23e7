#include "report/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "core/split.h"
#include "io/file.h"
#include "report/conclude.h"

namespace shadowgraph {
namespace {

/// Lines in the order in which they came, each once.
class Lines {
 public:
  void add(std::string line) {
    if (seen_.insert(line).second) list_.push_back(std::move(line));
  }
  const std::vector<std::string>& list() const { return list_; }

 private:
  std::unordered_set<std::string> seen_;
  std::vector<std::string> list_;
};

template <class T>
void append(std::vector<T>* to, const std::vector<T>& from) {
  to->insert(to->end(), from.begin(), from.end());
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

/// Equal for what is one finding.
std::string key_of(const Finding& f) {
  const Where& w = f.where;
  const auto number = [](const std::optional<int64_t>& n) { return n ? std::to_string(*n) : ""; };
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", f.id, f.case_id, w.backend, w.mode,
                     w.phase, w.field, number(w.row), number(w.col), fmt::join(w.further, ","));
}

}  // namespace

class Merge::Joined {
 public:
  explicit Joined(MergeRules rules) : rules_(rules) {}

  void add(const std::string& path, Report r) {
    if (count_++ == 0) {
      all_.verb = r.verb, all_.version = r.version, all_.seed = r.seed, all_.arith = r.arith;
      first_path_ = path, first_ = std::move(r);
      return;
    }
    if (count_ == 2) join(first_path_, std::move(first_));
    join(path, std::move(r));
  }

  Status end(bool complete, Report* joined) {
    const bool alone = count_ == 1;
    const std::string shard = first_.shard, range = first_.range;  // of one alone
    if (alone && complete && !(shard + range).empty()) parts_.add(first_path_, first_, &status_);
    if (complete) parts_.check_complete(first_path_, &status_);
    if (alone && is_capped()) join(first_path_, std::move(first_));
    if (!status_.ok()) return std::move(status_);
    *joined = alone && !is_capped() ? std::move(first_) : finished();
    if (alone) joined->shard = shard, joined->range = range;
    return {};
  }

 private:
  bool is_capped() const { return rules_.most_of_a_law > 0; }

  /// A report of another run is not joined, and neither is anything after it.
  void join(const std::string& path, Report r) {
    same(path, "verb", all_.verb, r.verb);
    if (r.bench) fail(path, "verb", "a verb with cases", r.verb);
    same(path, "version", all_.version, r.version);
    same(path, "seed", std::to_string(all_.seed), std::to_string(r.seed));
    same(path, "arith", all_.arith, r.arith);
    if (rules_.checks_parts && count_ > 1) parts_.add(path, r, &status_);
    if (!status_.ok()) return;
    take_back(&r);
    join_counts(path, r);
    join_findings(std::move(r));
  }

  void fail(const std::string& path, std::string field, std::string expected, std::string got) {
    status_.add(
        file_finding("io.shard", path, std::move(field), std::move(expected), std::move(got)));
  }

  void same(const std::string& path, const char* field, const std::string& first,
            const std::string& mine) {
    if (mine != first) fail(path, field, first + ", as in " + first_path_, mine);
  }

  void join_counts(const std::string& path, const Report& from) {
    Report& to = all_;
    to.threads = std::max(to.threads, from.threads);
    to.cases += from.cases, to.skipped += from.skipped;
    to.unknown_backends += from.unknown_backends, to.left_out += from.left_out;
    to.seconds += from.seconds;
    to.interrupted |= from.interrupted, to.bad_input |= from.bad_input;
    append(&to.files, from.files);
    append(&to.passed_over, from.passed_over);
    append(&to.case_list, from.case_list);
    append(&to.faults, from.faults);
    append(&to.matrix, from.matrix);
    append(&to.conformance, from.conformance);
    append(&to.pictures, from.pictures);
    for (const CoverageReport& c : from.coverage)
      coverage_[{c.backend, c.mode, c.phase}] += c.cases;
    for (const auto& [law, judged] : from.laws) to.laws[law] += judged;
    for (const auto& [name, cases] : from.features) to.features[name] += cases;
    for (const auto& [name, steps] : from.parameters) to.parameters[name] += steps;
    for (const auto& [kind, pairs] : from.pairs)
      if (!to.pairs[kind].join(pairs))
        fail(path, "pairs", fmt::format("{} of {}", to.pairs[kind].of, kind),
             std::to_string(pairs.of));
    for (const Histogram& h : from.histograms) join_histogram(h, &to.histograms);
    for (const auto& [fault, acted] : from.planted) to.planted[fault] += acted;
    to.changed |= from.changed;
    for (const std::string& warning : from.warnings) warnings_.add(warning);
    for (const std::string_view isa : split(from.isa, ", ")) isas_.add(std::string(isa));
    to.unlisted += from.unlisted, to.unlisted_waived += from.unlisted_waived;
    const int64_t unlisted = from.unlisted + from.unlisted_waived;
    if (unlisted > 0 && !is_capped())
      warnings_.add(
          fmt::format("{}: {} findings are counted and not listed; run it with a larger "
                      "--max-findings",
                      path, unlisted));
  }

  void join_findings(Report from) {
    for (size_t i = 0; i < from.findings.size(); ++i) {
      Finding& f = from.findings[i];
      if (is_capped() ? !is_listed(f) : !findings_.insert(key_of(f)).second) continue;
      const auto evidence = from.evidence.find(i);
      if (evidence != from.evidence.end())
        all_.evidence[all_.findings.size()] = std::move(evidence->second);
      all_.findings.push_back(std::move(f));
    }
  }

  /// Whether the next finding stays listed, where the cases of a law are capped.
  bool is_listed(const Finding& f) {
    if (f.case_id.empty() || f.case_id != case_id_) {
      case_id_ = f.case_id;
      case_is_listed_ = ++failing_[f.id] <= rules_.most_of_a_law;
      if (!case_is_listed_) ++(f.waived.empty() ? all_.unlisted : all_.unlisted_waived);
    }
    return case_is_listed_;
  }

  Report finished() {
    Report& r = all_;
    r.shard = parts_.shard(), r.range = parts_.range();
    r.isa = fmt::format("{}", fmt::join(isas_.list(), ", "));
    for (const auto& [name, cases] : coverage_) {
      const auto& [backend, mode, phase] = name;
      r.coverage.push_back({backend, mode, phase, cases});
    }
    std::ranges::stable_sort(r.faults, {}, &FaultReport::id);
    r.warnings = warnings_.list();
    return std::move(r);
  }

  const MergeRules rules_;
  size_t count_ = 0;
  std::string first_path_;
  Report first_;  // until there is a second one
  Status status_;
  Parts parts_;
  Report all_;
  std::map<std::tuple<std::string, std::string, std::string>, int64_t> coverage_;
  std::unordered_set<std::string> findings_;  // keys; of what is capped none
  std::string case_id_;                       // of the finding before
  bool case_is_listed_ = true;
  std::map<std::string, size_t> failing_;  // cases by law
  Lines isas_, warnings_;
};

Merge::Merge(MergeRules rules) : joined_(std::make_unique<Joined>(rules)) {}
Merge::~Merge() = default;

void Merge::add(const std::string& path, Report report) { joined_->add(path, std::move(report)); }

Status Merge::end(bool complete, Report* joined) { return joined_->end(complete, joined); }

}  // namespace shadowgraph
