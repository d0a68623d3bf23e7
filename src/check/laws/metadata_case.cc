#include "check/laws/metadata_case.h"

namespace shadowgraph {

MetadataCase::MetadataCase(const Backend& backend, const Limits& limits, size_t arena_bytes)
    : backend_(backend),
      model_(limits.model),
      device_({.choose = {}, .checked = false}),
      arena_(device_, arena_bytes),
      ready_(backend.bind(arena_, limits, &meta_)) {}

Status MetadataCase::run(const ForwardBatch& batch) {
  Status status = fill(batch);
  if (status.ok()) status = judge(batch);
  return status;
}

}  // namespace shadowgraph
