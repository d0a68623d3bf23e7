// How messages travel: MPI does it (tools/mpi/mpi_transport.h), and a test within one process.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

namespace shadowgraph {

struct Parcel {
  int from = 0;
  std::string bytes;
};

/// Between processes that have numbers from 0 on.
class Transport {
 public:
  virtual ~Transport() = default;
  /// Does not wait for the receiver, which may be dead.
  virtual void send(int to, const std::string& bytes) = 0;
  /// None: nothing has arrived. Does not wait either.
  virtual std::optional<Parcel> receive() = 0;
};

/// The sleeps of somebody who waits for parcels: short at first, and never long.
class Pause {
 public:
  void rest() {
    std::this_thread::sleep_for(next_);
    next_ = std::min(next_ * 2, std::chrono::microseconds(1000));
  }
  void reset() { next_ = kShortest; }

 private:
  static constexpr std::chrono::microseconds kShortest{20};
  std::chrono::microseconds next_ = kShortest;
};

}  // namespace shadowgraph
