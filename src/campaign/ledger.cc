#include "campaign/ledger.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <limits>
#include <set>
#include <utility>

#include "campaign/campaign_json.h"
#include "campaign/folder.h"
#include "core/choices.h"
#include "core/fnv.h"
#include "io/file.h"
#include "report/read.h"

namespace shadowgraph {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSegment = 256;  // ranges
constexpr uint64_t kNoEnd = std::numeric_limits<uint64_t>::max();

Finding two_results(uint64_t range, const std::string& folder) {
  return file_finding("run.nondeterminism", fmt::format("range {}", range), "result",
                      "one, whoever runs it", "two: kept.json and other.json in " + folder);
}

Status no_ledger(const std::string& folder, std::string expected, std::string got) {
  Status status;
  status.add(file_finding("io.ledger", folder, "folder", std::move(expected), std::move(got)));
  return status;
}

/// A ledger's files, and what this process knows of them.
class FolderLedger final : public Ledger {
 public:
  /// head: the text of its run.json.
  FolderLedger(std::string path, std::string head, Campaign campaign)
      : path_(std::move(path)), head_(std::move(head)), campaign_(std::move(campaign)) {
    // Workers begin in different segments, and so list different folders.
    if (campaign_.ranges() > 0) start_ = fnv1a(worker_) % segments();
  }

  const Campaign& campaign() const override { return campaign_; }

  Status case_file(const std::string& path, std::string* text) override {
    return read_text(path_ + "/corpus/" + path, text);
  }

  Status claim(std::optional<Claim>* claim) override {
    claim->reset();
    for (uint64_t i = 0; segments() == 0 || i <= segments(); ++i) {
      while (!free_.empty()) {
        const uint64_t range = free_.front();
        free_.pop_front();
        bool taken = false;
        Status status = take(range, &taken);
        if (!status.ok()) return status;
        if (!taken) continue;
        *claim = claim_of(range);
        return status;
      }
      if (i == segments() && segments() > 0) break;
      if (segments() == 0)
        while (is_reduced(start_)) ++start_;
      Status status = look_into(segments() > 0 ? (start_ + i) % segments() : start_ + i);
      if (!status.ok()) return status;
    }
    return {};
  }

  void beat(uint64_t range, uint64_t at, bool alone) override {
    touch_file(claim_path(range), to_json({worker_, at, alone}));
  }

  void release(uint64_t range) override { ::unlink(claim_path(range).c_str()); }

  Status publish(uint64_t range, const RangeResult& result) override {
    Status status = is_there();
    if (!status.ok() || is_reduced(range / kSegment)) return status;
    status = make_folder(folder_of(range / kSegment) + "/done");
    for (const auto& [law, text] : result.failures) status.add(keep_failure(law, text));
    if (!status.ok()) return status;
    bool put = false;
    status = put_text(done_path(range), result.body, &put);
    if (!status.ok() && is_reduced(range / kSegment)) return {};  // another worker's is in there
    if (status.ok() && !put) status = compare_with_kept(range, result.body);
    const bool kept = status.ok() || exists(done_path(range));
    if (kept) release(range);
    if (status.ok() && put) reduce_if_done(range / kSegment);
    return status;
  }

  QueueState state() override {
    QueueState s{0, campaign_.ranges()};
    for (const uint64_t segment : segments_with(".json")) (void)is_reduced(segment);
    for (const uint64_t segment : reduced_) s.done += ranges_of(segment);
    for (const uint64_t segment : segments_with("")) {
      if (!reduced_.contains(segment)) s.done += done_in(segment).size();
    }
    return s;
  }

  Status collect(Report* joined, std::vector<uint64_t>* missing) override {
    std::set<uint64_t> all = segments_with(".json");
    all.merge(segments_with(""));
    Merge merge(rules());
    Status status;
    std::set<uint64_t> gaps;
    for (uint64_t segment = 0; segment < std::max(segments(), all.empty() ? 0 : *all.rbegin() + 1);
         ++segment)
      status.add(collect_segment(segment, &merge, &gaps));
    if (campaign_.ranges() == 0) gaps.erase(gaps.lower_bound(done_end_), gaps.end());
    missing->assign(gaps.begin(), gaps.end());
    if (!status.ok()) return status;
    status = merge.end(false, joined);
    if (status.ok()) add_differences(joined);
    return status;
  }

 private:
  std::string folder_of(uint64_t segment) const { return fmt::format("{}/seg/{}", path_, segment); }
  std::string path_of(uint64_t segment) const { return folder_of(segment) + ".json"; }
  std::string claim_path(uint64_t range) const {
    return fmt::format("{}/claim/{}", folder_of(range / kSegment), range);
  }
  std::string done_path(uint64_t range) const {
    return fmt::format("{}/done/{}.json", folder_of(range / kSegment), range);
  }
  std::string lost_path(uint64_t range) const { return fmt::format("{}/lost/{}", path_, range); }

  /// 0: without an end.
  uint64_t segments() const { return (campaign_.ranges() + kSegment - 1) / kSegment; }
  uint64_t ranges_of(uint64_t segment) const {
    if (campaign_.ranges() == 0) return kSegment;
    return std::min(kSegment, campaign_.ranges() - segment * kSegment);
  }
  std::set<uint64_t> segments_with(std::string_view suffix) const {
    return numbers_in(path_ + "/seg", suffix, 0, segments() > 0 ? segments() : kNoEnd);
  }
  std::set<uint64_t> numbers_of(uint64_t segment, const char* folder,
                                std::string_view suffix) const {
    const uint64_t first = segment * kSegment;
    return numbers_in(fmt::format("{}/{}", folder_of(segment), folder), suffix, first,
                      first + ranges_of(segment));
  }
  std::set<uint64_t> done_in(uint64_t segment) const {
    return numbers_of(segment, "done", ".json");
  }

  /// Nobody has removed the ledger, or begun another campaign in its place.
  Status is_there() const {
    std::string head;
    Status status = read_text(path_ + "/run.json", &head);
    if (status.ok() && head != head_)
      status.add(file_finding("io.ledger", path_ + "/run.json", "file",
                              "the campaign that this worker is of", "another one, begun anew"));
    return status;
  }

  MergeRules rules() const {
    return {.checks_parts = false, .most_of_a_law = campaign_.most_of_a_law};
  }

  bool is_reduced(uint64_t segment) {
    if (!reduced_.contains(segment) && exists(path_of(segment))) {
      reduced_.insert(segment);
      std::error_code left_by_one_that_was_killed;
      fs::remove_all(folder_of(segment), left_by_one_that_was_killed);
    }
    return reduced_.contains(segment);
  }

  /// Finds the ranges of a segment that are free; joins its results if all are there.
  Status look_into(uint64_t segment) {
    if (is_reduced(segment)) return {};
    Status status = is_there();
    if (!status.ok()) return status;
    status = make_folder(folder_of(segment) + "/claim");
    status.add(make_folder(folder_of(segment) + "/done"));
    if (!status.ok()) return status;
    const std::set<uint64_t> claimed = numbers_of(segment, "claim", ""), done = done_in(segment);
    if (done.size() == ranges_of(segment)) {
      reduce(segment);
      return {};
    }
    std::vector<uint64_t> old;
    for (uint64_t range = segment * kSegment; range < segment * kSegment + ranges_of(segment);
         ++range) {
      if (done.contains(range)) continue;
      if (claimed.contains(range)) {
        old.push_back(range);
      } else {
        free_.push_back(range);
      }
    }
    if (free_.empty()) free_stale(segment, old);
    // Workers that look at once try different ones first.
    Rng rng(fnv1a(worker_) ^ free_.size());
    std::vector<uint64_t> order(free_.begin(), free_.end());
    if (campaign_.ranges() > 0) shuffle(order, rng);
    free_.assign(order.begin(), order.end());
    return {};
  }

  /// Takes the claims of lost workers away.
  void free_stale(uint64_t segment, const std::vector<uint64_t>& claimed) {
    if (claimed.empty()) return;
    const std::optional<double> now = now_in(folder_of(segment));
    for (const uint64_t range : claimed) {
      if (now && is_stale(claim_path(range), *now) && take_away(range, *now))
        free_.push_back(range);
    }
  }
  bool is_stale(const std::string& path, double now) const {
    const std::optional<double> touched = touched_at(path);
    return touched && now - *touched > campaign_.stale_seconds;
  }
  /// One of several workers succeeds.
  bool take_away(uint64_t range, double now) const {
    const std::string claim = claim_path(range), mine = claim + ".lost." + worker_;
    if (std::rename(claim.c_str(), mine.c_str()) != 0) return false;
    std::string note;
    const bool lost = is_stale(mine, now);
    if (lost && read_text(mine, &note).ok() && make_folder(path_ + "/lost").ok())
      append_line(lost_path(range), note);
    if (!lost) (void)::link(mine.c_str(), claim.c_str());  // another worker's new one
    ::unlink(mine.c_str());
    return lost;
  }

  Status take(uint64_t range, bool* taken) {
    const int error = create_file(claim_path(range), to_json({worker_, 0, false}));
    *taken = error == 0 && !exists(done_path(range)) && !is_reduced(range / kSegment);
    if (error == 0 && !*taken) release(range);
    if (error == 0 || error == EEXIST || error == ENOENT) return {};
    Status status;
    status.add(
        file_finding("io.write", claim_path(range), "file", "a new file", std::strerror(error)));
    return status;
  }

  Claim claim_of(uint64_t range) const {
    Claim claim;
    claim.range = range;
    std::string lines;
    if (!exists(lost_path(range)) || !read_text(lost_path(range), &lines).ok()) return claim;
    const std::vector<ClaimNote> notes = parse_notes(lines);
    claim.deaths = notes.size();
    for (const ClaimNote& note : notes)
      if (note.alone) ++claim.deaths_alone[note.at];
    return claim;
  }

  Status keep_failure(const std::string& law, const std::string& text) const {
    const std::string folder = path_ + "/corpus/" + law;
    Status status = make_folder(folder);
    bool put = false;
    if (status.ok())
      status = put_text(fmt::format("{}/{:016x}.json", folder, fnv1a(text)), text, &put);
    return status;
  }

  Status compare_with_kept(uint64_t range, const std::string& body) {
    std::string kept;
    Status status = read_text(done_path(range), &kept);
    if (!status.ok() && is_reduced(range / kSegment)) return {};
    if (!status.ok() || kept == body) return status;
    const std::string folder = fmt::format("{}/differs/{}", path_, range);
    bool put = false;
    status = make_folder(folder);
    if (status.ok()) status = put_text(folder + "/kept.json", kept, &put);
    if (status.ok()) status = put_text(folder + "/other.json", body, &put);
    status.add(two_results(range, fmt::format("differs/{}", range)));
    return status;
  }
  /// They are the campaign's finding, not only that of who came second.
  void add_differences(Report* joined) const {
    for (const uint64_t range : numbers_in(path_ + "/differs", "", 0, kNoEnd))
      joined->findings.push_back(two_results(range, fmt::format("differs/{}", range)));
  }

  void reduce_if_done(uint64_t segment) {
    if (done_in(segment).size() == ranges_of(segment)) reduce(segment);
  }
  /// Joins the results of a segment that is done, and removes them.
  void reduce(uint64_t segment) {
    if (unreadable_.contains(segment)) return;
    Merge merge(rules());
    std::set<uint64_t> gaps;
    Report joined;
    Status status = collect_segment(segment, &merge, &gaps);
    if (status.ok() && gaps.empty() && !exists(path_of(segment))) {
      status = merge.end(false, &joined);
      bool put = false;
      if (status.ok())
        status =
            put_text(path_of(segment), body_of(std::move(joined), campaign_.most_of_a_law), &put);
    }
    if (status.ok()) {
      (void)is_reduced(segment);
    } else {
      unreadable_.insert(segment);  // collect() says so; others' ranges are to be run
    }
  }

  /// Adds a segment's results to a merge.
  Status collect_segment(uint64_t segment, Merge* merge, std::set<uint64_t>* gaps) {
    std::vector<std::pair<std::string, Report>> reports;
    Status status = read_segment(segment, &reports, gaps);
    for (auto& [path, report] : reports) merge->add(path, std::move(report));
    return status;
  }
  Status read_segment(uint64_t segment, std::vector<std::pair<std::string, Report>>* reports,
                      std::set<uint64_t>* gaps) {
    const uint64_t first = segment * kSegment, end = first + ranges_of(segment);
    Status status;
    if (!exists(path_of(segment))) {
      const std::set<uint64_t> done = done_in(segment);
      std::set<uint64_t> missing;
      for (uint64_t range = first; range < end; ++range) {
        if (!done.contains(range)) {
          missing.insert(range);
          continue;
        }
        reports->emplace_back(done_path(range), Report());
        status.add(read_result(done_path(range), &reports->back().second));
        done_end_ = range + 1;
      }
      if (!exists(path_of(segment))) {  // else it was reduced meanwhile
        gaps->merge(missing);
        return status;
      }
    }
    reports->clear();
    reports->emplace_back(path_of(segment), Report());
    done_end_ = end;
    return read_result(path_of(segment), &reports->back().second);
  }
  static Status read_result(const std::string& path, Report* report) {
    Status status = read_report(path, report);
    if (!status.ok())
      status.add(file_finding("io.ledger", path, "file", "a whole result",
                              "a damaged one: remove the file and start a worker, who runs its "
                              "ranges again"));
    return status;
  }

  const std::string path_, head_;
  const Campaign campaign_;
  const std::string worker_ = name_of_process();
  uint64_t start_ = 0;                       // segment
  std::deque<uint64_t> free_;                // ranges, when last looked at
  std::set<uint64_t> reduced_, unreadable_;  // segments
  uint64_t done_end_ = 0;                    // behind the last result that collect() saw
};

/// The case files of a folder, "LAW/NAME.json", in the order of names.
std::vector<std::string> corpus_of(const std::string& folder) {
  std::set<std::string> paths;
  std::error_code error;
  for (const fs::directory_entry& law : fs::directory_iterator(folder, error)) {
    for (const fs::directory_entry& file : fs::directory_iterator(law.path(), error)) {
      const fs::path path = law.path().filename() / file.path().filename();
      const bool hidden =
          path.string().starts_with('.') || path.string().find("/.") != std::string::npos;
      if (path.extension() == ".json" && !hidden) paths.insert(path.string());
    }
  }
  return {paths.begin(), paths.end()};
}

/// Puts run.json, unless there is one; refuses a folder of other things.
Status begin(const std::string& folder, Campaign campaign) {
  // None above it is made: a share that is not mounted must not look like an empty one.
  const std::string above = fs::path(folder).parent_path().string();
  if (!above.empty() && !exists(above))
    return no_ledger(folder, "a place in a folder that is there", "there is no " + above);
  Status status = make_folder(folder);
  if (!status.ok()) return status;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool begun = name == "corpus" || name.starts_with("run.json");
    if (!begun && !exists(folder + "/run.json"))
      return no_ledger(folder, "a ledger (run.json), an empty folder, or one with a corpus alone",
                       "no run.json, but " + printable(name));
  }
  campaign.corpus = corpus_of(folder + "/corpus");
  bool put = false;
  return put_text(folder + "/run.json", to_json(campaign), &put);
}

Status read_head(const std::string& folder, std::string* text, Campaign* campaign) {
  const std::string path = folder + "/run.json";
  Status status = read_text(path, text);
  if (status.ok()) status = parse_campaign(*text, path, campaign);
  return status;
}

}  // namespace

Status Ledger::open(const std::string& folder, const Campaign& campaign,
                    std::unique_ptr<Ledger>* ledger) {
  Status status;
  if (!exists(folder + "/run.json")) status = begin(folder, campaign);
  std::unique_ptr<Ledger> opened;
  if (status.ok()) status = open(folder, &opened);
  if (status.ok()) status = compare(opened->campaign(), campaign, folder);
  if (status.ok()) *ledger = std::move(opened);
  return status;
}

Status Ledger::open(const std::string& folder, std::unique_ptr<Ledger>* ledger) {
  if (!exists(folder + "/run.json")) return no_ledger(folder, "a ledger", "no run.json");
  std::string head;
  Campaign kept;
  Status status = read_head(folder, &head, &kept);
  if (status.ok())
    *ledger = std::make_unique<FolderLedger>(folder, std::move(head), std::move(kept));
  return status;
}

}  // namespace shadowgraph
