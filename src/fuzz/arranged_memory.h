// ArrangedCall::Memory: the memory of an arranged call and how it is laid. Included by arrange*.cc.
#pragma once

#include <vector>

#include "attn/page_table.h"
#include "core/choices.h"
#include "fuzz/arrange.h"
#include "fuzz/gapped.h"

namespace shadowgraph {

struct ArrangedCall::Memory {
  const Case& x;
  const LogicalData& data;
  Arrangement how;
  DeviceCalls* device;
  Rng rng;
  GuardedBuffer q, k, v, k_scales, v_scales, out, lse;
  std::vector<uint8_t> mask;
  std::vector<int64_t> mask_indptr;
  std::vector<int32_t> cu_seqlens_q, cu_seqlens_k;
  DenseTable dense;
  CsrTable csr;
  std::vector<int64_t> out_cache_loc;
  PagedAttention paged;
  RaggedAttention ragged;
  Status stored;  // what store_kv said

  Memory(const Case& c, const LogicalData& d, const Arrangement& a, DeviceCalls* runs_on)
      : x(c), data(d), how(a), device(runs_on), rng(a.seed) {}

  const RequestData& request(const Slice& s) const {
    return data.requests[static_cast<size_t>(s.request)];
  }
  int64_t batch() const { return static_cast<int64_t>(how.slices.size()) + how.empty_requests; }
  int64_t total_q() const { return cu_seqlens_q.back(); }
  const TensorView& out_view() const { return how.ragged ? ragged.out : paged.out; }
  const TensorView& lse_view() const { return how.ragged ? ragged.lse.tensor : paged.lse.tensor; }

  int32_t& page_id(size_t slice, int32_t token) {
    return dense.page_table[slice * static_cast<size_t>(dense.max_pages) +
                            static_cast<size_t>(token / how.page_size)];
  }
  void lay_lengths();
  void lay_q();
  void lay_outputs();
  void lay_mask();
  AttentionParams params() const;
  void lay_ragged();
  void lay_paged();
  KvCache make_pool(int64_t num_pages);
  KvCache with_scales(const KvCache& cache);
  void lay_table(int64_t num_pages);
  void lay_tokens(const KvCache& cache);
  void store_tokens(KvCache cache);
  void check_store(const KvCache& cache);
  Status call() const;
};

/// Visits the tokens of every slice that `which` (visible, reachable) marks: (slice index, token).
template <class Visit>
void for_each_token(const LogicalData& data, const std::vector<Slice>& slices,
                    std::vector<uint8_t> RequestData::*which, const Visit& visit) {
  for (size_t i = 0; i < slices.size(); ++i) {
    const RequestData& request = data.requests[static_cast<size_t>(slices[i].request)];
    for (int32_t t = 0; t < slices[i].kv_len; ++t) {
      if ((request.*which)[static_cast<size_t>(t)]) visit(i, t);
    }
  }
}

/// Blocks of exactly the size of their contents, so that ASan sees a read past the end.
template <class... Vectors>
void trim(Vectors&... vectors) {
  (vectors.shrink_to_fit(), ...);
}

}  // namespace shadowgraph
