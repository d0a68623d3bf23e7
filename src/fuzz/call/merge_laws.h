// merge_states under the ladder: exact where all states weigh the same, the bound elsewhere; empty
// states (either infinity, with poison for a value) change nothing; rows have the same bits in
// another order, alone, with other gaps between them, threads and instruction set, without an LSE,
// and two states the same bits through merge_state. Tested by tests/fuzz/attention_laws_test.cc.
#pragma once

#include <cmath>
#include <vector>

#include "fuzz/call/data.h"
#include "fuzz/call/ladder.h"
#include "fuzz/call/laid_call.h"

namespace shadowgraph {

Status check_merge_case(const Case& x, const RunOptions& options);

/// The case's states, before they are laid out. An empty state has either infinity for an lse.
struct MergeData {
  int64_t states, heads;
  LogicalTensor v;         // [rows * states, heads, dim]
  std::vector<float> lse;  // [rows * states, heads]

  size_t cell(int64_t row, int64_t state, int64_t head) const {
    return static_cast<size_t>((row * states + state) * heads + head);
  }
  bool empty(size_t cell) const { return std::isinf(lse[cell]); }
};
MergeData make_merge_data(const Case& x);

/// How a Case looks in memory. A piece is a row.
struct MergeArrangement : RowArrangement {
  bool with_lse = true;
  bool pair = false;  // of two states: merge_state

  static MergeArrangement of(const Case& x);
  std::string to_string() const;
};

class MergeScene : public LaidCall<MergeCall> {
 public:
  MergeScene(const Case& x, const MergeData& data, const MergeArrangement& how)
      : x_(std::get<MergeCase>(x.call)), data_(data), how_(how), rng_(how.seed) {}
  MergeScene(const MergeScene&) = delete;
  MergeScene& operator=(const MergeScene&) = delete;

  void lay(size_t index);
  void collect(RowResults* results) const;
  const MergeData& data() const { return data_; }

 private:
  template <LseBase Base>
  void lay_in_base();
  Status execute_laid() const override;

  const MergeCase& x_;
  const MergeData& data_;
  const MergeArrangement how_;
  Rng rng_;
  TensorView out_, lse_;
};

Status judge_merge(const Case& x, const MergeScene& scene);
MergeArrangement vary_merge(const Case& x, const RunOptions& options, Rng& rng);

}  // namespace shadowgraph
