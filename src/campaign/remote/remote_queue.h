// A worker's side: a queue whose ledger another process has. Tested by
// tests/campaign/remote_test.cc.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "campaign/queue.h"
#include "campaign/remote/message.h"
#include "campaign/remote/transport.h"

namespace shadowgraph {

/// Asks process 0, and waits for the answer.
class Client {
 public:
  /// patience: seconds without an answer after which process 0 is taken for lost, once and for all;
  /// *stop is then set.
  Client(Transport& transport, double patience, std::atomic<bool>* stop)
      : transport_(transport), patience_(patience), stop_(stop) {}

  /// None: process 0 is lost.
  std::optional<Message> ask(const Message& request);
  bool lost() const { return lost_; }
  /// Waits until all others are done or lost. Whether all shall end together: nobody was lost.
  bool bye();

 private:
  Transport& transport_;
  const double patience_;
  std::atomic<bool>* const stop_;
  bool lost_ = false;
};

class RemoteQueue final : public Queue {
 public:
  /// Joins the campaign of process 0's ledger. io.ledger: it is another one, or there is none;
  /// *queue is then untouched.
  static Status open(Client& client, const Campaign& campaign, std::unique_ptr<RemoteQueue>* queue);

  const Campaign& campaign() const override { return campaign_; }
  Status case_file(const std::string& path, std::string* text) override;
  Status claim(std::optional<Claim>* claim) override;
  void beat(uint64_t range, uint64_t at, bool alone) override;
  void release(uint64_t range) override;
  Status publish(uint64_t range, const RangeResult& result) override;
  QueueState state() override;

  /// Why the last of its claims and results failed; ok if it did not.
  const Status& trouble() const { return trouble_; }

 private:
  RemoteQueue(Client& client, Campaign campaign)
      : client_(client), campaign_(std::move(campaign)) {}

  Client& client_;
  const Campaign campaign_;
  Status trouble_;
};

}  // namespace shadowgraph
