#include "mpi/mpi_transport.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace shadowgraph {
namespace {

constexpr int kTag = 1;
/// Less than what any transport of Open MPI sends at once: of shared memory 4096 bytes with its
/// head.
constexpr size_t kPart = 3072;
/// A part begins with how many bytes of the message come with and behind it.
constexpr size_t kHead = sizeof(uint64_t);
constexpr int kRests = 1000;      // a second
constexpr int kNeverStarted = 4;  // exit code: internal

/// For ranks to start together, seconds.
constexpr unsigned kStart = 120;

/// Ends the process, if it waits too long for the others in a call of MPI that all have to make.
class Patience {
 public:
  Patience(unsigned seconds, int code, std::string_view why) {
    code_ = code, why_ = why;
    std::signal(SIGALRM, [](int) {
      (void)!::write(STDERR_FILENO, why_.data(), why_.size());
      ::_exit(code_);
    });
    ::alarm(seconds);
  }
  ~Patience() { ::alarm(0); }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

 private:
  static inline int code_ = 0;
  static inline std::string_view why_;
};

}  // namespace

MpiTransport::MpiTransport(int* argc, char*** argv) {
  // Who waits here sleeps; on a busy machine a yield would cost milliseconds besides.
  ::setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
  // A child that crashes is a finding, not a page of Open MPI's.
  ::setenv("OMPI_MCA_opal_signal", "", 0);
  {
    const Patience patience(kStart, kNeverStarted, "shadowgraph-mpi: a rank died at the start\n");
    MPI_Init(argc, argv);
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // that a rank died is no error
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  received_.resize(static_cast<size_t>(size_));
}

void MpiTransport::drop_sent() {
  sent_.remove_if([](Part& part) {
    int done = 0;
    return MPI_Test(&part.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  });
}

void MpiTransport::send(int to, const std::string& bytes) {
  drop_sent();
  size_t at = 0;
  do {
    const uint64_t left = bytes.size() - at;
    Part& part = sent_.emplace_back();
    part.bytes.assign(reinterpret_cast<const char*>(&left), kHead);
    part.bytes += bytes.substr(at, kPart);
    MPI_Isend(part.bytes.data(), static_cast<int>(part.bytes.size()), MPI_BYTE, to, kTag,
              MPI_COMM_WORLD, &part.request);
    at += kPart;
  } while (at < bytes.size());
}

std::optional<Parcel> MpiTransport::receive() {
  drop_sent();
  while (true) {
    int here = 0, size = 0;
    MPI_Status status;
    // Open MPI looks first, and takes in what has arrived after that.
    for (int i = 0; i < 2 && here == 0; ++i) {
      if (MPI_Iprobe(MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &here, &status) != MPI_SUCCESS) break;
    }
    if (here == 0) return std::nullopt;
    MPI_Get_count(&status, MPI_BYTE, &size);
    std::string part(static_cast<size_t>(size), 0);
    if (MPI_Recv(part.data(), size, MPI_BYTE, status.MPI_SOURCE, kTag, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE) != MPI_SUCCESS)
      return std::nullopt;
    uint64_t left = 0;
    std::memcpy(&left, part.data(), kHead);
    std::string& message = received_[static_cast<size_t>(status.MPI_SOURCE)];
    message.append(part, kHead);
    if (part.size() - kHead < left) continue;
    return Parcel{status.MPI_SOURCE, std::exchange(message, {})};
  }
}

void MpiTransport::end(bool together, int code, double patience) {
  std::fflush(nullptr);
  // Last answers; one to a rank that died may never go.
  Pause pause;
  for (int i = 0; i < kRests && !sent_.empty(); ++i) pause.rest(), drop_sent();
  if (together) {
    const Patience last(static_cast<unsigned>(std::max(patience, 1.0)), code, "");
    MPI_Finalize();
  }
  ::_exit(code);
}

}  // namespace shadowgraph
