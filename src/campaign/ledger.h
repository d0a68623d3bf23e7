// The ledger of a campaign: a folder that holds all of its state, on any file system that several
// machines see. Its form, for people and other programs, is docs/campaigns.md.
//
// Correct by one operation alone: a result is put where there is none (link(2)). Claims only save
// work. No clock but the file server's is read.
#pragma once

#include <memory>
#include <string>

#include "campaign/queue.h"
#include "report/merge.h"

namespace shadowgraph {

class Ledger : public Queue {
 public:
  /// Opens the ledger in that folder, or begins it there (the folder is made, in one that is there;
  /// it may hold a `corpus`). A ledger of another campaign is io.ledger, a finding for each option
  /// that differs; *ledger is then untouched.
  static Status open(const std::string& folder, const Campaign& campaign,
                     std::unique_ptr<Ledger>* ledger);
  /// Opens what is there, whatever campaign it is.
  static Status open(const std::string& folder, std::unique_ptr<Ledger>* ledger);
  /// Joins all results, in the order of ranges. *missing: ranges without one (of a campaign without
  /// an end: below the last that has one).
  virtual Status collect(Report* joined, std::vector<uint64_t>* missing) = 0;
};

}  // namespace shadowgraph
