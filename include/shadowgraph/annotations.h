// Annotations: what a program knows and device calls do not say. A device that keeps a shadow
// checks against them; every other ignores them. They never change a result.
// DESIGN "Memory, shadow and footprints"; the findings' laws are mem.* in `list invariants`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace shadowgraph {

/// When the contents of a buffer are meant to be written.
enum class Lifetime : uint8_t {
  kConstant,    // once, at bind
  kPerStep,     // by every fill: older contents are stale
  kScratch,     // by every replay, before it reads them
  kPersistent,  // at any time: KV cache, req_to_token
  kOutput,      // by a replay, for the host
};

/// A request, or whoever owns a part of a buffer; 0: nobody in particular, everybody may use it.
using OwnerId = uint32_t;

/// A named part of an allocation.
struct BufferDecl {
  const void* address = nullptr;
  size_t bytes = 0;
  /// What is initialised, owned and written as one: metadata one element, KV one slot of one head,
  /// q, out and lse one row. Divides bytes.
  size_t granule_bytes = 4;
  Lifetime lifetime = Lifetime::kPersistent;
  std::string name;
};

class Annotations {
 public:
  virtual ~Annotations() = default;

  /// From here on the buffer has these granules, uninitialised; what lies between declared buffers
  /// of one allocation is red zone.
  virtual void declare_buffer(const BufferDecl& /*buffer*/) {}
  virtual void undeclare_buffer(const void* /*address*/) {}
  /// Names the allocation or buffer that holds p in findings.
  virtual void name_buffer(const void* /*p*/, std::string_view /*name*/) {}

  /// These bytes are meant for nobody until they are written again (the tail of a table row).
  virtual void retire(const void* /*p*/, size_t /*bytes*/) {}
  /// These bytes are one request's; add_owner: also another's (a shared prefix).
  virtual void set_owner(const void* /*p*/, size_t /*bytes*/, OwnerId /*owner*/) {}
  virtual void add_owner(const void* /*p*/, size_t /*bytes*/, OwnerId /*owner*/) {}
  /// Row i of a footprint is request owners[i], from the next enqueued work on.
  virtual void set_row_owners(std::span<const OwnerId> /*owners*/) {}
  /// A new step: what kPerStep buffers hold from before is stale.
  virtual void begin_step() {}

  /// All work enqueued so far; for expect_output.
  virtual uint64_t output_ticket() { return 0; }
  /// The host uses these bytes as the result of the work enqueued up to the ticket:
  /// clobbered_output if later work wrote them. Call when that work is done.
  virtual void expect_output(const void* /*p*/, size_t /*bytes*/, uint64_t /*ticket*/) {}

  /// Pageable host memory that copies may name begins, or ends (freed, out of scope, lent to
  /// somebody else): a copy that still names it is host_lifetime.
  virtual void host_block(const void* /*p*/, size_t /*bytes*/, std::string_view /*name*/) {}
  virtual void host_block_ended(const void* /*p*/) {}
};

}  // namespace shadowgraph
