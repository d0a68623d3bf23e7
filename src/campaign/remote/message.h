// A worker asks the process that has the ledger, and that one answers: one message each. The worker
// waits for the answer, so that a message needs no number. Tested by tests/campaign/remote_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shadowgraph/status.h"

namespace shadowgraph {

/// The kind of a message, with the numbers and bytes of a question, and of the answer to it.
///   kCampaign   -> run.json's text
///   kCaseFile   its path -> a status and the text, as unpacked_texts
///   kClaim      -> the claim's range, deaths, and pairs of deaths_alone, or none; a status
///   kBeat       range, at, alone (0 or 1)
///   kRelease    range
///   kPublish    range; a packed result -> a status
///   kState      -> done, ranges
///   kBye        asked until the answer is not kWait
enum class MessageKind : uint64_t {
  kCampaign,
  kCaseFile,
  kClaim,
  kBeat,
  kRelease,
  kPublish,
  kState,
  kBye,
  kWait,      // to kBye: others work
  kFinalize,  // to kBye: nobody was lost, end together
  kLeave,     // to kBye: somebody was lost, end alone
  kClosed,    // to any other: there is no ledger, or no longer
  kEnd        // behind the last kind
};

struct Message {
  MessageKind kind = MessageKind::kEnd;
  std::vector<uint64_t> numbers = {};
  std::string bytes = {};
};

std::string packed(const Message& message);
/// None if the bytes are no message.
std::optional<Message> message_of(const std::string& bytes);

/// A status as a message's bytes: none for one that is ok.
std::string packed(const Status& status);
/// io.report where the bytes are no status.
Status status_of(const std::string& bytes);

}  // namespace shadowgraph
