#include "campaign/remote/remote_queue.h"

#include <chrono>
#include <thread>
#include <utility>

#include "campaign/campaign_json.h"
#include "io/file.h"

namespace shadowgraph {
namespace {

constexpr const char* kServer = "rank 0";

Status no_answer() {
  Status status;
  status.add(file_finding("io.ledger", kServer, "answer", "one to each message",
                          "none: it has ended, has no ledger, or is lost"));
  return status;
}

}  // namespace

std::optional<Message> Client::ask(const Message& request) {
  if (lost_) return std::nullopt;
  transport_.send(0, packed(request));
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience_);
  Pause pause;
  while (std::chrono::steady_clock::now() < end) {
    if (const auto parcel = transport_.receive()) return message_of(parcel->bytes);
    pause.rest();
  }
  *stop_ = lost_ = true;
  return std::nullopt;
}

bool Client::bye() {
  while (true) {
    const std::optional<Message> answer = ask({.kind = MessageKind::kBye});
    if (!answer || answer->kind != MessageKind::kWait)
      return answer && answer->kind == MessageKind::kFinalize;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

Status RemoteQueue::open(Client& client, const Campaign& campaign,
                         std::unique_ptr<RemoteQueue>* queue) {
  const std::optional<Message> answer = client.ask({.kind = MessageKind::kCampaign});
  if (!answer || answer->kind != MessageKind::kCampaign) return no_answer();
  Campaign kept;
  Status status = parse_campaign(answer->bytes, kServer, &kept);
  if (status.ok()) status = compare(kept, campaign, kServer);
  if (status.ok()) queue->reset(new RemoteQueue(client, std::move(kept)));
  return status;
}

Status RemoteQueue::case_file(const std::string& path, std::string* text) {
  const std::optional<Message> answer =
      client_.ask({.kind = MessageKind::kCaseFile, .bytes = path});
  if (!answer || answer->kind != MessageKind::kCaseFile) return no_answer();
  std::vector<std::string> texts = unpacked_texts(answer->bytes);
  texts.resize(2);
  *text = std::move(texts[1]);
  return status_of(texts[0]);
}

Status RemoteQueue::claim(std::optional<Claim>* claim) {
  claim->reset();
  const std::optional<Message> answer = client_.ask({.kind = MessageKind::kClaim});
  if (!answer || answer->kind != MessageKind::kClaim) return trouble_ = no_answer();
  const std::vector<uint64_t>& n = answer->numbers;
  if (n.size() >= 2) *claim = Claim{.range = n[0], .deaths = n[1]};
  for (size_t i = 2; i + 1 < n.size(); i += 2) (*claim)->deaths_alone[n[i]] = n[i + 1];
  return trouble_ = status_of(answer->bytes);
}

void RemoteQueue::beat(uint64_t range, uint64_t at, bool alone) {
  (void)client_.ask({.kind = MessageKind::kBeat, .numbers = {range, at, alone}});
}

void RemoteQueue::release(uint64_t range) {
  (void)client_.ask({.kind = MessageKind::kRelease, .numbers = {range}});
}

Status RemoteQueue::publish(uint64_t range, const RangeResult& result) {
  const std::optional<Message> answer =
      client_.ask({.kind = MessageKind::kPublish, .numbers = {range}, .bytes = packed(result)});
  if (!answer || answer->kind != MessageKind::kPublish) return trouble_ = no_answer();
  return trouble_ = status_of(answer->bytes);
}

QueueState RemoteQueue::state() {
  const std::optional<Message> answer = client_.ask({.kind = MessageKind::kState});
  if (!answer || answer->kind != MessageKind::kState || answer->numbers.size() != 2) return {};
  return {answer->numbers[0], answer->numbers[1]};
}

}  // namespace shadowgraph
