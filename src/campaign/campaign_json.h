// The small files of a ledger as JSON: run.json, claims, and lines of lost/N.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "campaign/campaign.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

std::string to_json(const Campaign& campaign);
/// io.ledger; *campaign is then untouched. name: the file's.
Status parse_campaign(std::string_view text, const std::string& name, Campaign* campaign);
/// io.ledger, a finding for each value that a worker's campaign has otherwise; the corpus is the
/// ledger's.
Status compare(const Campaign& ledger, const Campaign& worker, const std::string& name);

/// One line: who works on a range, and where it is.
struct ClaimNote {
  std::string worker;
  uint64_t at = 0;
  bool alone = false;
};
/// Padded to one length, so that a later one covers an earlier one.
std::string to_json(const ClaimNote& note);
/// Lines that are no notes are left out: they only save work.
std::vector<ClaimNote> parse_notes(std::string_view lines);

}  // namespace shadowgraph
