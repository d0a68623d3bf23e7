#include "fuzz/call/far_memory.h"

#include <sys/mman.h>

#include <cstring>

namespace shadowgraph {

FarMemory::FarMemory(int64_t reserved, int64_t bytes) : reserved_(reserved), bytes_(bytes) {
  void* p = mmap(nullptr, static_cast<size_t>(reserved + bytes), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p != MAP_FAILED) data_ = static_cast<std::byte*>(p);
}

FarMemory::FarMemory(const FarMemory& other) : FarMemory(other.reserved_, other.bytes_) {
  if (data_ != nullptr && other.data_ != nullptr)
    std::memcpy(end().data(), other.end().data(), static_cast<size_t>(bytes_));
}

FarMemory::~FarMemory() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(reserved_ + bytes_));
}

bool far_memory_is_free() {
  constexpr int64_t kBothPools = int64_t{1} << 37;
  return FarMemory(kBothPools, 0).data() != nullptr;
}

}  // namespace shadowgraph
