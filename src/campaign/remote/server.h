// The side of the process that has the ledger. It runs no case, and remembers nothing but who is
// alive: a silent worker's claim goes stale, and the ledger hands its range out again. Tested by
// tests/campaign/remote_test.cc.
#pragma once

#include <vector>

#include "campaign/queue.h"
#include "campaign/remote/message.h"
#include "campaign/remote/transport.h"

namespace shadowgraph {

/// Whom to answer, and when to end. Times are seconds of one clock.
class Server {
 public:
  /// The workers have the numbers 1 to workers.
  Server(int workers, double stale_seconds, double now);

  /// Answers from this queue.
  void open(Queue* queue) { queue_ = queue; }
  /// Answers no further question; tells who says bye how to end.
  void close() { queue_ = nullptr, closed_ = true; }

  Message answer(int worker, const Message& request, double now);
  /// Every worker has said bye, or is silent for stale_seconds.
  bool is_over(double now) const;
  /// And has been told how to end, or is silent.
  bool is_left(double now) const;
  /// Nobody was lost; to be asked when everybody has left.
  bool ends_together() const { return end_ == MessageKind::kFinalize; }

 private:
  struct Worker {
    double heard = 0;
    bool bye = false, told = false;
  };
  bool is_silent(const Worker& worker, double now) const {
    return now - worker.heard > stale_seconds_;
  }
  MessageKind end_of(Worker* worker, double now);
  Message answer_of_queue(const Message& request);

  std::vector<Worker> workers_;
  const double stale_seconds_;
  Queue* queue_ = nullptr;
  bool closed_ = false;
  MessageKind end_ = MessageKind::kWait;  // the same for all
};

/// Answers what arrives until every worker is done or lost.
void serve(Transport& transport, Server* server, Queue* queue);
/// Lets the workers go. Whether all shall end together: nobody was lost.
bool dismiss(Transport& transport, Server* server);

/// The clock of serve and dismiss.
double seconds_now();

}  // namespace shadowgraph
