// Arena: named device buffers at fixed addresses, in one allocation. It uses DeviceApi only, so it
// is the same on the simulated device and on a GPU; on the simulated device every buffer has a
// shadow.
// See docs/architecture.md "Memory and shadow". Tested by tests/graph/arena_test.cc.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shadowgraph/device/device_api.h"
#include "shadowgraph/dtype.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

struct BufferSpec {
  std::string name;
  DType dtype = DType::kI32;
  std::vector<int64_t> shape;  // row-major; dense but for row_stride
  Lifetime lifetime = Lifetime::kPersistent;
  int64_t granule = 1;  // elements of a granule, see BufferDecl::granule_bytes
  /// Elements from one index of the first axis to the next, whole granules; 0: dense.
  int64_t row_stride = 0;
};

/// A run of elements of a buffer, in memory order.
struct Elements {
  int64_t first = 0, count = 0;
};

/// A bound buffer. Its name begins with its scope: "draft/kv_indices".
struct Buffer : BufferSpec {
  std::byte* data = nullptr;  // device address
  uint32_t place = 0;         // the arena's own number for this buffer

  /// From the first element to the last, those between rows included.
  int64_t numel() const;
  size_t bytes() const { return static_cast<size_t>(numel()) * size_of(dtype); }
  Elements all() const { return {0, numel()}; }
  /// All elements of rows [first, first + count) of the first axis, and those between them.
  Elements rows(int64_t first, int64_t count) const;
  TensorView view() const;
};

/// A handle: copies and scopes share the memory, which lives until the last of them is gone.
class Arena {
 public:
  /// An arena without memory.
  Arena() = default;
  Arena(DeviceApi& api, size_t capacity);

  /// The same memory; every name that this scope binds or finds begins with "name/".
  Arena scope(std::string_view name) const;

  /// Places and declares all specs, or none and returns findings. Buffers keep the order of specs.
  Status bind(std::span<const BufferSpec> specs, std::vector<Buffer>* buffers);
  /// From now on a buffer that is bound under this name is a slice of the storage, a bound buffer:
  /// its first elements, with their staging and shadow. Slices may overlap, and end with their
  /// scope or with the storage. A slice has the dtype, lifetime and granule of its storage, and at
  /// most its bytes: else bind() says input.shape. input.shape: the storage is not bound.
  Status share(std::string_view name, const Buffer& storage);
  /// Ends every buffer of this scope. Their memory is free again once no buffer behind it is bound.
  void unbind();
  /// nullptr if no buffer has that name.
  const Buffer* find(std::string_view name) const;
  /// The place of an address, for messages: "draft/kv_indices + 64 B", "no bound buffer". Of slices
  /// that begin at one address, the first by name.
  std::string place_of(const void* address) const;
  /// The buffer that a slice is cut from; any other buffer is its own. nullptr: it is not bound.
  const Buffer* storage_of(const Buffer& buffer) const;
  size_t used() const;
  /// The device that its memory is on.
  DeviceApi& device() const;

  // The host side. A range that leaves the buffer is refused in every build, and nothing is
  // written.
  /// Writes into pinned staging; waits first until the copies of the last upload have read it.
  Status write(const Buffer& buffer, int64_t first, const void* values, int64_t count);
  template <class T>
  Status write(const Buffer& buffer, int64_t first, std::span<const T> values) {
    assert(sizeof(T) == size_of(buffer.dtype));
    return write(buffer, first, values.data(), static_cast<int64_t>(values.size()));
  }
  /// The staging memory of these elements, to be written in place before the next upload. Allocates
  /// nothing for a buffer whose lifetime is constant or per_step.
  template <class T>
  Status stage(const Buffer& buffer, Elements range, std::span<T>* values) {
    assert(sizeof(T) == size_of(buffer.dtype));
    std::byte* p = nullptr;
    Status status = stage_bytes(buffer, range, &p);
    *values = {reinterpret_cast<T*>(p), status.ok() ? static_cast<size_t>(range.count) : 0};
    return status;
  }
  /// The values written last, whether uploaded or not; nullptr if the buffer has no staging.
  const std::byte* staged(const Buffer& buffer) const;
  /// A fill begins: what was written before, into the buffer or another slice of its storage, is
  /// not meant for the device any more.
  void begin_fill(const Buffer& buffer);
  /// Values written into the buffer since the last upload will not be copied, whoever meant them to
  /// be.
  void discard(const Buffer& buffer);
  /// What was written since the fill began, and not retired: after an upload the device has these
  /// values, until a launch writes there. In the order of the writes; valid until the next one.
  std::span<const Elements> filled(const Buffer& buffer) const;
  /// Enqueues the copies of everything written since the last upload, in every scope.
  Status upload(StreamHandle stream);

  // These do what the annotations of the same names do.
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
