// arrange: a Case's values laid out in memory as one call, everything that must not be read or
// written poisoned; and the call run and its rows collected. The same values arranged otherwise
// must give the same bits.
#pragma once

#include <memory>
#include <vector>

#include "check/device_calls.h"
#include "fuzz/data.h"

namespace shadowgraph {

/// Queries [q_begin, q_end) of a request, with the keys up to kv_len.
struct Slice {
  int64_t request = 0;
  int32_t q_begin = 0, q_end = 0, kv_len = 0;
};

/// How a call looks.
struct Arrangement {
  bool ragged = false, decode = false;
  int32_t page_size = 1;
  CaseLayout layout = CaseLayout::kNhd;
  PageTable::Form table = PageTable::Form::kDense;
  bool through_store_kv = false;
  bool with_lse = true;
  std::vector<Slice> slices;   // in the order of the batch
  int32_t empty_requests = 0;  // padding rows behind them
  uint64_t seed = 0;           // page ids, alignments, gaps between rows and in the pool
  CallOptions options;

  /// As the Case says, all requests whole.
  static Arrangement of(const Case& x);
};

/// out and lse of every query row of a Case, in the order of its requests: bits to compare.
struct RowResults {
  int64_t heads = 0, row_bytes = 0;
  std::vector<int64_t> first_row;  // of each request
  std::vector<std::byte> out;      // [rows, heads, head_dim_vo]
  std::vector<float> lse;          // [rows, heads]; 0 where the call had none
  explicit RowResults(const Case& x);
};

/// An arranged call with its memory.
class ArrangedCall {
 public:
  /// device: runs it, and its store_kv; null: the CPU does.
  ArrangedCall(const Case& x, const LogicalData& data, const Arrangement& arrangement,
               DeviceCalls* device = nullptr);
  ~ArrangedCall();
  ArrangedCall(const ArrangedCall&) = delete;
  ArrangedCall& operator=(const ArrangedCall&) = delete;

  /// Runs it. Findings: what the engine refused, changed inputs, writes outside the outputs, and a
  /// pool that store_kv left otherwise than written by hand.
  Status run();
  /// After run(): its rows into their places.
  void collect(RowResults* results) const;

  bool ragged() const;
  const PagedAttention& paged_call() const;
  const RaggedAttention& ragged_call() const;

 private:
  struct Memory;
  std::unique_ptr<Memory> m_;
};

}  // namespace shadowgraph
