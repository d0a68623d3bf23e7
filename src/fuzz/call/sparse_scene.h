// SparseScene: a Case of the sparse family laid out in memory, as one call or as several,
// everything that must not be read or written poisoned. The same values laid out otherwise (other
// slots, pages, forms of lists, orders of rows, gaps) must give the same bits. Tested by
// tests/fuzz/sparse_laws_test.cc.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "fuzz/call/laid_call.h"
#include "fuzz/call/sparse_data.h"

namespace shadowgraph {

/// How a Case looks in memory. Of kCompress pieces have tokens; else each is its row.
struct SparseArrangement : RowArrangement {
  // Forms of attention's lists; kV4's pages
  std::array<bool, 2> ragged = {false, false};
  std::array<int32_t, 2> page_size = {4, 2};
  bool holes = false, with_lse = true;  // -1 between keys
  bool paged = true;                    // of kLogits
  bool row_list = true;  // rows of a table are listed; else it has one for each token

  /// All rows whole, in one call.
  static SparseArrangement of(const Case& x);
  std::string to_string() const;
};

class SparseScene : public LaidCall<SparseCall> {
 public:
  SparseScene(const Case& x, const SparseData& data, const SparseArrangement& how);
  SparseScene(const SparseScene&) = delete;
  SparseScene& operator=(const SparseScene&) = delete;

  /// Lays out call number `index`; what is stored into is as the calls before it left it.
  void lay(size_t index);
  /// After run(): what it left, into its places.
  void collect(RowResults* results) const;

  /// With what it stores into as it was before run().
  SparseCall truth() const;

 private:
  struct List {
    std::vector<int32_t> indices, lengths, indptr;
  };
  /// What is left of a row.
  struct Left {
    size_t index;
    std::vector<ConstTensorView> out, beside;
  };

  size_t count() const { return pieces_.size(); }
  const SparseCase::Row& row_of(const RowPiece& p) const {
    return x_.rows[static_cast<size_t>(p.row)];
  }
  /// What a store or a state does not take: nobody's, and what the case drops.
  bool drops(const RowPiece& p) const { return p.row == RowPiece::kNobody || !row_of(p).slot; }
  TensorView add(const char* field, DType type, std::initializer_list<int64_t> shape) {
    return memory_.add(field, type, shape, rng_);
  }
  /// [rows] of a column with gaps.
  TensorView add_column(const char* field, DType type, int64_t rows);
  TensorView lay_all(const char* field, const LogicalTensor& from,
                     std::initializer_list<int64_t> shape);
  /// Rows of the case to their places in the call; nobody's stay poison.
  void lay_rows(const TensorView& to, const LogicalTensor& from) const;
  /// Numbers from `first` on, in any order.
  std::vector<int64_t> shuffled(int64_t places, int64_t first = 0);
  /// Rows of so many elements before the first of a pool that is far.
  int64_t rows_before(int64_t elements) const { return how_.far ? far_rows(elements) : 0; }
  /// A pool of rows; dense behind others where it is far.
  TensorView add_pool(CallMemory* memory, const char* field, DType type,
                      std::vector<int64_t>&& shape);
  /// All of it is written, and each of its rows is what is left of the piece. beside: where a
  /// variant may have none of it.
  void leave_rows(const TensorView& out, bool beside = false);

  // sparse_scene_latents.cc
  void add_pack_pool();
  void lay_call(SparseAttention* call);
  void lay_call(PackLatents* call);
  WritableLatentPool make_pool(const char* field, int list, CallMemory* memory, int64_t slots);
  int64_t slots_before(const WritableLatentPool& pool) const;
  void lay_keys(const char* field, int list, ChosenKeys* keys);
  void lay_list(const std::vector<int64_t>& slots, int list, ChosenKeys* keys);

  // sparse_scene_indexer.cc
  void add_index_pages();
  void lay_call(ActQuant* call);
  void lay_call(StoreIndexKeys* call);
  void lay_call(GatherIndexKeys* call);
  void lay_call(IndexerLogits* call);
  void lay_paged_keys(IndexerLogits* call);
  void lay_packed_keys(IndexerLogits* call);
  TensorView lay_index_pages(const std::vector<int64_t>& first, std::vector<int64_t>* pages);
  void lay_call(SelectIndices* call);
  void lay_call(TransformIndices* call);
  void lay_call(CompactIndices* call);
  /// The chosen entries of a piece, and -1 of nobody.
  void lay_entries(const TensorView& to) const;

  // sparse_scene_compress.cc
  void add_state();
  void lay_call(Compress* call);
  void lay_tokens(const RowPiece& piece, Compress* call);
  void lay_call(PoolNormRope* call);
  void lay_call(NormRope* call);
  template <class Norm>
  void lay_norm(Norm* call);

  const SparseCase& x_;
  const SparseData& data_;
  const SparseArrangement how_;
  Rng rng_;
  WritableLatentPool pool_;
  int64_t first_slot_ = 0;
  TensorView stored_;                // pages of index keys, or the state
  std::vector<int64_t> slots_;       // of each row, or of each page of each request
  std::vector<int64_t> first_page_;  // of kCompress: [rows + 1], places in slots_

  std::array<List, 2> lists_;
  std::vector<int64_t> out_cache_loc_;
  std::vector<int32_t> offsets_, rows_, ks_, ke_, seq_lens_, pages_, extra_;
  std::vector<float> sinks_;
  std::vector<Left> left_;
};

}  // namespace shadowgraph
