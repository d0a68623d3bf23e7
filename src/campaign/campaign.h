// A campaign: numbered cases, cut into ranges, that any number of processes on any number of
// machines run, started by anyone. A case is a pure function of the campaign and its number, so a
// range has one result whoever runs it, and whatever died before.
//
//   Queue   hands out ranges, and takes their results: a Ledger (a folder), or a connection to one
//   worker  runs ranges in child processes
//   Ledger  keeps one result of each range; collect() joins them
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "report/report.h"

namespace shadowgraph {

/// The workers of a campaign agree on this: all that its results depend on.
struct Campaign {
  std::vector<std::pair<std::string, std::string>> options;  // "verb": "fuzz", "seed": "7", ...
  uint64_t cases = 0;                                        // 0: without an end
  uint64_t range = 128;                                      // cases of a range
  size_t most_of_a_law = 10;  // failing cases of one law that are listed; all are counted
  double stale_seconds = 60;  // a claim that nobody touched for so long is free again
  double case_seconds = 60;   // a case that takes longer breaks run.hang
  /// Case files that are played before the cases, by their paths below the folder "corpus": what
  /// the folder held when the campaign began. Their ranges come first: with 20 files and ranges of
  /// 16, ranges 0 and 1 are files, and range 2 has the cases 0 to 15.
  std::vector<std::string> corpus;

  uint64_t corpus_ranges() const { return (corpus.size() + range - 1) / range; }
  /// Those of the corpus, too; 0: without an end.
  uint64_t ranges() const { return cases == 0 ? 0 : corpus_ranges() + (cases + range - 1) / range; }
};

/// The items of a range: files of the corpus, or cases, from 0 on.
struct CampaignRange {
  bool corpus = false;
  uint64_t first = 0, count = 0;
};
CampaignRange range_of(const Campaign& campaign, uint64_t number);

/// A range's result.
struct RangeResult {
  /// A report/1 without times, threads and instruction set (body_of): the same bytes whoever ran
  /// it.
  std::string body;
  /// Shrunk failing cases as files: law, text.
  std::vector<std::pair<std::string, std::string>> failures;
};

/// The bytes of a report as a ledger keeps it, of each law so many failing cases listed
/// (MergeRules).
std::string body_of(Report report, size_t most_of_a_law);

/// Texts, and results, as bytes, for pipes and messages.
std::string packed(std::span<const std::string> texts);
std::vector<std::string> unpacked_texts(const std::string& bytes);
std::string packed(const RangeResult& result);
RangeResult unpacked(const std::string& bytes);

/// A file of the corpus.
struct CaseFile {
  std::string path, text;  // "num.bound/89abcdef01234567.json"
};

/// For work that nobody stops: a child does not react to Ctrl-C.
inline const std::atomic<bool> kNeverStopped = false;

/// Runs a part of a range in this process, one case after the other. files: its part of the corpus;
/// of cases none. at(number) is called before each: of the cases, or of the corpus.
using RunRange =
    std::function<RangeResult(const CampaignRange& range, std::span<const CaseFile> files,
                              const std::function<void(uint64_t)>& at)>;

}  // namespace shadowgraph
