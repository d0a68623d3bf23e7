#include "campaign/remote/message.h"

#include <cstring>

#include "campaign/campaign.h"
#include "report/read.h"

namespace shadowgraph {

std::string packed(const Message& message) {
  std::vector<uint64_t> head = {static_cast<uint64_t>(message.kind), message.numbers.size()};
  head.insert(head.end(), message.numbers.begin(), message.numbers.end());
  std::string bytes(reinterpret_cast<const char*>(head.data()), head.size() * sizeof(uint64_t));
  return bytes + message.bytes;
}

std::optional<Message> message_of(const std::string& bytes) {
  uint64_t head[2];  // kind, count of numbers
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(head, bytes.data(), sizeof head);
  const auto [kind, count] = head;
  if (kind >= static_cast<uint64_t>(MessageKind::kEnd)) return std::nullopt;
  if (count > (bytes.size() - sizeof head) / sizeof(uint64_t)) return std::nullopt;
  Message message{.kind = static_cast<MessageKind>(kind), .numbers = std::vector<uint64_t>(count)};
  const size_t end = sizeof head + count * sizeof(uint64_t);
  if (count > 0) std::memcpy(message.numbers.data(), bytes.data() + sizeof head, end - sizeof head);
  message.bytes = bytes.substr(end);
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
