// The metadata that the laws know by role, for an engine that has no twin: lengths, offsets, a
// table and a list in pages, where the step stores. Fields of its traces are named by what they
// mean; a line's `roles` give an engine's own names. One row a request, so drafts have one branch.
// It is a backend like any other: its kernel reads the table. Facts: docs/traces.md. Tested by
// tests/backends/laws_backend_test.cc and tests/check/trace_laws_test.cc.
#pragma once

#include "backends/fill/csr_rows.h"
#include "backends/paged/paged_backend.h"

namespace shadowgraph {

class Laws final : public PagedBackend {
 public:
  enum OwnBufferId : uint8_t {
    kCuSeqlensK = kFirstOwn,  // [rows + 1]
    kQueryLens,               // [rows]
    kQueryEnds,               // [rows] kCuSeqlensQ without the first
    kKeyEnds,                 // [rows]
    kPrefixLens,              // [rows] keys that were stored before the step
    kKvIndptr,                // [rows + 1]
    kKvIndices,               // slots; a trace may have pages
    kSwaKvIndptr,             // the same of the window's pool
    kSwaKvIndices,
    kKvLastPageLen,  // [rows] all 1: a page of the lists is a token
    kNumBuffers
  };
  static constexpr CsrIds kKv{kKvIndptr, kKvIndices}, kSwaKv{kSwaKvIndptr, kSwaKvIndices};

  const BackendInfo& info() const override;

 protected:
  size_t num_buffers() const override { return kNumBuffers; }
  void bind_own(Binder& binder, const Limits& limits) const override;
  void fill_own(const ForwardBatch& batch, const Limits& limits, Filler& filler) const override;
};

}  // namespace shadowgraph
