#include "campaign/remote/message.h"

#include <cstring>

#include "campaign/campaign.h"
#include "report/read.h"

namespace shadowgraph {

std::string packed(const Message& message) {
  const uint64_t word = static_cast<uint64_t>(message.word);
  std::string bytes(reinterpret_cast<const char*>(&word), sizeof word);
  bytes.append(reinterpret_cast<const char*>(message.numbers.data()), sizeof message.numbers);
  return bytes + message.bytes;
}

std::optional<Message> message_of(const std::string& bytes) {
  Message message;
  uint64_t word = 0;
  constexpr size_t kHead = sizeof word + sizeof message.numbers;
  if (bytes.size() < kHead) return std::nullopt;
  std::memcpy(&word, bytes.data(), sizeof word);
  if (word >= static_cast<uint64_t>(Word::kEnd)) return std::nullopt;
  message.word = static_cast<Word>(word);
  std::memcpy(message.numbers.data(), bytes.data() + sizeof word, sizeof message.numbers);
  message.bytes = bytes.substr(kHead);
  return message;
}

std::string packed(const Status& status) {
  if (status.ok()) return "";
  Report report;
  report.findings.assign(status.findings().begin(), status.findings().end());
  return body_of(std::move(report), 0);
}

Status status_of(const std::string& bytes) {
  if (bytes.empty()) return {};
  Report report;
  Status status = parse_report(bytes, "answer", &report);
  for (Finding& finding : report.findings) status.add(std::move(finding));
  return status;
}

}  // namespace shadowgraph
