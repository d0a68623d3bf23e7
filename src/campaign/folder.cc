#include "campaign/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <span>
#include <vector>

#include "io/file.h"

namespace shadowgraph {
namespace {

namespace fs = std::filesystem;

double seconds_of(const timespec& t) {
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void write_text(int fd, std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(fd, text.data(), text.size());
}

}  // namespace

std::string name_of_process() {
  char host[256] = "";
  (void)::gethostname(host, sizeof host - 1);
  uint64_t any = 0;
  (void)::getrandom(&any, sizeof any, 0);
  return fmt::format("{} {} {:016x}", host, ::getpid(), any);
}

bool exists(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

Status make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  Status status;
  if (error)
    status.add(file_finding("io.write", path, "folder", "one that can be made", error.message()));
  return status;
}

std::set<uint64_t> numbers_in(const std::string& folder, std::string_view suffix, uint64_t first,
                              uint64_t end) {
  std::set<uint64_t> numbers;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), last; !error && entry != last;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    uint64_t number = 0;
    (void)std::from_chars(name.data(), name.data() + name.size(), number);
    const bool is_whole = name == std::to_string(number) + std::string(suffix);
    if (is_whole && first <= number && number < end) numbers.insert(number);
  }
  return numbers;
}

Status read_text(const std::string& path, std::string* text) {
  std::vector<std::byte> bytes;
  Status status = read_file(path, &bytes);
  if (status.ok()) text->assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return status;
}

Status put_text(const std::string& path, std::string_view text, bool* put) {
  return put_file(path, std::as_bytes(std::span(text)), put);
}

void append_line(const std::string& path, std::string_view line) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return;
  write_text(fd, std::string(line) + '\n');
  ::close(fd);
}

int create_file(const std::string& path, std::string_view text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return errno;
  write_text(fd, text);
  ::close(fd);
  return 0;
}

void touch_file(const std::string& path, std::string_view text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  write_text(fd, text);
  (void)::futimens(fd, nullptr);
  ::close(fd);
}

std::optional<double> touched_at(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  return seconds_of(info.st_mtim);
}

std::optional<double> now_in(const std::string& folder) {
  const std::string path = folder + "/.now." + name_of_process();
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return {};
  struct stat info {};
  const bool known = ::futimens(fd, nullptr) == 0 && ::fstat(fd, &info) == 0;
  ::close(fd);
  ::unlink(path.c_str());
  if (!known) return {};
  return seconds_of(info.st_mtim);
}

}  // namespace shadowgraph
