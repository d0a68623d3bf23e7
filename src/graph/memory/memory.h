// The simulated device's memory and its shadow: what every granule holds, whose it is and who wrote
// it last. Every access of the device passes judge() before it happens and commit() after.
// See docs/architecture.md "Memory and shadow".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shadowgraph/device/access.h"
#include "shadowgraph/device/annotations.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SG_SANITIZED_MEMORY
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SG_SANITIZED_MEMORY
#endif
#endif

/// Sanitizers keep memory of their own for each page that is named: terabytes are too much.
#ifdef SG_SANITIZED_MEMORY
inline constexpr bool kHasWideMemory = false;
#else
inline constexpr bool kHasWideMemory = true;
#endif

inline constexpr size_t kAlignment = 256, kRedZone = 256;

/// Where the next block may start after one of these bytes: aligned, a red zone in between. Every
/// layout of device memory uses it, so that an overrun lands on the same neighbour everywhere.
constexpr size_t extent_of(size_t bytes, size_t red_zone) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment + red_zone;
}

struct MemoryOptions {
  size_t capacity = size_t{1} << 36;  // address space; pages cost nothing until they are touched
  size_t red_zone = kRedZone;  // bytes before and after every allocation; a multiple of kAlignment
  size_t quarantine = 0;       // freed bytes held back before their addresses are handed out again
  /// false: no shadow, no judgement, no poison. Poison is 0xFF bytes in fresh and retired memory;
  /// of an allocation beyond 64 MiB the first MiB only, the rest is zero, as its pages are
  /// untouched.
  bool checked = true;
};

/// Where a pointer pointed when it was recorded. block 0: outside every allocation.
struct BakedPointer {
  const void* address = nullptr;
  uint32_t block = 0;
  uint32_t generation = 0;
  size_t offset = 0;
  bool operator==(const BakedPointer&) const = default;
};

enum class Phase : uint8_t { kEager, kReplay };

/// Who accesses: one run of one operation or node. Kept for as long as a granule may name it.
struct Origin {
  uint64_t serial = 0;  // order of enqueue; 0: the host, outside any stream
  uint64_t step = 0;    // Annotations::begin_step count when it was enqueued
  uint64_t launch = 0;  // ordinal of the graph launch; 0: eager
  int32_t node = -1;    // ordinal in the graph
  Phase phase = Phase::kEager;
  std::string_view what;  // "kernel fill", "memcpy H2D"; lives for ever (interned)
  int32_t layer = -1;     // whose work it was; -1: no layer's
  /// "kernel fill, node 2 of launch 5, step 3"
  std::string to_string() const;
};

enum class AllocKind : uint8_t { kMalloc, kPool, kGraph, kManaged, kPinned };

class DeviceMemory {
 public:
  explicit DeviceMemory(const MemoryOptions& options);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  bool checked() const { return options_.checked; }

  // Allocations. Addresses are multiples of 256, red zones around them. A freed address is handed
  // out again, most recent first, once it has left the quarantine: another block, a generation up.
  void* allocate(size_t bytes, AllocKind kind);  // nullptr: out of memory; bytes > 0
  /// False if p is not the start of a live allocation.
  bool release(void* p);
  struct Allocation {
    const std::byte* begin = nullptr;
    size_t bytes = 0;
    AllocKind kind = AllocKind::kMalloc;
  };
  /// The live allocation that starts at p, or nullptr.
  const Allocation* find_allocation(const void* p) const;
  /// The live allocation that holds p, or nullptr.
  const Allocation* find_allocation_of(const void* p) const;
  /// The bytes of the allocation that holds p, live or not, and the red zones around it; or none.
  std::span<std::byte> place_of(const void* p) const;
  /// The buffer that a launch may mean by p (the declared one, else the allocation), and the red
  /// zones around it. Empty where none lives, or the host writes it unseen.
  struct Surroundings {
    std::span<std::byte> buffer, all;
  };
  Surroundings surroundings_of(const void* p) const;
  /// A byte in or beside the buffer that holds p, as findings name it.
  Where where_of(const void* p, const std::byte* byte) const;
  /// Is every byte inside the address space that the device can touch at all? True also for freed
  /// memory and red zones; false is an illegal address.
  bool mapped(const void* p, size_t bytes) const;
  /// Graph allocations: the address is reserved by allocate(.., kGraph); each run of the allocation
  /// node makes its contents new (uninitialised), each run of the free node ends them.
  void begin_graph_allocation(void* p, const Origin& by);
  void end_graph_allocation(void* p, const Origin& by);
  /// Keeps a graph allocation's address. When the last of these is given up it may be handed out
  /// again: now if it is not begun, else when it ends. Null: no graph allocation starts there.
  std::shared_ptr<const void> reserve(const void* p);
  /// Bytes of graph allocations that were begun, ended or not, since the last trim
  /// (cudaGraphMemAttrUsedMemCurrent: an H200 keeps the memory until cudaDeviceGraphMemTrim).
  size_t graph_bytes_backed() const;
  void trim_graph_memory();
  /// What p points into now, live or not: a declared buffer, else an allocation or its red zone.
  BakedPointer bake(const void* p) const;

  // Annotations (annotations.h says what they mean).
  void declare(const BufferDecl& buffer);
  void undeclare(const void* p);
  void retire(const void* p, size_t bytes);
  void set_owner(const void* p, size_t bytes, OwnerId owner);
  void add_owner(const void* p, size_t bytes, OwnerId owner);
  void set_row_owners(std::span<const OwnerId> owners);
  void set_layers(std::span<const LayerBytes> tensors);
  void name(const void* p, std::string_view name);
  uint64_t begin_step();
  uint64_t step() const;

  // Judgement.
  /// Adds what is wrong with these accesses, one finding for each law and block. pointers: the
  /// baked pointers that spans stand on; a span whose buffer is none of them is taken as baked now.
  /// False: some access is outside mapped memory and must not happen. Unchecked: only that. What
  /// managed and pinned memory holds is not judged: the host writes it unseen.
  bool judge(const Origin& by, std::span<const BakedPointer> pointers, const Footprint& spans,
             Status* findings);
  /// Marks what the writes of a launch wrote: whole granules, by one span or several together.
  void commit(const Origin& by, const Footprint& spans);
  /// clobbered_output if some byte was last written by work enqueued after ticket.
  void judge_output(const void* p, size_t bytes, uint64_t ticket, Status* findings);
  /// leak: every graph or pool allocation that is still live.
  void judge_leaks(Status* findings) const;
  /// Fills every writable byte of the spans with poison.
  void poison(const Footprint& spans);

  /// "A[3]" or "kv_indices[12]", with offsets in granules, for a finding about address p.
  std::string describe(const void* p) const;

  // What the shadow costs.
  struct Cost {
    size_t arena_bytes = 0, shadow_bytes = 0;
  };
  Cost cost_of(const void* p) const;
  /// What grows: of all blocks, ended ones too, whose shadows tell who wrote them last.
  struct Held {
    size_t shadow_bytes = 0, origins = 0;
  };
  Held held() const;

 private:
  struct Impl;
  MemoryOptions options_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shadowgraph
