// A process that runs parts of ranges, one after the other, and may die of them.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <optional>
#include <span>
#include <string>

#include "campaign/campaign.h"

namespace shadowgraph {

class Child {
 public:
  /// Forks. The child ends with this process, whatever ends it, and does not react to Ctrl-C.
  explicit Child(const RunRange& run);
  /// Kills it.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// It must have nothing to do. files: of a part of the corpus.
  void start(const CampaignRange& part, std::span<const CaseFile> files);
  /// Readable once there is a result, or once it has died.
  int fd() const { return results_; }
  /// Takes what is there. A result, if it is whole; it may have died behind that.
  std::optional<RangeResult> read();
  /// How it died, once read() saw that: "signal 11 (Segmentation fault)", "exit code 4". Empty: it
  /// lives.
  const std::string& death() const { return death_; }
  bool was_killed() const { return was_killed_; }  // by SIGKILL, which says nothing of the case
  void kill() const;
  /// The case in work.
  uint64_t at() const { return *at_; }

 private:
  [[noreturn]] void live(const RunRange& run, int requests, int results) const;
  void bury();

  pid_t pid_ = -1;
  int requests_ = -1, results_ = -1;
  std::atomic<uint64_t>* const at_;  // in memory that both have
  std::string bytes_, death_;
  bool was_killed_ = false;
};

}  // namespace shadowgraph
