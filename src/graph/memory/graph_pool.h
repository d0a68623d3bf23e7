// Device memory with owners: tensors, and the private pools that recorded graphs take theirs from.
// What PyTorch promises of its pools (docs/graphs.md "Frameworks"), in its simplest form: a block
// of a pool is one device allocation of a multiple of 512 bytes; the smallest free block that is
// large enough is taken, the oldest of equals, and never split.
//
// Like its allocator, all this counts on the order of one stream: a tensor that is dropped while
// work on it is still to come may be handed out to later work of that stream, and of no other.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "shadowgraph/device/device_api.h"
#include "shadowgraph/device/graph.h"

namespace shadowgraph {

/// Device memory that copies of this share; the last one gives it back to where it came from.
class Tensor {
 public:
  Tensor() = default;
  explicit operator bool() const { return data_ != nullptr; }
  size_t bytes() const { return bytes_; }
  void* data() const { return data_.get(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_.get());
  }

 private:
  friend class GraphPool;
  friend class TensorAllocator;
  Tensor(std::shared_ptr<void> data, size_t bytes) : data_(std::move(data)), bytes_(bytes) {}
  std::shared_ptr<void> data_;
  size_t bytes_ = 0;
};

/// A result that this does not keep alive: good until later work writes there.
struct WeakOutput {
  const void* data = nullptr;
  size_t bytes = 0;
  uint64_t ticket = 0;  // DeviceApi::output_ticket() behind the work that writes it

  static WeakOutput of(DeviceApi& api, const void* data, size_t bytes) {
    return {data, bytes, api.output_ticket()};
  }
  /// Waits for the stream, then copies the result out.
  Status read(Stream& stream, std::span<std::byte> host) const;
};

/// A private pool. It lives, and keeps all its memory, as long as somebody holds it: the graphs
/// recorded into it, and every tensor made in it. So a dropped tensor's memory goes to this pool's
/// next tensor and to nobody else, and whatever a replay writes is the pool's.
///
/// For a shadow a block stays what it is as long as the pool lives: a replay uses the memory of
/// tensors that are long dropped, and may. That a result was overwritten shows in who wrote last.
class GraphPool : public std::enable_shared_from_this<GraphPool> {
 public:
  static std::shared_ptr<GraphPool> create(DeviceApi& api);
  ~GraphPool();
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;

  /// Empty if the device is out of memory. The name stands in findings until the block is handed
  /// out again.
  Tensor allocate(size_t bytes, std::string_view name);
  /// Taken from the device, which is the high-water mark: nothing goes back while the pool lives.
  size_t bytes() const;

 private:
  struct Block {
    void* data;
    size_t bytes;
    bool used;
  };
  explicit GraphPool(DeviceApi& api) : api_(api) {}

  DeviceApi& api_;
  std::vector<Block> blocks_;  // oldest first
};

/// Where tensors come from: the current pool, or the device itself if there is none. A tensor of
/// the device is a cudaMalloc of its own: dropped, it is gone, and for a shadow what comes to its
/// address later is something else.
class TensorAllocator {
 public:
  explicit TensorAllocator(DeviceApi& api) : api_(api) {}
  TensorAllocator(const TensorAllocator&) = delete;
  TensorAllocator& operator=(const TensorAllocator&) = delete;

  /// Empty if the device is out of memory. Works while a stream captures, too.
  Tensor allocate(size_t bytes, std::string_view name);

 private:
  friend class PoolScope;
  DeviceApi& api_;
  std::shared_ptr<GraphPool> current_;
};

/// While it lives, the allocator's tensors come from the pool.
class PoolScope {
 public:
  PoolScope(TensorAllocator& allocator, std::shared_ptr<GraphPool> pool)
      : allocator_(allocator), outer_(std::exchange(allocator.current_, std::move(pool))) {}
  ~PoolScope() { allocator_.current_ = std::move(outer_); }
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  TensorAllocator& allocator_;
  std::shared_ptr<GraphPool> outer_;
};

/// A graph ready to replay, which holds the pool that its tensors came from. Graphs that share a
/// pool replay in the order of their recording, and one at a time.
struct PooledGraph {
  std::shared_ptr<GraphPool> pool;  // goes last
  Graph graph;
  GraphExec exec;

  /// Not ok: recorded is as it was.
  static Status record(Stream& stream, TensorAllocator& allocator, std::shared_ptr<GraphPool> pool,
                       const std::function<void(Stream&)>& body, PooledGraph* recorded);
};

}  // namespace shadowgraph
