#include "report/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "core/split.h"
#include "io/file.h"
#include "report/conclude.h"

namespace shadowgraph {
namespace {

constexpr uint64_t kMostShards = 1'000'000;

/// A number from 1 on as it is written, or 0.
uint64_t read_number(std::string_view text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return std::to_string(number) == text && number <= kMostShards ? number : 0;
}

/// Whose parts of which run there are.
class Shards {
 public:
  void add(const std::string& path, const std::string& text, Status* status) {
    const auto set = parse_shards(text);
    if (!set) return fail(path, "a shard, 2/4", text.empty() ? "the whole run" : text, status);
    if (count_ == 0) count_ = set->count;
    if (set->count != count_)
      return fail(path, fmt::format("one of {} shards", count_), text, status);
    for (const uint64_t part : set->parts) {
      const auto [owner, is_new] = owners_.emplace(part, path);
      if (!is_new)
        fail(path, fmt::format("shard {} once", part), "again, after " + owner->second, status);
    }
  }

  void check_complete(const std::string& path, Status* status) const {
    std::vector<uint64_t> missing;
    for (uint64_t part = 1; part <= count_; ++part) {
      if (!owners_.contains(part)) missing.push_back(part);
    }
    if (!missing.empty())
      fail(path, fmt::format("all {} shards", count_),
           fmt::format("without {}", fmt::join(missing, ", ")), status);
  }

  /// Those of the joined report; empty: all.
  std::string to_string() const {
    if (owners_.size() == count_) return "";
    ShardSet set{{}, count_};
    for (const auto& [part, path] : owners_) set.parts.push_back(part);
    return set.to_string();
  }

 private:
  static void fail(const std::string& path, std::string expected, std::string got, Status* status) {
    status->add(file_finding("io.shard", path, "shard", std::move(expected), std::move(got)));
  }

  uint64_t count_ = 0;
  std::map<uint64_t, std::string> owners_;  // of shards, by path
};

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

std::string ShardSet::to_string() const {
  return fmt::format("{}/{}", fmt::join(parts, ","), count);
}

std::optional<ShardSet> parse_shards(std::string_view text) {
  const size_t slash = std::min(text.find('/'), text.size());
  ShardSet set;
  set.count = read_number(text.substr(std::min(slash + 1, text.size())));
  for (const std::string_view part : split(text.substr(0, slash), ","))
    set.parts.push_back(read_number(part));
  const bool ascending =
      std::ranges::adjacent_find(set.parts, std::greater_equal<uint64_t>()) == set.parts.end();
  const bool inside =
      set.count > 0 && !set.parts.empty() && set.parts.front() > 0 && set.parts.back() <= set.count;
  if (!ascending || !inside || set.to_string() != text) return {};
  return set;
}

class Merge::Joined {
 public:
  explicit Joined(MergeRules rules) : rules_(rules) {}
  void add(const std::string& path, Report r) {
    if (count_++ == 0) {
      first_path_ = path, first_ = std::move(r);
      return;
    }
    if (count_ == 2) join(first_path_, first_);
    join(path, std::move(r));
  }

  Status end(bool complete, Report* joined) {
    if (count_ > 1 && complete) shards_.check_complete(first_path_, &status_);
    if (!status_.ok()) return std::move(status_);
    *joined = count_ == 1 ? std::move(first_) : finished();
    return {};
  }

 private:
  /// A report of another run is not joined, and neither is anything after it.
  void join(const std::string& path, Report r) {
    same(path, "verb", first_.verb, r.verb);
    if (r.bench) fail(path, "verb", "a verb with cases", r.verb);
    same(path, "version", first_.version, r.version);
    same(path, "seed", std::to_string(first_.seed), std::to_string(r.seed));
    same(path, "arith", first_.arith, r.arith);
    if (rules_.checks_parts) shards_.add(path, r.shard, &status_);
    if (!status_.ok()) return;
    take_back(&r);
    join_counts(path, r);
    join_findings(r);
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
    for (const Histogram& h : from.histograms) join_histogram(h, &to.histograms);
    for (const auto& [fault, acted] : from.planted) to.planted[fault] += acted;
    to.changed |= from.changed;
    for (const std::string& warning : from.warnings) warnings_.add(warning);
    for (const std::string_view isa : split(from.isa, ", ")) isas_.add(std::string(isa));
    to.unlisted += from.unlisted, to.unlisted_waived += from.unlisted_waived;
    if (const int64_t unlisted = from.unlisted + from.unlisted_waived; unlisted > 0)
      warnings_.add(
          fmt::format("{}: {} findings are counted and not listed; run it with a larger "
                      "--max-findings",
                      path, unlisted));
  }

  void join_findings(const Report& from) {
    for (size_t i = 0; i < from.findings.size(); ++i) {
      if (!findings_.insert(key_of(from.findings[i])).second) continue;
      const auto evidence = from.evidence.find(i);
      if (evidence != from.evidence.end()) all_.evidence[all_.findings.size()] = evidence->second;
      all_.findings.push_back(from.findings[i]);
    }
  }

  Report finished() {
    Report& r = all_;
    r.verb = first_.verb, r.version = first_.version, r.seed = first_.seed, r.arith = first_.arith;
    r.shard = shards_.to_string();
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
  Report first_;
  Status status_;
  Shards shards_;
  Report all_;
  std::map<std::tuple<std::string, std::string, std::string>, int64_t> coverage_;
  std::unordered_set<std::string> findings_;  // keys
  Lines isas_, warnings_;
};

Merge::Merge(MergeRules rules) : joined_(std::make_unique<Joined>(rules)) {}
Merge::~Merge() = default;

void Merge::add(const std::string& path, Report report) { joined_->add(path, std::move(report)); }

Status Merge::end(bool complete, Report* joined) { return joined_->end(complete, joined); }

}  // namespace shadowgraph
