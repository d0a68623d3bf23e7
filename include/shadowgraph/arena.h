// Arena: named device buffers at fixed addresses, in one allocation. It stands on DeviceApi alone,
// so it is the same on the simulated device and on a GPU; on the former every buffer has a shadow.
// DESIGN "The one path", "Memory, shadow and footprints". Tested by tests/graph/arena_test.cc.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shadowgraph/device_api.h"
#include "shadowgraph/dtype.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

struct BufferSpec {
  std::string name;
  DType dtype = DType::kI32;
  std::vector<int64_t> shape;  // dense, row-major
  Lifetime lifetime = Lifetime::kPersistent;
  int64_t granule = 1;  // elements; BufferDecl::granule_bytes says of what
};

/// Elements of a buffer, in order of memory.
struct Elements {
  int64_t first = 0, count = 0;
};

/// A bound buffer; the name has its scope before it: "draft/kv_indices".
struct Buffer : BufferSpec {
  std::byte* data = nullptr;  // on the device
  uint32_t place = 0;         // the arena's own number of it

  int64_t numel() const;
  size_t bytes() const { return static_cast<size_t>(numel()) * size_of(dtype); }
  Elements all() const { return {0, numel()}; }
  /// Rows of the first axis.
  Elements rows(int64_t first, int64_t count) const;
  TensorView view() const;
};

/// A handle: copies and scopes share the memory, which lives as long as any of them.
class Arena {
 public:
  /// Bound to nothing.
  Arena() = default;
  Arena(DeviceApi& api, size_t capacity);

  /// The same memory; names that it binds and finds begin with "name/".
  Arena scope(std::string_view name) const;

  /// Places and declares all of them, or, with findings, none. Buffers keep the order of specs.
  Status bind(std::span<const BufferSpec> specs, std::vector<Buffer>* buffers);
  /// Ends every buffer of this scope. Their place is free once nothing behind it is bound.
  void unbind();
  /// nullptr if there is none.
  const Buffer* find(std::string_view name) const;
  size_t used() const;

  // The host side. What is outside the buffer is refused, in every build, and nothing written.
  /// Into pinned staging, once the copies of the last upload have read it.
  Status write(const Buffer& buffer, int64_t first, const void* values, int64_t count);
  template <class T>
  Status write(const Buffer& buffer, int64_t first, std::span<const T> values) {
    assert(sizeof(T) == size_of(buffer.dtype));
    return write(buffer, first, values.data(), static_cast<int64_t>(values.size()));
  }
  /// The staging of these elements, to be written in place before the next upload. Allocates
  /// nothing in a buffer of lifetime constant or per_step.
  template <class T>
  Status stage(const Buffer& buffer, Elements range, std::span<T>* values) {
    assert(sizeof(T) == size_of(buffer.dtype));
    std::byte* p = nullptr;
    Status status = stage_bytes(buffer, range, &p);
    *values = {reinterpret_cast<T*>(p), status.ok() ? static_cast<size_t>(range.count) : 0};
    return status;
  }
  /// What was written last, uploaded or not; nullptr if nothing can have been.
  const std::byte* staged(const Buffer& buffer) const;
  /// What was written into the buffer since the last upload is not copied: a fill begins.
  void discard(const Buffer& buffer);
  /// Enqueues the copies of all that was written since the last upload, in every scope.
  Status upload(StreamHandle stream);

  // Annotations of the same names.
  Status retire(const Buffer& buffer, Elements range);
  Status set_owner(const Buffer& buffer, Elements range, OwnerId owner);
  Status add_owner(const Buffer& buffer, Elements range, OwnerId owner);
  void begin_step();

 private:
  struct State;
  Arena(std::shared_ptr<State> state, std::string prefix);
  Status stage_bytes(const Buffer& buffer, Elements range, std::byte** p);

  std::shared_ptr<State> state_;
  std::string prefix_;
};

}  // namespace shadowgraph
