// FootprintTrial: a footprint held against what the body does. The body runs twice, the second time
// with other bytes wherever its footprint reads nothing: it must give the same. Tested by
// tests/graph/footprint_trial_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/memory/memory.h"
#include "shadowgraph/device/access.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

class FootprintTrial {
 public:
  /// Before the body runs. What it may wrongly use lies in the buffers of its pointers and their
  /// red zones; of a large buffer, in and around the spans.
  FootprintTrial(const DeviceMemory& memory, std::span<const BakedPointer> pointers,
                 const Footprint& spans);

  /// After it ran: mem.footprint unless it changed all that the footprint writes and nothing else,
  /// and gave what it read alone decides. run: runs the body again; false: it did not end. Memory
  /// holds again what the first run left.
  Status judge(const Origin& by, const std::function<bool()>& run);

 private:
  /// Bits of what the footprint says of a byte.
  enum Said : uint8_t { kNothing = 0, kTouched = 1, kRead = 2, kWritten = 4 };
  struct Region {
    const void* pointer;               // into the buffer that names its bytes
    std::span<std::byte> bytes, ring;  // ring: those of the buffer, which other values come from
    size_t first = 0;                  // of the images
  };
  using Range = std::pair<size_t, size_t>;  // of the images
  using Image = std::vector<std::byte>;

  void add_regions(const BakedPointer& pointer, const Footprint& spans);
  void note(const AccessSpan& span);
  Image taken() const;
  void put(const Image& image) const;
  /// Other values wherever nothing is read. nan: and no numbers where something is touched.
  Image scrambled(bool nan) const;
  /// Bytes of `otherwise`; of `written` where something is written.
  Image with_writes(Image otherwise, const Image& written) const;
  /// The smallest part that was found of what is unlike in the two images and makes the body give
  /// other results.
  Range culprit(const Image& other, const std::function<bool()>& run) const;
  bool gives_other(const Image& other, std::span<const Range> parts,
                   const std::function<bool()>& run) const;
  Where where(size_t byte) const;
  Finding finding(const Origin& by, size_t byte, std::string expected, std::string got) const;

  const DeviceMemory& memory_;
  std::vector<Region> regions_;  // by address, disjoint
  std::vector<uint8_t> said_;
  Image before_, after_;
};

}  // namespace shadowgraph
