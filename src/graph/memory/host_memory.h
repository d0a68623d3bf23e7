// Host memory that copies name: does it still live, and is it what it was when the copy was
// enqueued? Law mem.host_lifetime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/capture/graph_store.h"
#include "graph/memory/memory.h"
#include "shadowgraph/device/access.h"

namespace shadowgraph {

/// Pageable blocks that the program told of. A pointer to host memory is baked with its block's
/// number in BakedPointer::offset (its device block is 0).
class HostBlocks {
 public:
  void begin(const void* p, size_t bytes, std::string_view name);
  void end(const void* p);
  /// The live block that holds p, from 1; 0: none.
  uint64_t block_of(const void* p) const;
  /// The name of the live block that holds p; "": it has none.
  std::string name_of(const void* p) const;
  /// "" if all the host blocks among the pointers live; else which one does not.
  std::string ended_among(const std::vector<BakedPointer>& pointers) const;

 private:
  struct Block {
    size_t bytes;
    uint64_t number;
    std::string name;
  };
  void end_overlapping(uintptr_t begin, uintptr_t end);

  std::map<uintptr_t, Block> live_;
  std::map<uint64_t, std::string> ended_;
  uint64_t last_ = 0;
};

/// The host bytes of enqueued host-to-device copies: nobody but the device's own work may change
/// them before the copy ran.
class StagedCopies {
 public:
  bool empty() const { return copies_.empty(); }
  void add(uint64_t serial, const ExecNode& node, const MemcpyParams& copy);
  bool is_changed(uint64_t serial, const ExecNode& node) const;
  /// The operation is done.
  void end(uint64_t serial);
  /// The host writes these bytes: the copies that have yet to read them find others.
  void host_writes(uintptr_t begin, uintptr_t end);

  /// Do the writes go to some copy's source?
  bool are_written_by(const Footprint& spans) const;
  bool are_written_by(const MemcpyParams& copy) const;
  /// Before the device's own work changes host memory: what the host changed is noted.
  void note_changes();
  /// After it: what is there now is what the copies expect.
  void accept_changes();

 private:
  struct Copy {
    uint64_t serial;
    const ExecNode* node;
    MemcpyParams params;
    uint64_t hash;
    bool changed = false;
  };
  static bool is_read(const Copy& c, uintptr_t begin, uintptr_t end);
  bool are_written(uintptr_t begin, uintptr_t end) const;

  std::vector<Copy> copies_;
};

}  // namespace shadowgraph
