#include "graph/memory/poison_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace shadowgraph {
namespace {

constexpr size_t kFileBytes = size_t{2} << 20;  // its pages stay in memory

/// A file without a path, full of poison. A program may close all its descriptors, and open another
/// file under this one's number: map_at tells them apart.
class PoisonedFile {
 public:
  PoisonedFile() {
    const int made = memfd_create("poison", MFD_CLOEXEC);
    if (made < 0) return;
    // The number of a closed stdout would get what the program prints.
    file_ = fcntl(made, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(made);
    if (file_ >= 0 && !fill()) close(file_), file_ = -1;
  }

  /// Maps the file at p, again behind it, and so on up to end; who writes has copies of pages.
  /// False: not everything is mapped.
  bool map_at(std::byte* p, std::byte* end) const {
    struct stat now = {};
    if (file_ < 0 || fstat(file_, &now) != 0 || now.st_ino != is_.st_ino ||
        now.st_dev != is_.st_dev)
      return false;
    for (; p < end; p += kFileBytes) {
      const size_t bytes = std::min(kFileBytes, static_cast<size_t>(end - p));
      if (mmap(p, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file_,
               0) == MAP_FAILED)
        return false;
    }
    return true;
  }

 private:
  bool fill() {
    if (ftruncate(file_, kFileBytes) != 0 || fstat(file_, &is_) != 0) return false;
    void* p = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (p == MAP_FAILED) return false;
    std::memset(p, kPoison, kFileBytes);
    return munmap(p, kFileBytes) == 0;
  }

  int file_ = -1;
  struct stat is_ = {};
};

}  // namespace

void poison(std::byte* p, size_t bytes) {
  static const PoisonedFile kFile;
  static const auto kPage = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  std::byte* const end = p + bytes;
  const size_t before = (kPage - reinterpret_cast<uintptr_t>(p) % kPage) % kPage;
  std::byte* const last = end - reinterpret_cast<uintptr_t>(end) % kPage;
  if (bytes < kPoisonMapFrom || !kFile.map_at(p + before, last)) {
    std::memset(p, kPoison, bytes);
    return;
  }
  std::memset(p, kPoison, before);
  std::memset(last, kPoison, static_cast<size_t>(end - last));
}

}  // namespace shadowgraph
