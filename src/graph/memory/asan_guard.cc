#include "graph/memory/asan_guard.h"

#ifdef SG_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace shadowgraph {

#ifdef SG_ASAN

Progress run_body(const DeviceMemory& memory, std::span<const BakedPointer> pointers,
                  const Footprint& spans, LaunchFrame& frame) {
  const Kernel& kernel = *frame.launch.kernel;
  if (!memory.checked() || kernel.footprint == nullptr) return kernel.body(frame);
  for (const BakedPointer& p : pointers) {
    const std::span<std::byte> place = memory.place_of(p.address);
    __asan_poison_memory_region(place.data(), place.size());
  }
  for (const AccessSpan& s : spans) {
    if (s.count <= 0) continue;
    __asan_unpoison_memory_region(
        static_cast<const std::byte*>(s.buffer) + s.first * s.element_bytes,
        static_cast<size_t>(s.count) * s.element_bytes);
  }
  const Progress progress = kernel.body(frame);
  for (const BakedPointer& p : pointers) {
    const std::span<std::byte> place = memory.place_of(p.address);
    __asan_unpoison_memory_region(place.data(), place.size());
  }
  return progress;
}

#else

Progress run_body(const DeviceMemory&, std::span<const BakedPointer>, const Footprint&,
                  LaunchFrame& frame) {
  return frame.launch.kernel->body(frame);
}

#endif

}  // namespace shadowgraph
