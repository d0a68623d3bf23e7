// A SparseCase made real: its values, and one way to lay them out. Used by sparse_laws.cc.
#pragma once

#include <array>
#include <vector>

#include "fuzz/guarded.h"
#include "fuzz/sparse_case.h"

namespace shadowgraph {

/// The values, in logical order: keys of the first list, of all tokens one after the other, then
/// those of the second.
struct SparseData {
  explicit SparseData(const SparseCase& x);

  std::vector<float> q;                       // [tokens, heads, head_dim]
  std::array<std::vector<float>, 2> latents;  // [keys, head_dim]
  std::array<std::vector<uint8_t>, 2> hot;    // [keys]: score far above the rest (kSelector)
  std::vector<float> sinks;

  /// Where a token's keys begin.
  static int64_t first_key(const SparseCase& x, int list, int64_t token);
};

/// How it lies. No result may depend on it.
struct SparseArrangement {
  uint64_t seed = 0;  // slots, gaps, -1 between keys
  std::array<bool, 2> ragged = {false, false};
  std::array<int32_t, 2> page_size = {1, 1};  // of kV4
  bool holes = false, with_lse = true;
  std::vector<int64_t> tokens;  // which stand where
  CallOptions options;
};

class SparseScene {
 public:
  SparseScene(const SparseCase& x, const SparseData& data, const SparseArrangement& how);
  SparseScene(const SparseScene&) = delete;
  SparseScene& operator=(const SparseScene&) = delete;

  /// Our call, or what a slip makes of it; then what it wrote beside its rows.
  Status run(const SparseSlip& slip = {});
  const SparseAttention& call() const { return call_; }
  /// Is all that a call may write still poison?
  bool untouched() const { return out_.untouched() && lse_.untouched(); }

 private:
  struct List {
    GuardedBuffer pool;
    std::vector<int32_t> indices, lengths, indptr;
  };
  /// A pool that holds the keys of all tokens of the case, and which slot each is in.
  std::vector<int64_t> make_pool(const SparseData& data, int list, Rng& rng, ChosenKeys* keys);
  void make_list(const std::vector<int64_t>& slots, int list, Rng& rng, ChosenKeys* keys);

  const SparseCase& x_;
  const SparseArrangement how_;
  std::array<List, 2> lists_;
  GuardedBuffer q_, out_, lse_;
  std::vector<float> sinks_;
  SparseAttention call_;
  Status made_;
};

}  // namespace shadowgraph
