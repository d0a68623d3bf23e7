// Messages between the processes of an Open MPI job, ranks, some of which may die.
//
// No call of it waits for another rank, except end(true): a message travels in parts that are small
// enough for MPI to send them at once, and a part that has arrived is received at once. (A longer
// one would wait for its receiver, and a receiver for a dead sender for ever.)
#pragma once

#include <mpi.h>

#include <list>
#include <string>
#include <vector>

#include "campaign/remote/transport.h"

namespace shadowgraph {

class MpiTransport final : public Transport {
 public:
  /// Calls MPI_Init; one for the process's life.
  MpiTransport(int* argc, char*** argv);

  int rank() const { return rank_; }
  int size() const { return size_; }

  void send(int to, const std::string& bytes) override;
  std::optional<Parcel> receive() override;

  /// Ends the process with this code. together: with MPI_Finalize, which waits for all ranks; for
  /// so many seconds at most, since one may die at the last moment.
  [[noreturn]] void end(bool together, int code, double patience);

 private:
  struct Part {
    MPI_Request request;
    std::string bytes;
  };
  void drop_sent();

  int rank_ = 0, size_ = 0;
  std::list<Part> sent_;               // and not yet gone
  std::vector<std::string> received_;  // by rank: the parts of a message so far
};

}  // namespace shadowgraph
