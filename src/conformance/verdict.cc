#include "conformance/verdict.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "conformance/compare.h"
#include "conformance/records.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

template <class Words>
std::string join(const Words& words) {
  std::string s;
  for (const std::string& word : words) s += (s.empty() ? "" : " ") + word;
  return s.empty() ? "none" : s;
}

/// The entries of Program::diagnosis that hold for the variant, "-" included.
std::set<std::string> diagnosis_of(const Program& program, const Variant& variant) {
  std::set<std::string> entries;
  for (const std::string& entry : words_of(program.diagnosis)) {
    const size_t equals = entry.find('=');
    const std::string when = equals == std::string::npos ? "" : entry.substr(0, equals);
    if (when.empty() || when == variant.sub || when == (variant.blocking ? "b" : "n")) {
      entries.insert(equals == std::string::npos ? entry : entry.substr(equals + 1));
    }
  }
  return entries;
}

std::vector<Open> open_of(const Program& program, const Variant& variant) {
  std::vector<Open> open;
  for (const Open& o : program.open) {
    const std::vector<std::string> subs = words_of(o.subs);
    if (subs.empty() || std::find(subs.begin(), subs.end(), variant.sub) != subs.end()) {
      open.push_back(o);
    }
  }
  return open;
}

/// What a record says where the answer is open: of a call, its first return.
std::string value_of(std::string_view what, const Record& record) {
  const size_t space = what.find(' ');
  const std::string name(what.substr(space + 1));
  if (what.substr(0, space) == "fact") {
    const auto it = record.facts.find(name);
    return it == record.facts.end() ? "none" : to_string(it->second);
  }
  for (const RecordedStep& step : record.steps) {
    if (step.call == name) return step.ret ? std::to_string(*step.ret) : "none";
  }
  return "none";
}

class Judge {
 public:
  Judge(const Program& program, const Variant& variant, const Record* recorded, const Seeds& seeds)
      : program_(program),
        recorded_(recorded),
        seeds_(seeds),
        diagnosis_(diagnosis_of(program, variant)),
        laws_(expected_laws(program, variant)),
        open_(open_of(program, variant)),
        reached_(open_.size()) {}

  ProgramVerdict once(Record answer) {
    has_seeds_ = false;
    verdict_.first = std::move(answer);
    if (program_.verdict == Verdict::kUndefined || recorded_ == nullptr) {
      verdict_.why = recorded_ == nullptr ? "no recorded answer" : "CUDA leaves it undefined";
      return std::move(verdict_);
    }
    check_program();
    for (const Open& o : open_) check_member(o, verdict_.first, "");
    if (verdict_.findings.ok() && takes_recorded_members(verdict_.first)) {
      report_differences(compare(verdict_.first, *recorded_));
    }
    conclude();
    return std::move(verdict_);
  }

  ProgramVerdict run(const std::function<Observation(uint64_t seed)>& run_program,
                     const std::atomic<bool>& stop) {
    check_program();
    for (int64_t i = 0; verdict_.findings.ok() && !is_clear(i); ++i) {
      if (stop) return {Conformance::kSkipped, "interrupted", {}, {}};
      seed_ = seeds_[i];
      Observation seen = run_program(seed_);
      check_laws(seen.findings);
      if (program_.verdict != Verdict::kUndefined) check_record(seen.record);
      if (i == 0) verdict_.first = std::move(seen.record);
    }
    if (verdict_.findings.ok()) check_what_was_reached();
    conclude();
    return std::move(verdict_);
  }

 private:
  /// Whether runs 0..i-1 were enough.
  bool is_clear(int64_t i) const {
    if (i <= seeds_.count) return false;
    return open_.empty() || i >= kSetRuns || (matched_ && unreached().empty());
  }

  void differs(LawId law, std::string field, std::string expected, std::string got) {
    if (verdict_.why.empty()) verdict_.why = field + ": " + got + ", expected " + expected;
    verdict_.findings.add(
        make_finding(law, at(std::move(field)), std::move(expected), std::move(got)));
  }
  std::string with_seed(const std::string& text) const {
    return has_seeds_ ? text + " (seed " + std::to_string(seed_) + ')' : text;
  }

  /// What needs no run to be wrong.
  void check_program() {
    if (program_.verdict == Verdict::kUndefined && diagnosis_.empty()) {
      differs("conformance.diagnosis", "diagnosis", "a law, or -", "none in the program");
    }
    if (recorded_ == nullptr) return;
    for (const Open& o : open_) check_member(o, *recorded_, "recorded ");
  }

  void check_laws(Status& findings) {
    std::set<std::string> found;
    for (const Finding& f : std::as_const(findings).findings()) {
      if (!found.insert(f.id).second || laws_.contains(f.id)) continue;
      differs("conformance.diagnosis", "findings", join(laws_), with_seed(f.to_string()));
    }
    if (program_.verdict == Verdict::kUndefined) {
      for (const std::string& law : laws_) {
        if (found.contains(law)) continue;
        differs("conformance.diagnosis", "findings", law, with_seed(join(found)));
      }
    }
    found_.merge(found);
  }

  void check_record(const Record& record) {
    if (recorded_ == nullptr && open_.empty()) {
      if (!first_) first_ = record;
      return report_differences(compare(record, *first_));
    }
    for (size_t i = 0; i < open_.size(); ++i) {
      check_member(open_[i], record, "");
      reached_[i].insert(value_of(open_[i].what, record));
    }
    if (recorded_ == nullptr) {
      matched_ = true;
      return;
    }
    std::vector<Difference> differences = compare(record, *recorded_);
    if (open_.empty()) return report_differences(differences);
    matched_ |= differences.empty();
    if (takes_recorded_members(record) && (!nearest_ || differences.size() < nearest_->size())) {
      nearest_ = std::move(differences);
      nearest_seed_ = seed_;
    }
  }

  bool takes_recorded_members(const Record& record) const {
    return std::all_of(open_.begin(), open_.end(), [&](const Open& o) {
      return value_of(o.what, record) == value_of(o.what, *recorded_);
    });
  }

  void check_member(const Open& o, const Record& record, const std::string& whose) {
    const std::vector<std::string> members = words_of(o.values);
    const std::string value = value_of(o.what, record);
    if (std::find(members.begin(), members.end(), value) != members.end()) return;
    differs("conformance.set", std::string(o.what), "one of " + join(members),
            whose.empty() ? with_seed(value) : whose + value);
  }

  /// The first few: one cause often shows in many fields.
  void report_differences(const std::vector<Difference>& differences) {
    constexpr size_t kMost = 3;
    for (size_t i = 0; i < std::min(kMost, differences.size()); ++i) {
      const Difference& d = differences[i];
      if (verdict_.why.empty()) verdict_.why = with_seed(d.to_string());
      verdict_.findings.add(
          make_finding("conformance.record", at(d.field), d.recorded, with_seed(d.got)));
    }
  }

  std::vector<std::pair<std::string, std::string>> unreached() const {
    std::vector<std::pair<std::string, std::string>> members;  // what, value
    for (size_t i = 0; i < open_.size(); ++i) {
      for (const std::string& value : words_of(open_[i].values)) {
        if (!reached_[i].contains(value)) members.emplace_back(open_[i].what, value);
      }
    }
    return members;
  }

  void check_what_was_reached() {
    for (const auto& [what, value] : unreached()) {
      differs("conformance.set", what, value + " on some seed", "never");
    }
    for (const std::string& law : laws_) {
      if (!found_.contains(law)) {
        differs("conformance.diagnosis", "findings", law + " on some seed", "never");
      }
    }
    if (open_.empty() || recorded_ == nullptr || matched_) return;
    seed_ = nearest_seed_;
    if (nearest_) {
      report_differences(*nearest_);
    } else {
      differs("conformance.set", "record", "the recorded answers together on some seed", "never");
    }
  }

  void conclude() {
    if (!verdict_.findings.ok()) {
      verdict_.status = Conformance::kDiffers;
    } else if (program_.verdict == Verdict::kUndefined) {
      verdict_.status = Conformance::kDiagnosed;
      if (laws_.empty()) verdict_.why = "the device orders what CUDA leaves open: nothing to find";
    } else if (recorded_ == nullptr) {
      verdict_.status = Conformance::kSkipped;
      verdict_.why = "no recorded answer";
    } else {
      const bool set = program_.verdict == Verdict::kSet || !open_.empty();
      verdict_.status = set ? Conformance::kInSet : Conformance::kEqual;
    }
  }

  const Program& program_;
  const Record* const recorded_;
  const Seeds& seeds_;
  const std::set<std::string> diagnosis_, laws_;
  const std::vector<Open> open_;

  uint64_t seed_ = 0;
  bool has_seeds_ = true;
  ProgramVerdict verdict_;
  std::set<std::string> found_;                 // laws, on any seed
  std::vector<std::set<std::string>> reached_;  // members, of each that is open
  bool matched_ = false;                        // a run equalled the record
  std::optional<Record> first_;                 // what runs are held against without a record
  // The differences of the run that differs least, among those that took the recorded members.
  std::optional<std::vector<Difference>> nearest_;
  uint64_t nearest_seed_ = 0;
};

}  // namespace

std::string_view name_of(Conformance conformance) {
  switch (conformance) {
    case Conformance::kEqual: return "equal";
    case Conformance::kInSet: return "in_set";
    case Conformance::kDiagnosed: return "diagnosed";
    case Conformance::kDiffers: return "differs";
    case Conformance::kSkipped: return "skipped";
  }
  return "";
}

std::set<std::string> expected_laws(const Program& program, const Variant& variant) {
  std::set<std::string> laws = diagnosis_of(program, variant);
  laws.erase("-");
  return laws;
}

ProgramVerdict judge_once(const Program& program, const Variant& variant, const Record* recorded,
                          Record answer) {
  return Judge(program, variant, recorded, Seeds{}).once(std::move(answer));
}

ProgramVerdict judge(const Program& program, const Variant& variant, const Record* recorded,
                     const Seeds& seeds, const std::function<Observation(uint64_t seed)>& run,
                     const std::atomic<bool>& stop) {
  return Judge(program, variant, recorded, seeds).run(run, stop);
}

}  // namespace shadowgraph
