// Files that are not what they seem, standard input however it comes, and disks that are full.
#include "io/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/temporary_folder.h"

namespace shadowgraph::file_test {
namespace {

std::vector<std::byte> bytes_of(size_t n) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

/// Standard input is `fd` while this lives.
class StandardInput {
 public:
  explicit StandardInput(int fd) : before_(::dup(STDIN_FILENO)) { ::dup2(fd, STDIN_FILENO); }
  ~StandardInput() {
    ::dup2(before_, STDIN_FILENO);
    ::close(before_);
  }
  StandardInput(const StandardInput&) = delete;
  StandardInput& operator=(const StandardInput&) = delete;

 private:
  int before_;
};

/// What read_stdin gives when `bytes` come through a pipe, the first after `delay`.
Status read_through_pipe(const std::vector<std::byte>& bytes, std::vector<std::byte>* read,
                         std::chrono::milliseconds delay = {}) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) ADD_FAILURE() << std::strerror(errno);
  Status status;
  {
    const StandardInput input(ends[0]);
    std::thread writer([&] {
      std::this_thread::sleep_for(delay);
      for (size_t done = 0; done < bytes.size();) {
        const ssize_t n = ::write(ends[1], bytes.data() + done, bytes.size() - done);
        if (n > 0) done += static_cast<size_t>(n);
      }
      ::close(ends[1]);
    });
    status = read_stdin(read);
    writer.join();
  }
  ::close(ends[0]);
  return status;
}

TEST(File, StandardInputIsReadToItsEndWhateverItsLength) {
  constexpr size_t kMiB = size_t{1} << 20;
  for (const size_t size : {size_t{0}, size_t{1}, kMiB - 1, kMiB, kMiB + 1, 3 * kMiB}) {
    std::vector<std::byte> read(3);
    EXPECT_EQ(read_through_pipe(bytes_of(size), &read).to_string(), "ok") << size;
    EXPECT_TRUE(read == bytes_of(size)) << size;
  }
}

TEST(File, StandardInputThatNeverEndsIsRefused) {
  const int zeros = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(zeros, 0);
  std::vector<std::byte> read = bytes_of(3);
  {
    const StandardInput input(zeros);
    const Status status = read_stdin(&read, uint64_t{1} << 21);
    ASSERT_EQ(status.findings().size(), 1U);
    EXPECT_EQ(status.findings()[0].id, "io.memory");
  }
  ::close(zeros);
  EXPECT_TRUE(read == bytes_of(3));
}

TEST(File, AnInterruptedReadGoesOn) {
  static volatile std::sig_atomic_t interrupts = 0;
  interrupts = 0;
  struct sigaction handler {
  }, before{};
  handler.sa_handler = [](int) { interrupts = interrupts + 1; };  // no SA_RESTART: reads end
  ASSERT_EQ(::sigaction(SIGALRM, &handler, &before), 0);
  const itimerval often{{0, 2000}, {0, 2000}}, never{};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  std::vector<std::byte> read;
  const Status status = read_through_pipe(bytes_of(1000), &read, std::chrono::milliseconds(60));
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  EXPECT_EQ(status.to_string(), "ok");
  EXPECT_TRUE(read == bytes_of(1000));
  EXPECT_GT(interrupts, 0);
}

TEST(File, StandardInputThatCannotBeReadIsAFindingAndNothingIsLost) {
  const int folder = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(folder, 0);
  std::vector<std::byte> read = bytes_of(3);
  {
    const StandardInput input(folder);
    const Status status = read_stdin(&read);
    ASSERT_EQ(status.findings().size(), 1U);
    EXPECT_EQ(status.findings()[0].id, "io.open");
    EXPECT_EQ(status.findings()[0].case_id, "-");
  }
  ::close(folder);
  EXPECT_TRUE(read == bytes_of(3));
}

/// Files of the kernel say a size that is not theirs: what they hold is made when they are read.
TEST(File, AFileThatHoldsMoreOrLessThanItSaysIsTruncated) {
  for (const auto& [path, got] : {std::pair("/proc/self/status", "at least 1"),
                                  std::pair("/sys/kernel/uevent_seqnum", "only ")}) {
    if (!std::filesystem::exists(path))
      GTEST_SKIP() << "this kernel has no " << path
                   << ", a file that says another size than it holds";
    std::vector<std::byte> read = bytes_of(3);
    const Status status = read_file(path, &read);
    ASSERT_EQ(status.findings().size(), 1U) << path;
    EXPECT_EQ(status.findings()[0].id, "io.truncated") << path;
    EXPECT_TRUE(status.findings()[0].got.starts_with(got)) << status.findings()[0].got;
    EXPECT_TRUE(read == bytes_of(3)) << path;
  }
}

TEST(File, AFileWhoseBytesCannotBeReadSaysWhy) {
  if (!std::filesystem::exists("/proc/self/mem"))
    GTEST_SKIP() << "this kernel has no /proc/self/mem, a file that opens and cannot be read";
  std::vector<std::byte> read;
  const Status status = read_file("/proc/self/mem", &read);  // nothing is mapped at its beginning
  ASSERT_EQ(status.findings().size(), 1U);
  EXPECT_EQ(status.findings()[0].id, "io.open");
  EXPECT_EQ(status.findings()[0].got, std::strerror(EIO));
}

TEST(File, ADiskThatIsFullKeepsTheFileThatWasThere) {
  const TemporaryFolder folder;
  ASSERT_EQ(write_file(folder / "report", bytes_of(10)).to_string(), "ok");
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGXFSZ, &ignore, &before);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{100, limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const Status status = write_file(folder / "report", bytes_of(1000));
  ::setrlimit(RLIMIT_FSIZE, &limit);
  ::sigaction(SIGXFSZ, &before, nullptr);
  ASSERT_EQ(status.findings().size(), 1U);
  EXPECT_EQ(status.findings()[0].id, "io.write");
  EXPECT_EQ(status.findings()[0].got, std::strerror(EFBIG));
  std::vector<std::byte> read;
  EXPECT_EQ(read_file(folder / "report", &read).to_string(), "ok");
  EXPECT_TRUE(read == bytes_of(10));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(File, MemoryThatRunsOutIsAFinding) {
  for (const bool too_long : {false, true}) {
    const Status status = with_memory_findings("f", [&]() -> Status {
      if (too_long) throw std::length_error("too long");
      throw std::bad_alloc();
    });
    ASSERT_EQ(status.findings().size(), 1U);
    EXPECT_EQ(status.findings()[0].id, "io.memory");
    EXPECT_EQ(status.findings()[0].case_id, "f");
  }
}

}  // namespace
}  // namespace shadowgraph::file_test
