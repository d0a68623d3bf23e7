#include "io/file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace shadowgraph {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }
  bool close() {
    const int fd = std::exchange(fd_, -1);
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

std::string error_text(int error) { return std::strerror(error); }

/// Bytes read, fewer at the end of the file; -1 and errno on an error.
ssize_t read_up_to(int fd, std::byte* to, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd, to + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(done);
}

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

/// A file beside the one that is meant, under a name that no process of any machine has; gone in
/// the end.
class PartialFile {
 public:
  explicit PartialFile(const std::string& path) {
    uint64_t any = 0;
    (void)::getrandom(&any, sizeof any, 0);
    name_ = path + ".partial." + std::to_string(::getpid()) + '.' + std::to_string(any);
  }
  ~PartialFile() {
    const int error = errno;
    ::unlink(name_.c_str());
    errno = error;
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  const char* name() const { return name_.c_str(); }
  /// All bytes, synced. False and errno on an error.
  bool write(std::span<const std::byte> bytes) const {
    FileDescriptor fd(::open(name(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    return fd.get() >= 0 && write_all(fd.get(), bytes) && ::fsync(fd.get()) == 0 && fd.close();
  }

 private:
  std::string name_;
};

Status failure(LawId law, const std::string& path, std::string expected, std::string got) {
  Status status;
  status.add(file_finding(law, path, "file", std::move(expected), std::move(got)));
  return status;
}

Status read_open_file(int fd, const std::string& path, std::vector<std::byte>* bytes) {
  struct stat info {};  // all zeros, no file at all, should this fail
  (void)::fstat(fd, &info);
  if (!S_ISREG(info.st_mode)) {
    return failure("io.open", path, "a regular file",
                   S_ISDIR(info.st_mode) ? "a directory" : "not one");
  }
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > kMaxFileBytes) {
    return failure("io.memory", path, "at most " + std::to_string(kMaxFileBytes) + " bytes",
                   std::to_string(size));
  }
  // One byte more than declared, to see a file that grows.
  std::vector<std::byte> content(size + 1);
  const ssize_t n = read_up_to(fd, content.data(), content.size());
  if (n < 0) return failure("io.open", path, "a readable file", error_text(errno));
  if (static_cast<uint64_t>(n) != size) {
    return failure("io.truncated", path, std::to_string(size) + " bytes, as when it was opened",
                   (static_cast<uint64_t>(n) < size ? "only " : "at least ") + std::to_string(n));
  }
  content.resize(size);
  *bytes = std::move(content);
  return {};
}

}  // namespace

Status read_file(const std::string& path, std::vector<std::byte>* bytes) {
  return with_memory_findings(path, [&]() -> Status {
    // O_NONBLOCK: opening a FIFO must not wait for a writer.
    const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd.get() < 0) return failure("io.open", path, "a readable file", error_text(errno));
    return read_open_file(fd.get(), path, bytes);
  });
}

Status read_stdin(std::vector<std::byte>* bytes, uint64_t limit) {
  return with_memory_findings("-", [&]() -> Status {
    constexpr size_t kStep = size_t{1} << 20;
    std::vector<std::byte> content;
    for (size_t size = 0; size <= limit;) {
      content.resize(size + kStep);
      const ssize_t n = read_up_to(STDIN_FILENO, content.data() + size, kStep);
      if (n < 0) return failure("io.open", "-", "standard input", error_text(errno));
      size += static_cast<size_t>(n);
      if (static_cast<size_t>(n) == kStep) continue;
      content.resize(size);
      *bytes = std::move(content);
      return {};
    }
    return failure("io.memory", "-", "at most " + std::to_string(limit) + " bytes", "more");
  });
}

Status write_file(const std::string& path, std::span<const std::byte> bytes) {
  return with_memory_findings(path, [&]() -> Status {
    const PartialFile partial(path);
    if (partial.write(bytes) && std::rename(partial.name(), path.c_str()) == 0) return {};
    return failure("io.write", path, "a file that takes all bytes", error_text(errno));
  });
}

Status put_file(const std::string& path, std::span<const std::byte> bytes, bool* put) {
  return with_memory_findings(path, [&]() -> Status {
    const PartialFile partial(path);
    const bool written = partial.write(bytes);
    *put = written && ::link(partial.name(), path.c_str()) == 0;
    if (*put || (written && errno == EEXIST)) return {};
    return failure("io.write", path, "a file that takes all bytes", error_text(errno));
  });
}

std::string printable(std::string_view text) {
  constexpr size_t kLongest = 120;
  std::string safe;
  for (const char c : text.substr(0, kLongest)) {
    if (c >= 0x20 && c <= 0x7e) {
      safe += c;
    } else {
      char escaped[5];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(c));
      safe += escaped;
    }
  }
  if (text.size() > kLongest) safe += "...";
  return safe;
}

Finding file_finding(LawId law, const std::string& name, std::string field, std::string expected,
                     std::string got) {
  Finding finding = make_finding(law, at(std::move(field)), std::move(expected), std::move(got));
  finding.case_id = name;
  return finding;
}

}  // namespace shadowgraph
