// Problem: a Shape with its memory, ready to be called again and again. Tested by
// tests/bench/problem_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/machine.h"
#include "bench/shapes.h"
#include "bench/timed_call.h"
#include "check/bounds/arithmetic.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/huge_memory.h"

namespace shadowgraph::bench {

inline constexpr int32_t kPageSize = 16;

/// Values in [-1, 1) of type t, a block of them repeated. The block's length is prime, so that no
/// two tokens or pages hold the same. Throws std::bad_alloc.
HugeMemory random_memory(int64_t elements, DType t, uint64_t seed, int threads);

class Problem : public TimedCall {
 public:
  /// threads: for a shape that does not say. Calls rotate over KV caches of cold_bytes together,
  /// as a model's layers do. Throws std::bad_alloc.
  Problem(const Shape& shape, uint64_t seed, int threads, double cold_bytes = cold_memory().bytes);

  const Shape& shape() const { return shape_; }
  int threads() const override { return call_.options.num_threads; }
  bool hot() const override { return shape_.hot; }
  double flop() const { return flop_of(shape_); }
  double kv_bytes() const { return kv_bytes_of(shape_); }
  int64_t num_tables() const { return num_tables_; }

  /// One call, on the next table of pages.
  Status run() override;
  /// The call that run() made last.
  const PagedAttention& call() const { return call_; }

  /// Judges every request as long as that takes no more than a moment (the first and the last in
  /// any case), of extends the first, the middle and the last token.
  Status check() override;
  /// The same of other results for the same call: out as call().out, f32.
  Status check(const ConstTensorView& out, const Arithmetic& arithmetic) const;

  /// The last call's K or V of a request as a dense f32 tensor [kv_len, num_kv_heads, head_dim].
  std::vector<float> plain_keys(int32_t request) const;
  std::vector<float> plain_values(int32_t request) const;

 private:
  struct OneToken;

  void make_tables(uint64_t seed, double cold_bytes);
  void make_pool(uint64_t seed);
  void make_mask();
  void use_table(int64_t table);
  std::vector<float> plain(const KvPlane& plane, int32_t request) const;
  /// The last call, of one token of one request.
  void narrow(int32_t request, int32_t token, OneToken* one) const;
  /// peer_out: judged instead of the call's own results.
  Status judge_request(int32_t request, const ConstTensorView* peer_out,
                       const Arithmetic& arithmetic) const;
  Status judge_all(const ConstTensorView* peer_out, const Arithmetic& arithmetic) const;

  Shape shape_;
  HugeMemory k_, v_, q_, out_;
  std::vector<float> lse_;
  std::vector<int32_t> page_tables_;  // [num_tables, batch, max_pages]
  std::vector<int32_t> cache_seqlens_, cu_seqlens_q_;
  std::vector<uint8_t> mask_;
  std::vector<int64_t> mask_indptr_;
  std::vector<int32_t> plan_;  // of every table: the lengths are the same, as in a model's layers
  int64_t num_tables_ = 1, max_pages_ = 0, num_pages_ = 0, next_ = 0;
  PagedAttention call_;
};

}  // namespace shadowgraph::bench
