// Buckets: one recording per number of rows, and every step padded to the next one. How engines
// serve batches of any size from a few graphs; docs/graphs.md "Frameworks".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "graph/memory/graph_pool.h"
#include "shadowgraph/device/arena.h"
#include "shadowgraph/device/graph.h"

namespace shadowgraph {

/// The smallest bucket that holds so many rows. sizes: ascending.
std::optional<int32_t> bucket_for(std::span<const int32_t> sizes, int32_t rows);

/// The first axis of the buffer is the row, as long as the largest bucket.
struct RowInput {
  Buffer buffer;
  std::vector<std::byte> padding;  // one row as it is where there is no request
};

struct BucketSpec {
  std::vector<int32_t> sizes;  // in any order; each at least 1
  Arena arena;                 // of the inputs, the outputs, and whatever fill writes
  std::vector<RowInput> inputs;
  std::vector<Buffer> outputs;
  /// Launches one step of so many rows. Reads nothing of the batch.
  std::function<void(Stream&, int32_t rows)> step;
  /// Optional: writes, outside the graph, what else a step reads: the metadata of attention. live:
  /// rows with a request; the others are padding.
  std::function<Status(int32_t live, int32_t rows)> fill;
  /// Optional: puts back what the warm-up runs changed (counters, semaphores).
  std::function<void(Stream&)> after_warm_up;
  /// Records every step again, and refuses a replay whose launches differ from the new recording. A
  /// tensor that a step allocates must then not outlive the step, or its place is taken when the
  /// step is recorded again.
  bool checked = false;
};

class Buckets {
 public:
  /// Records every size, largest first, into one pool, each after two runs on padding. Not ok:
  /// buckets is as it was.
  static Status record(Stream& stream, TensorAllocator& allocator, BucketSpec spec,
                       std::optional<Buckets>* buckets);

  /// One step: inputs[i] holds the live rows of input i. Not ok: nothing was replayed. A batch that
  /// no bucket holds is for the caller to run eagerly.
  Status replay(Stream& stream, int32_t live, std::span<const std::span<const std::byte>> inputs);
  /// The live rows of an output, as the last replay left them.
  WeakOutput output(size_t i) const;

  /// Ascending.
  std::span<const int32_t> sizes() const { return spec_.sizes; }
  /// What all recordings took from the device.
  size_t pool_bytes() const { return pool_->bytes(); }

 private:
  Buckets(Stream& stream, TensorAllocator& allocator, BucketSpec spec);
  Status check() const;
  Status record_bucket(Stream& stream, int32_t rows, PooledGraph* recorded);
  /// Everything that a step of so many rows reads.
  Status write(Stream& stream, int32_t live, int32_t rows,
               std::span<const std::span<const std::byte>> inputs);
  Status audit(Stream& stream, int32_t rows, const Graph& kept);

  BucketSpec spec_;
  TensorAllocator* allocator_;
  std::shared_ptr<GraphPool> pool_;
  std::vector<PooledGraph> graphs_;  // by size
  int32_t live_ = 0;
  uint64_t ticket_ = 0;
};

}  // namespace shadowgraph
