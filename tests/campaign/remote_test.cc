// A queue on another machine, without machines: messages, both sides, and how they end.
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "campaign/remote/message.h"
#include "campaign/remote/remote_queue.h"
#include "campaign/remote/server.h"
#include "gtest/gtest.h"
#include "io/file.h"

namespace shadowgraph::remote_test {
namespace {

/// Parcels between the threads of this process.
class Post {
 public:
  explicit Post(size_t processes) : boxes_(processes) {}

  void put(int to, Parcel parcel) {
    const std::lock_guard lock(mutex_);
    boxes_[static_cast<size_t>(to)].push_back(std::move(parcel));
  }
  std::optional<Parcel> take(int of) {
    const std::lock_guard lock(mutex_);
    std::deque<Parcel>& box = boxes_[static_cast<size_t>(of)];
    if (box.empty()) return std::nullopt;
    Parcel parcel = std::move(box.front());
    box.pop_front();
    return parcel;
  }

 private:
  std::mutex mutex_;
  std::vector<std::deque<Parcel>> boxes_;
};

class PostTransport final : public Transport {
 public:
  PostTransport(Post& post, int self) : post_(post), self_(self) {}
  void send(int to, const std::string& bytes) override { post_.put(to, {self_, bytes}), ++sent; }
  std::optional<Parcel> receive() override { return post_.take(self_); }

  int sent = 0;

 private:
  Post& post_;
  const int self_;
};

/// Answers at once, as the server does.
class DirectTransport final : public Transport {
 public:
  DirectTransport(Server& server, int self) : server_(server), self_(self) {}
  void send(int, const std::string& bytes) override {
    const std::optional<Message> request = message_of(bytes);
    answer_ = packed(server_.answer(self_, request.value(), 0));
  }
  std::optional<Parcel> receive() override { return Parcel{0, answer_}; }

 private:
  Server& server_;
  const int self_;
  std::string answer_;
};

Status two_findings() {
  Status status;
  status.add(file_finding("io.write", "a\n\"b", "file", "a new file", "No space left"));
  status.add(file_finding("io.open", "c", "file", "a file", "none"));
  return status;
}

Campaign some_campaign() {
  Campaign campaign;
  campaign.options = {{"verb", "fuzz"}, {"seed", "7"}};
  campaign.cases = 1000;
  campaign.corpus = {"num.exact/1.json"};
  return campaign;
}

/// Writes down what it is asked.
class Recorder final : public Queue {
 public:
  const Campaign& campaign() const override { return kept; }
  Status case_file(const std::string& path, std::string* text) override {
    *text = "text of " + path;
    return status;
  }
  Status claim(std::optional<Claim>* claim) override {
    *claim = next;
    return status;
  }
  void beat(uint64_t range, uint64_t at, bool alone) override {
    said += "beat " + std::to_string(range) + ' ' + std::to_string(at) + (alone ? " alone;" : ";");
  }
  void release(uint64_t range) override { said += "release " + std::to_string(range) + ';'; }
  Status publish(uint64_t range, const RangeResult& result) override {
    said += "publish " + std::to_string(range) + ' ' + packed(result) + ';';
    return status;
  }
  QueueState state() override { return {5, 7}; }

  Campaign kept = some_campaign();
  std::optional<Claim> next;
  Status status;
  std::string said;
};

/// One worker's queue, and the queue that it stands for.
struct Pair {
  Recorder recorder;
  Server server{1, 60, 0};
  DirectTransport transport{server, 1};
  std::atomic<bool> stop{false};
  Client client{transport, 60, &stop};
  std::unique_ptr<RemoteQueue> queue;

  Pair() { server.open(&recorder); }
};

TEST(Messages, ComeBackFromTheirBytes) {
  for (uint64_t kind = 0; kind < static_cast<uint64_t>(MessageKind::kEnd); ++kind) {
    for (const std::string& bytes :
         {std::string(), std::string("a\0b", 3), std::string(9000, 'x')}) {
      const Message message{static_cast<MessageKind>(kind), {1, UINT64_MAX, 3}, bytes};
      const std::optional<Message> back = message_of(packed(message));
      ASSERT_TRUE(back);
      EXPECT_EQ(back->kind, message.kind);
      EXPECT_EQ(back->numbers, message.numbers);
      EXPECT_EQ(back->bytes, bytes);
    }
  }
}

TEST(Messages, BytesThatAreNoneAreRefused) {
  const std::string bytes = packed(Message{.kind = MessageKind::kBye, .numbers = {1, 2}});
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(message_of(bytes.substr(0, size))) << size;
  EXPECT_FALSE(message_of(packed(Message{.kind = MessageKind::kEnd})));
}

TEST(Messages, AStatusComesBackWithAllItsFindings) {
  EXPECT_TRUE(packed(Status()).empty());
  EXPECT_TRUE(status_of("").ok());
  const Status status = two_findings(), back = status_of(packed(status));
  EXPECT_EQ(back.to_string(), status.to_string());
  ASSERT_EQ(back.findings().size(), 2);
  EXPECT_EQ(back.findings()[0].severity, Severity::kError);
  EXPECT_EQ(back.findings()[0].where, status.findings()[0].where);
  EXPECT_EQ(status_of("{").findings()[0].id, "io.report");
}

TEST(RemoteQueue, EachCallReachesTheQueueAndItsAnswerComesBack) {
  Pair p;
  ASSERT_TRUE(RemoteQueue::open(p.client, some_campaign(), &p.queue).ok());
  std::optional<Claim> claim = Claim{};
  EXPECT_TRUE(p.queue->claim(&claim).ok());
  EXPECT_FALSE(claim);
  p.recorder.next = Claim{.range = 9, .deaths = 3, .deaths_alone = {{17, 2}, {19, 1}}};
  EXPECT_TRUE(p.queue->claim(&claim).ok());
  ASSERT_TRUE(claim);
  EXPECT_EQ(claim->range, 9);
  EXPECT_EQ(claim->deaths, 3);
  EXPECT_EQ(claim->deaths_alone, p.recorder.next->deaths_alone);

  EXPECT_EQ(p.queue->campaign().corpus, some_campaign().corpus);
  std::string text;
  EXPECT_TRUE(p.queue->case_file("num.exact/1.json", &text).ok());
  EXPECT_EQ(text, "text of num.exact/1.json");

  const RangeResult result{"a report", {{"num.exact", "a case"}, {"num.bound", "another"}}};
  p.queue->beat(9, 17, false), p.queue->beat(8, 18, true), p.queue->release(6);
  EXPECT_TRUE(p.queue->publish(9, result).ok());
  EXPECT_EQ(p.recorder.said,
            "beat 9 17;beat 8 18 alone;release 6;publish 9 " + packed(result) + ';');
  EXPECT_EQ(p.queue->state().done, 5);
  EXPECT_EQ(p.queue->state().ranges, 7);
}

TEST(RemoteQueue, SaysWhyTheQueueDoesNotWork) {
  Pair p;
  ASSERT_TRUE(RemoteQueue::open(p.client, some_campaign(), &p.queue).ok());
  p.recorder.status = two_findings();
  std::optional<Claim> claim;
  EXPECT_EQ(p.queue->claim(&claim).to_string(), two_findings().to_string());
  EXPECT_EQ(p.queue->trouble().to_string(), two_findings().to_string());
  EXPECT_EQ(p.queue->publish(1, {}).to_string(), two_findings().to_string());
  EXPECT_EQ(p.queue->trouble().to_string(), two_findings().to_string());
  std::string text;
  EXPECT_EQ(p.queue->case_file("a", &text).to_string(), two_findings().to_string());
  p.recorder.status = {};
  EXPECT_TRUE(p.queue->publish(1, {}).ok() && p.queue->trouble().ok());
}

TEST(RemoteQueue, AnotherCampaignIsRefusedOptionByOption) {
  Pair p;
  Campaign other = some_campaign();
  other.options[1].second = "8", other.cases = 2000;
  const Status status = RemoteQueue::open(p.client, other, &p.queue);
  ASSERT_EQ(status.findings().size(), 2) << status.to_string();
  EXPECT_EQ(status.findings()[0].id, "io.ledger");
  EXPECT_EQ(status.findings()[0].where.field, "cases");
  EXPECT_EQ(status.findings()[1].where.field, "seed");
  EXPECT_EQ(p.queue, nullptr);
}

TEST(RemoteQueue, WithoutALedgerEveryCallSaysSo) {
  Pair p;
  ASSERT_TRUE(RemoteQueue::open(p.client, some_campaign(), &p.queue).ok());
  p.recorder.next = Claim{.range = 1};
  p.server.close();
  std::unique_ptr<RemoteQueue> another;
  std::optional<Claim> claim;
  for (const Status& status : {RemoteQueue::open(p.client, some_campaign(), &another),
                               p.queue->claim(&claim), p.queue->publish(1, {})}) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.findings()[0].id, "io.ledger");
  }
  EXPECT_FALSE(claim);
  EXPECT_FALSE(p.queue->state().complete());
  EXPECT_FALSE(p.client.lost() || p.stop);
}

TEST(RemoteQueue, WaitsOnceForAServerThatIsLost) {
  Post post(2);
  PostTransport transport(post, 1);
  std::atomic<bool> stop{false};
  Client client(transport, 0.05, &stop);
  std::unique_ptr<RemoteQueue> queue;
  for (int i = 0; i < 3; ++i) {
    const Status status = RemoteQueue::open(client, some_campaign(), &queue);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.findings()[0].id, "io.ledger");
  }
  EXPECT_FALSE(client.bye());
  EXPECT_EQ(transport.sent, 1);
  EXPECT_TRUE(client.lost() && stop);
}

const Message kBye{.kind = MessageKind::kBye}, kBeat{.kind = MessageKind::kBeat};

TEST(Server, WorkersThatHaveAllSaidByeEndTogether) {
  Server server(2, 60, 0);
  EXPECT_EQ(server.answer(1, kBye, 1).kind, MessageKind::kWait);
  EXPECT_FALSE(server.is_over(1));
  EXPECT_EQ(server.answer(2, kBye, 2).kind, MessageKind::kWait);
  EXPECT_TRUE(server.is_over(2));
  server.close();
  EXPECT_EQ(server.answer(1, kBye, 3).kind, MessageKind::kFinalize);
  EXPECT_FALSE(server.is_left(3));
  EXPECT_EQ(server.answer(2, kBye, 3).kind, MessageKind::kFinalize);
  EXPECT_TRUE(server.is_left(3));
  EXPECT_TRUE(server.ends_together());
}

TEST(Server, OneThatIsSilentMakesTheOthersLeaveAlone) {
  Server server(2, 60, 0);
  server.close();
  server.answer(1, kBeat, 10);
  EXPECT_EQ(server.answer(2, kBye, 70).kind, MessageKind::kWait);
  EXPECT_FALSE(server.is_over(70));
  EXPECT_TRUE(server.is_over(70.5));
  EXPECT_EQ(server.answer(2, kBye, 70.5).kind, MessageKind::kLeave);
  EXPECT_TRUE(server.is_left(70.5));
  EXPECT_FALSE(server.ends_together());
}

TEST(Server, AllLeaveInOneWay) {
  Server server(2, 60, 0);
  server.close();
  EXPECT_EQ(server.answer(2, kBye, 61).kind, MessageKind::kLeave);
  EXPECT_EQ(server.answer(1, kBye, 62).kind, MessageKind::kLeave);  // it was slow, not dead
  EXPECT_TRUE(server.is_left(62));
}

TEST(Server, OneThatSpeaksAgainIsAlive) {
  Server server(1, 60, 0);
  EXPECT_TRUE(server.is_over(61));
  server.answer(1, kBeat, 61);
  EXPECT_FALSE(server.is_over(62));
  server.answer(1, kBye, 62);
  EXPECT_TRUE(server.is_over(62));
  server.answer(1, kBeat, 63);
  EXPECT_FALSE(server.is_over(63));
}

TEST(Server, AMessageThatNoWorkerSendsIsAnsweredAndChangesNothing) {
  Pair p;
  for (const MessageKind kind :
       {MessageKind::kWait, MessageKind::kFinalize, MessageKind::kLeave, MessageKind::kClosed})
    EXPECT_EQ(p.server.answer(1, {.kind = kind}, 0).kind, MessageKind::kClosed);
  EXPECT_EQ(p.recorder.said, "");
}

/// Hands out so many ranges, each once.
class Counter final : public Queue {
 public:
  explicit Counter(uint64_t ranges) : ranges_(ranges) {}
  const Campaign& campaign() const override { return campaign_; }
  Status case_file(const std::string&, std::string*) override { return two_findings(); }
  Status claim(std::optional<Claim>* claim) override {
    claim->reset();
    if (next_ < ranges_) *claim = Claim{.range = next_++};
    return {};
  }
  void beat(uint64_t, uint64_t, bool) override {}
  void release(uint64_t) override {}
  Status publish(uint64_t range, const RangeResult& result) override {
    done_.insert(range);
    return result.body == std::to_string(range) ? Status() : two_findings();
  }
  QueueState state() override { return {done_.size(), ranges_}; }

 private:
  const Campaign campaign_ = some_campaign();
  const uint64_t ranges_;
  uint64_t next_ = 0;
  std::set<uint64_t> done_;
};

/// Ranges until none is left. Whether all was well and all end together.
bool work(Post& post, int self) {
  PostTransport transport(post, self);
  std::atomic<bool> stop{false};
  Client client(transport, 60, &stop);
  std::unique_ptr<RemoteQueue> queue;
  bool well = RemoteQueue::open(client, some_campaign(), &queue).ok();
  std::optional<Claim> claim;
  while (well && queue->claim(&claim).ok() && claim)
    well = queue->publish(claim->range, {std::to_string(claim->range), {}}).ok();
  return client.bye() && well;
}

TEST(Serve, ServesWorkersUntilAllAreDone) {
  constexpr int kWorkers = 3;
  Post post(kWorkers + 1);
  bool well[kWorkers] = {};
  std::vector<std::thread> workers;
  for (int i = 0; i < kWorkers; ++i) workers.emplace_back([&, i] { well[i] = work(post, i + 1); });
  PostTransport transport(post, 0);
  Server server(kWorkers, 60, seconds_now());
  Counter queue(500);
  serve(transport, &server, &queue);
  EXPECT_TRUE(queue.state().complete());
  EXPECT_TRUE(dismiss(transport, &server));
  for (std::thread& worker : workers) worker.join();
  for (const bool w : well) EXPECT_TRUE(w);
}

TEST(Serve, EndsWithoutAWorkerThatIsLost) {
  Post post(3);
  bool together = true;
  std::thread worker([&] { together = work(post, 1); });
  PostTransport transport(post, 0);
  Server server(2, 0.5, seconds_now());
  Counter queue(20);
  serve(transport, &server, &queue);
  EXPECT_FALSE(dismiss(transport, &server));
  worker.join();
  EXPECT_FALSE(together);
  EXPECT_TRUE(queue.state().complete());
}

TEST(Serve, WithoutALedgerWorkersAreLetGo) {
  Post post(2);
  bool well = true;
  std::thread worker([&] { well = work(post, 1); });
  PostTransport transport(post, 0);
  Server server(1, 60, seconds_now());
  EXPECT_TRUE(dismiss(transport, &server));
  worker.join();
  EXPECT_FALSE(well);
}

}  // namespace
}  // namespace shadowgraph::remote_test
