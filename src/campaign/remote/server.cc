#include "campaign/remote/server.h"

#include <algorithm>
#include <chrono>

#include "campaign/campaign_json.h"

namespace shadowgraph {
namespace {

/// Messages first: a worker is silent only if this process listened.
template <class Done>
void answer_until(Transport& transport, Server* server, const Done& done) {
  Pause pause;
  while (true) {
    while (const std::optional<Parcel> parcel = transport.receive()) {
      pause.reset();
      if (const std::optional<Message> request = message_of(parcel->bytes))
        transport.send(parcel->from, packed(server->answer(parcel->from, *request, seconds_now())));
    }
    if (done(seconds_now())) return;
    pause.rest();
  }
}

std::vector<uint64_t> numbers_of(const Claim& claim) {
  std::vector<uint64_t> numbers = {claim.range, claim.deaths};
  for (const auto& [at, deaths] : claim.deaths_alone)
    numbers.push_back(at), numbers.push_back(deaths);
  return numbers;
}

}  // namespace

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Server::Server(int workers, double stale_seconds, double now)
    : workers_(static_cast<size_t>(workers), Worker{.heard = now}), stale_seconds_(stale_seconds) {}

Message Server::answer(int worker, const Message& request, double now) {
  Worker& w = workers_[static_cast<size_t>(worker) - 1];
  w.heard = now;
  w.bye = request.kind == MessageKind::kBye;
  if (w.bye) return {.kind = end_of(&w, now)};
  return queue_ == nullptr ? Message{.kind = MessageKind::kClosed} : answer_of_queue(request);
}

MessageKind Server::end_of(Worker* worker, double now) {
  if (!closed_ || !is_over(now)) return MessageKind::kWait;
  if (end_ == MessageKind::kWait)
    end_ =
        std::ranges::all_of(workers_, &Worker::bye) ? MessageKind::kFinalize : MessageKind::kLeave;
  worker->told = true;
  return end_;
}

Message Server::answer_of_queue(const Message& request) {
  Message answer{.kind = request.kind};
  std::vector<uint64_t> n = request.numbers;
  n.resize(3);
  if (request.kind == MessageKind::kCampaign) {
    answer.bytes = to_json(queue_->campaign());
  } else if (request.kind == MessageKind::kCaseFile) {
    std::string text;
    const std::string status = packed(queue_->case_file(request.bytes, &text));
    const std::string texts[] = {status, text};
    answer.bytes = packed(texts);
  } else if (request.kind == MessageKind::kClaim) {
    std::optional<Claim> claim;
    answer.bytes = packed(queue_->claim(&claim));
    if (claim) answer.numbers = numbers_of(*claim);
  } else if (request.kind == MessageKind::kBeat) {
    queue_->beat(n[0], n[1], n[2] != 0);
  } else if (request.kind == MessageKind::kRelease) {
    queue_->release(n[0]);
  } else if (request.kind == MessageKind::kPublish) {
    answer.bytes = packed(queue_->publish(n[0], unpacked(request.bytes)));
  } else if (request.kind == MessageKind::kState) {
    const QueueState state = queue_->state();
    answer.numbers = {state.done, state.ranges};
  } else {
    answer.kind = MessageKind::kClosed;
  }
  return answer;
}

bool Server::is_over(double now) const {
  return std::ranges::all_of(workers_, [&](const Worker& w) { return w.bye || is_silent(w, now); });
}

bool Server::is_left(double now) const {
  return std::ranges::all_of(workers_,
                             [&](const Worker& w) { return w.told || is_silent(w, now); });
}

void serve(Transport& transport, Server* server, Queue* queue) {
  server->open(queue);
  answer_until(transport, server, [&](double now) { return server->is_over(now); });
}

bool dismiss(Transport& transport, Server* server) {
  server->close();
  answer_until(transport, server, [&](double now) { return server->is_left(now); });
  return server->ends_together();
}

}  // namespace shadowgraph
