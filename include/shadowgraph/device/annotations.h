// Annotations: what a program knows and device calls do not tell. A device that keeps a shadow
// checks its memory against them; every other device ignores them. They never change a result.
// See docs/architecture.md "Memory and shadow"; the findings' laws are mem.* in `list laws`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace shadowgraph {

/// When the contents of a buffer are meant to be written.
enum class Lifetime : uint8_t {
  kConstant,    // once, by bind
  kPerStep,     // by every fill: contents of an earlier step are stale
  kScratch,     // by every replay, before the replay reads them
  kPersistent,  // at any time: KV cache, req_to_token
  kOutput,      // by a replay; the host reads them
};

/// The request (or other user) that owns a part of a buffer. 0: no owner, every request may use it.
using OwnerId = uint32_t;

/// A named part of an allocation.
struct BufferDecl {
  const void* address = nullptr;
  size_t bytes = 0;
  /// The unit that is initialised, owned and written as one: one element of metadata, one slot of
  /// one head of KV, one row of q, out and lse. It divides bytes.
  size_t granule_bytes = 4;
  Lifetime lifetime = Lifetime::kPersistent;
  std::string name;
};

/// Bytes of a tensor that is one layer's own.
struct LayerBytes {
  const void* address = nullptr;
  size_t bytes = 0;
  int32_t layer = 0;
};

class Annotations {
 public:
  virtual ~Annotations() = default;

  /// From now on the buffer consists of these granules, all uninitialised. The bytes between two
  /// declared buffers of one allocation are red zone.
  virtual void declare_buffer(const BufferDecl& /*buffer*/) {}
  virtual void undeclare_buffer(const void* /*address*/) {}
  /// Findings call the allocation or buffer that holds p by this name.
  virtual void name_buffer(const void* /*p*/, std::string_view /*name*/) {}

  /// No work may read these bytes until they are written again. Example: the tail of a table row.
  virtual void retire(const void* /*p*/, size_t /*bytes*/) {}
  /// set_owner gives these bytes to one request; add_owner adds another one (a shared prefix).
  virtual void set_owner(const void* /*p*/, size_t /*bytes*/, OwnerId /*owner*/) {}
  virtual void add_owner(const void* /*p*/, size_t /*bytes*/, OwnerId /*owner*/) {}
  /// Row i of a footprint belongs to request owners[i], for all work enqueued from now on.
  virtual void set_row_owners(std::span<const OwnerId> /*owners*/) {}
  /// From now on a launch that names one of these tensors is work of its layer, and one that names
  /// none is work of the layer whose scratch it reads. Scratch that one layer wrote is dead for
  /// every other. What several layers call their own is nobody's.
  virtual void set_layers(std::span<const LayerBytes> /*tensors*/) {}
  /// A new step begins: what kPerStep buffers still hold from an earlier step is stale.
  virtual void begin_step() {}

  /// A ticket for all work enqueued so far; expect_output takes it.
  virtual uint64_t output_ticket() { return 0; }
  /// The host uses these bytes as the result of the work enqueued up to the ticket. If later work
  /// wrote them, that is a finding: clobbered_output. Call it when the work up to the ticket is
  /// done.
  virtual void expect_output(const void* /*p*/, size_t /*bytes*/, uint64_t /*ticket*/) {}

  /// host_block: a block of pageable host memory, which copies may name, begins its life.
  /// host_block_ended: the block was freed, left its scope, or was lent out. A copy that still
  /// names it is a finding: host_lifetime.
  virtual void host_block(const void* /*p*/, size_t /*bytes*/, std::string_view /*name*/) {}
  virtual void host_block_ended(const void* /*p*/) {}
  /// The host writes pinned memory now. A copy that reads it, and that the host has not seen done,
  /// is a finding: host_lifetime.
  virtual void host_writes(const void* /*p*/, size_t /*bytes*/) {}
};

}  // namespace shadowgraph
