// The options of `fuzz`, and its ways to run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "campaign.h"
#include "cli.h"
#include "core/shard.h"
#include "fuzz/fuzz.h"
#include "gpu.h"

namespace shadowgraph::cli {

struct FuzzCommand {
  Common common;
  CampaignOptions campaign;
  double seconds = 60;
  uint64_t cases = 0;
  uint64_t first = 0;
  bool seconds_given = false, first_given = false;
  Shard shard;                        // of the cases' numbers
  std::string exhaustive;             // a grid's name; empty: random cases
  std::vector<std::string> backends;  // empty: all, and the kernels
  std::vector<std::string> plants;
  std::string save_failures;  // a folder; empty: none
  std::string digest;         // a file; empty: none
  std::string choices;        // of one history
  DeviceKind device = DeviceKind::kSim;
  bool choices_given = false;
};

/// The things that the options name, looked up.
struct Chosen {
  std::vector<const Backend*> backends;
  bool kernels = true;
  std::vector<const Fault*> faults;
  std::string flags;              // to choose the same again
  std::vector<std::string> refs;  // of what is planted
  std::string plants;             // those of faults alone
};

inline constexpr std::string_view kNotOfShard = "--shard: none of these cases is of this shard";
inline constexpr const char* kOthers = "give it other cases: `shadowgraph fuzz --plant`";
inline constexpr std::string_view kNoStep = "the history has no step that its backend runs";

RunOptions run_options(const FuzzCommand& options, DeviceCalls* device = nullptr);
Report begin_report(const FuzzCommand& options);
/// The cases that the options name.
CaseRange range_of(const FuzzCommand& options);
/// At the end of a run.
void say_what_is_void(const Planted& planted, bool changed, const std::string& nothing,
                      const std::string& more, Report* report);

/// Writes the digest of what ran, if the options want it.
void save_digest(const FuzzCommand& options, std::span<const RunRecord> runs, Report* report);

/// Writes the cases of a result that failed into the folder that the options name, if any.
void save_failures(const FuzzResult& result, const FuzzCommand& options, const Chosen& chosen,
                   Report* report);

/// Random calls and histories.
int run_random(const FuzzCommand& options, const Chosen& chosen);
/// Everything up to a small size. Throws UsageError.
int run_grid(const FuzzCommand& options, const Chosen& chosen);

/// The same as the cases of a campaign.
VerbCampaign random_campaign(const FuzzCommand& options, const Chosen& chosen);
VerbCampaign grid_campaign(const FuzzCommand& options, const Chosen& chosen);

}  // namespace shadowgraph::cli
