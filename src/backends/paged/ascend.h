// Ascend's attention (NPU) as SGLang drives it: pages in a dense table, and lengths that its kernel
// takes as lists of the host, query lengths by where each request's queries end. An engine's graph
// keeps the lists of its capture until its runner hands it others; here they are metadata, which
// every fill writes. Not modelled: tables of an MLA prefill's flattened prefixes. Facts:
// docs/metadata.md "Ascend". Tested by tests/backends/ascend_test.cc.
#pragma once

#include "backends/paged/paged_backend.h"

namespace shadowgraph {

/// kKvLens is the kernel's actual_seq_lengths_kv; kCuSeqlensQ is made of kActualSeqLengths by the
/// first launch of a step.
class Ascend final : public PagedBackend {
 public:
  enum OwnBufferId : uint8_t {
    kActualSeqLengths = kFirstOwn,  // [rows] InclusiveEnds of the queries
    kNumBuffers
  };

  const BackendInfo& info() const override;
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override;

 protected:
  size_t num_buffers() const override { return kNumBuffers; }
  void bind_offsets(Binder& binder, const Limits& limits) const override;
  void fill_own(const ForwardBatch& batch, const Limits& limits, Filler& filler) const override;
};

}  // namespace shadowgraph
