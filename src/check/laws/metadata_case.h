// Metadata alone: a backend bound once, filled from many batches, and judged each time by the laws
// of metadata_laws.inc. Nothing is launched, so a case takes microseconds; what only launches write
// is not judged. Tested by tests/check/metadata_laws_test.cc; its speed is a row of
// bench/fill_bench.cc.
#pragma once

#include <cstddef>

#include "check/laws/metadata_laws.h"
#include "shadowgraph/device/arena.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph {

class MetadataCase {
 public:
  static constexpr size_t kArenaBytes = size_t{1} << 26;

  /// backend outlives this. Launches and laws are of limits.model.
  MetadataCase(const Backend& backend, const Limits& limits, size_t arena_bytes = kArenaBytes);

  /// What bind said. Not ok: there is nothing to run.
  const Status& ready() const { return ready_; }
  /// fill, then judge. Not ok: the backend refused the batch, or filled wrong.
  Status run(const ForwardBatch& batch);

  /// The two halves of run. Between them meta may be changed.
  Status fill(const ForwardBatch& batch) { return backend_.fill(batch, meta_); }
  Status judge(const ForwardBatch& batch) {
    return judge_metadata(backend_, batch, model_, meta_, false);
  }
  Meta& meta() { return meta_; }

 private:
  const Backend& backend_;
  const ModelConfig model_;
  SimDevice device_;
  Arena arena_;
  Meta meta_;
  Status ready_;
};

}  // namespace shadowgraph
