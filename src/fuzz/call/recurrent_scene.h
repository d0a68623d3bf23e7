// RecurrentScene: a Case over recurrent states laid out in memory, as one call or as several over
// one pool, everything that must not be read or written poisoned. The same values laid out
// otherwise must give the same bits. Tested by tests/fuzz/recurrent_laws_test.cc.
#pragma once

#include <string>
#include <vector>

#include "fuzz/call/laid_call.h"
#include "fuzz/call/recurrent_data.h"

namespace shadowgraph {

/// How a Case looks in memory. Poison: of a single call.
struct RecurrentArrangement : RowArrangement {
  /// All rows whole, in one call.
  static RecurrentArrangement of(const Case& x);
  std::string to_string() const;
};

/// What calls left of each token and row of a Case, in its own order: bits to compare. Empty: they
/// left nothing.
struct RecurrentResults {
  explicit RecurrentResults(const Case& x);
  RowBytes out, draft, chunks;  // [tokens]
  RowBytes states;              // [rows]
};

class RecurrentScene : public LaidCall<StateCall> {
 public:
  RecurrentScene(const Case& x, const RecurrentData& data, const RecurrentArrangement& how);
  RecurrentScene(const RecurrentScene&) = delete;
  RecurrentScene& operator=(const RecurrentScene&) = delete;

  /// Lays out call number `index`; the pool is as the calls before it left it.
  void lay(size_t index);
  /// After run(): what it left, into its places.
  void collect(RecurrentResults* results) const;

  /// With the pool as it was before run().
  Call truth() const;

 private:
  bool is_conv() const { return x_.call == RecurrentCase::Call::kConv1d; }
  void add_pool();
  void lay_rows();
  void lay_drafts();
  void lay_tokens(const TensorView& to, const LogicalTensor& from) const;
  void lay_attention(LinearAttention* call);
  void lay_conv(CausalConv1d* call);
  /// State tensors of a call: the leading axes of it, then a state's.
  TensorView add_states(const char* field, DType dtype, std::initializer_list<int64_t> leading);
  void find_written();
  int64_t tokens() const { return cu_seqlens_q_.back(); }
  int32_t slot_of(const RowPiece& piece) const;
  int64_t place_of(size_t row) const {
    return indices_.empty() ? static_cast<int64_t>(row) : indices_[row];
  }
  /// Number of the chunk that begins before token j of that row of the call, or -1.
  std::vector<int64_t> chunks_of(size_t row) const;

  const RecurrentCase& x_;
  const RecurrentData& data_;
  const RecurrentArrangement how_;
  Rng rng_;
  TensorView pool_, draft_, chunks_, out_;
  std::vector<int32_t> slots_;  // of the pool: of each row, then of nobody

  std::vector<int32_t> cu_seqlens_q_, state_indices_, indices_, parents_;
  std::vector<uint8_t> has_initial_state_;
};

}  // namespace shadowgraph
