#include "graph/memory/graph_pool.h"

#include <algorithm>
#include <utility>

namespace shadowgraph {

namespace {

constexpr size_t kRound = 512;

/// cudaMalloc and cudaFree are refused while a capture is on, unless the thread says that it knows
/// what it does: replays do not need the call.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(DeviceApi& api) : api_(api) { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() { api_.thread_exchange_stream_capture_mode(&mode_); }
  DeviceApi& api_;
  CaptureMode mode_ = CaptureMode::kRelaxed;
};

/// nullptr: out of memory.
void* allocate_on_device(DeviceApi& api, size_t bytes) {
  const RelaxedCapture relaxed(api);
  void* p = nullptr;
  return api.malloc(bytes, &p) == DeviceError::kSuccess ? p : nullptr;
}

void free_on_device(DeviceApi& api, void* p) {
  const RelaxedCapture relaxed(api);
  api.free(p);
}

}  // namespace

Status WeakOutput::read(Stream& stream, std::span<std::byte> host) const {
  stream.synchronize();
  stream.api().expect_output(data, bytes, ticket);
  stream.copy(host.data(), data, std::min(bytes, host.size()));
  stream.synchronize();
  return stream.take_status();
}

std::shared_ptr<GraphPool> GraphPool::create(DeviceApi& api) {
  return std::shared_ptr<GraphPool>(new GraphPool(api));
}

GraphPool::~GraphPool() {
  for (const Block& b : blocks_) free_on_device(api_, b.data);
}

Tensor GraphPool::allocate(size_t bytes, std::string_view name) {
  size_t best = blocks_.size();
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const bool fits = !blocks_[i].used && blocks_[i].bytes >= bytes;
    if (fits && (best == blocks_.size() || blocks_[i].bytes < blocks_[best].bytes)) best = i;
  }
  if (best == blocks_.size()) {
    const size_t rounded = std::max<size_t>((bytes + kRound - 1) / kRound, 1) * kRound;
    void* data = allocate_on_device(api_, rounded);
    if (data == nullptr) return {};
    blocks_.push_back({data, rounded, false});
  }
  blocks_[best].used = true;
  api_.name_buffer(blocks_[best].data, name);
  const auto give_back = [pool = shared_from_this(), best](void*) {
    pool->blocks_[best].used = false;
  };
  return {std::shared_ptr<void>(blocks_[best].data, give_back), bytes};
}

size_t GraphPool::bytes() const {
  size_t sum = 0;
  for (const Block& b : blocks_) sum += b.bytes;
  return sum;
}

Tensor TensorAllocator::allocate(size_t bytes, std::string_view name) {
  if (current_ != nullptr) return current_->allocate(bytes, name);
  void* data = allocate_on_device(api_, std::max<size_t>(bytes, 1));
  if (data == nullptr) return {};
  api_.name_buffer(data, name);
  return {std::shared_ptr<void>(data, [&api = api_](void* p) { free_on_device(api, p); }), bytes};
}

Status PooledGraph::record(Stream& stream, TensorAllocator& allocator,
                           std::shared_ptr<GraphPool> pool,
                           const std::function<void(Stream&)>& body, PooledGraph* recorded) {
  PooledGraph made;
  made.pool = pool;
  const PoolScope scope(allocator, std::move(pool));
  Status status = Graph::record(stream, body, &made.graph);
  if (status.ok()) status = GraphExec::instantiate(made.graph, &made.exec);
  if (status.ok()) *recorded = std::move(made);
  return status;
}

}  // namespace shadowgraph
