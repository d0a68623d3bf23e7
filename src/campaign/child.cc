#include "campaign/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace shadowgraph {
namespace {

constexpr int kFailed = 4;  // exit code: an exception

std::atomic<uint64_t>* shared_number() {
  void* memory = ::mmap(nullptr, sizeof(std::atomic<uint64_t>), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return new (memory) std::atomic<uint64_t>(0);
}

/// To a reader that has died this is an error, and no signal.
bool write_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

/// Its size, and the bytes.
bool write_message(int socket, std::string_view bytes) {
  const uint64_t size = bytes.size();
  return write_all(socket, {reinterpret_cast<const char*>(&size), sizeof size}) &&
         write_all(socket, bytes);
}

bool read_all(int fd, char* to, size_t size) {
  while (size > 0) {
    const ssize_t n = ::read(fd, to, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to += n, size -= static_cast<size_t>(n);
  }
  return true;
}

bool read_message(int fd, std::string* bytes) {
  uint64_t size = 0;
  if (!read_all(fd, reinterpret_cast<char*>(&size), sizeof size)) return false;
  bytes->resize(size);
  return read_all(fd, bytes->data(), size);
}

void make_sockets(int fds[2]) {
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
    throw std::runtime_error(fmt::format("cannot make sockets: {}", std::strerror(errno)));
}

}  // namespace

Child::Child(const RunRange& run) : at_(shared_number()) {
  int requests[2], results[2];
  make_sockets(requests), make_sockets(results);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error(fmt::format("cannot fork: {}", std::strerror(errno)));
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kFailed);
    ::signal(SIGINT, SIG_IGN), ::signal(SIGTERM, SIG_IGN);
    ::close(requests[1]), ::close(results[0]);
    live(run, requests[0], results[1]);
  }
  ::close(requests[0]), ::close(results[1]);
  requests_ = requests[1], results_ = results[0];
  (void)::fcntl(results_, F_SETFL, O_NONBLOCK);
}

Child::~Child() {
  kill();
  if (death_.empty()) bury();
  ::close(requests_), ::close(results_);
  ::munmap(static_cast<void*>(at_), sizeof *at_);
}

void Child::live(const RunRange& run, int requests, int results) const {
  try {
    for (std::string bytes; read_message(requests, &bytes);) {
      CampaignRange part;
      std::memcpy(&part, bytes.data(), sizeof part);
      std::vector<std::string> texts = unpacked_texts(bytes.substr(sizeof part));
      std::vector<CaseFile> files;
      for (size_t i = 0; i + 1 < texts.size(); i += 2)
        files.push_back({std::move(texts[i]), std::move(texts[i + 1])});
      const auto at = [this](uint64_t number) { *at_ = number; };
      if (!write_message(results, packed(run(part, files, at)))) break;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "shadowgraph: internal error in case %llu: %s\n",
                 static_cast<unsigned long long>(*at_), error.what());
    ::_exit(kFailed);
  }
  ::_exit(0);
}

void Child::start(const CampaignRange& part, std::span<const CaseFile> files) {
  *at_ = part.first;
  std::vector<std::string> texts;
  for (const CaseFile& file : files) texts.push_back(file.path), texts.push_back(file.text);
  // One that has died says so when it is read.
  (void)write_message(
      requests_, std::string(reinterpret_cast<const char*>(&part), sizeof part) + packed(texts));
}

std::optional<RangeResult> Child::read() {
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(results_, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) {
      bury();  // what it has brought before is whole
      break;
    }
    bytes_.append(buffer, static_cast<size_t>(n));
  }
  uint64_t size = 0;
  if (bytes_.size() < sizeof size) return {};
  std::memcpy(&size, bytes_.data(), sizeof size);
  if (bytes_.size() - sizeof size < size) return {};
  RangeResult result = unpacked(bytes_.substr(sizeof size));
  bytes_.clear();
  return result;
}

void Child::kill() const {
  if (death_.empty()) ::kill(pid_, SIGKILL);
}

void Child::bury() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  was_killed_ = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  death_ = WIFSIGNALED(status)
               ? fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)))
               : fmt::format("exit code {}", WEXITSTATUS(status));
}

}  // namespace shadowgraph
