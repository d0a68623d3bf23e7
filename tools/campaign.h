// The verbs whose cases a ledger shares out among any number of processes have this in common.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "campaign/queue.h"
#include "campaign/worker.h"
#include "cli.h"

namespace shadowgraph::cli {

/// --ledger and what goes with it.
struct CampaignOptions {
  std::string ledger;  // a folder; empty: the verb runs alone
  uint64_t range = 0;  // 0: the verb's
  double stale_seconds = 60, case_seconds = 60;
  size_t max_findings = 10;  // of a law
};

/// Takes --ledger, --range, --stale-seconds and --case-seconds.
Option add_campaign(Command& command, CampaignOptions& options);

/// A verb's cases as a campaign.
struct VerbCampaign {
  const std::string& verb() const { return campaign.options[0].second; }

  Campaign campaign;  // its options are what results depend on
  RunRange run;
  /// "seed 7 case 12", and the command that runs these cases again.
  std::function<std::string(const CampaignRange&)> name, reproduce;
  double seconds = 0;  // of a worker; 0: until the campaign is complete
};

/// Starts a campaign with what every verb's results depend on: verb, version, seed, arith.
VerbCampaign start_campaign(const std::string& verb, const Common& common,
                            const CampaignOptions& options);

/// Works on a campaign, and says what came of this process's part. Returns the exit code.
using RunCampaign = std::function<int(const Common&, const CampaignOptions&, const VerbCampaign&)>;
/// On the ledger in a folder that this process sees.
int run_on_ledger(const Common& common, const CampaignOptions& options, const VerbCampaign& verb);
/// The same on a queue that is open.
int run_on_queue(Queue& queue, const Common& common, const std::string& ledger,
                 const VerbCampaign& verb);

/// Why there is no campaign.
Report refusal(const Status& status, const Common& common, const VerbCampaign& verb);
/// Prints the verdict on all ranges of a ledger, as `merge-reports` does. Returns the exit code.
int merge_ledger(const Common& common, const std::string& folder);

/// The verbs that can, of a program that reaches a ledger in another way, and runs nothing without.
Verb add_fuzz(CLI::App& app, const RunCampaign& elsewhere);

/// A ledger's results name files of its corpus by their paths in it; commands to copy name the
/// ledger, too.
void name_corpus(const std::string& ledger, Report* report);

/// "17 of 40 ranges are done", "17 ranges are done".
std::string text_of(const QueueState& state);

}  // namespace shadowgraph::cli
