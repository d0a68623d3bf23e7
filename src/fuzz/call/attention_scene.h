// AttentionScene: a Case of dense attention laid out in memory, as one call or as several,
// everything that must not be read or written poisoned. The same values laid out otherwise (pages,
// layout, form of table, order, chunks of a prefill, gaps) must give the same bits. Tested by
// tests/fuzz/attention_laws_test.cc.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "attn/page_table.h"
#include "fuzz/call/attention_data.h"
#include "fuzz/call/laid_call.h"

namespace shadowgraph {

/// How a Case looks in memory. A piece is queries [begin, end) of a request, with the keys that a
/// chunk that ends there has.
struct AttentionArrangement : RowArrangement {
  bool ragged = false, decode = false;
  int32_t page_size = 1;
  KvLayout layout = KvLayout::kNhd;
  PageTable::Form table = PageTable::Form::kDense;
  bool through_store_kv = false;
  bool with_lse = true;
  bool planned = false;    // the call has a plan; of paged calls
  bool workspace = false;  // the call has memory of exactly the size that it is said to need
  // Tensors lie between each other: q, out and LSE; K, V, their scales and another layer, where the
  // pool is NHD or HND
  bool in_records = false;
  bool through_copy_kv = false;  // K and V come from a pool of another layout
  bool padded = false;  // rows of nobody lie behind each request's, in q, out, and packed K

  // For kernels that promise less than ours
  MemoryStyle memory;
  int64_t rows_behind = 0;  // behind the rows of each tensor: nobody's
  // every page of a request exists, entries behind name a page of nobody
  bool whole_tables = false;

  /// As the Case says, all requests whole.
  static AttentionArrangement of(const Case& x);
  std::string to_string() const;
};

class AttentionScene : public LaidCall<AttentionCall> {
 public:
  AttentionScene(const Case& x, const AttentionData& data, const AttentionArrangement& how);
  AttentionScene(const AttentionScene&) = delete;
  AttentionScene& operator=(const AttentionScene&) = delete;

  /// Lays out call number `index`.
  void lay(size_t index);
  /// After run(): its rows into their places.
  void collect(RowResults* results) const;
  const AttentionData& data() const { return data_; }

 private:
  Status execute_laid() const override;

  size_t count() const { return pieces_.size(); }
  bool is_idle(size_t i) const { return pieces_[i].row == RowPiece::kNobody; }
  const RequestData& request(size_t i) const {
    return data_.requests[static_cast<size_t>(pieces_[i].row)];
  }
  int32_t kv_len(size_t i) const;
  int32_t& page_id(size_t i, int32_t token) {
    return table_.page_table[i * static_cast<size_t>(table_.max_pages) +
                             static_cast<size_t>(token / how_.page_size)];
  }
  TensorView add(const char* field, DType type, std::initializer_list<int64_t> shape) {
    return memory_.add(field, type, shape, rng_);
  }
  /// [rows, ...], with the rows of nobody behind them.
  TensorView add_rows(const char* field, DType type, std::vector<int64_t>&& shape);
  TensorView add_output(const char* field, DType type, std::vector<int64_t>&& shape,
                        AxisOrder order);
  TensorView add_plane(const char* field, DType type, std::initializer_list<int64_t> shape) {
    return how_.far ? memory_.add_far(field, type, shape, first_page()) : add(field, type, shape);
  }
  template <class T>
  std::span<const T> add_list(const char* field, const std::vector<T>& list) {
    return memory_.add_list(field, list, rng_);
  }
  /// visit(piece, token) of the keys that `which` (visible, reachable) marks.
  template <class Visit>
  void for_each_key(std::vector<uint8_t> RequestData::*which, const Visit& visit) const;

  void lay_lengths();
  template <class One>
  void lay_rows(One* call);
  CustomMask lay_mask();
  AttentionTerms lay_terms();
  void lay_call(RaggedAttention* call);
  void lay_plan(PagedAttention* call);

  // attention_scene_pool.cc
  void lay_call(PagedAttention* call);
  int64_t first_page() const;
  KvCache make_pool(int64_t num_pages);
  KvCache with_scales(const KvCache& cache);
  KvCache make_records(int64_t num_pages);
  void lay_table(int64_t num_pages);
  void lay_keys(const KvCache& cache);
  Status store_keys(KvCache cache);
  void check_store(const KvCache& cache);
  KvCache copied(const KvCache& source);

  const AttentionCase& x_;
  const AttentionData& data_;
  const AttentionArrangement how_;
  Rng rng_;
  std::vector<int64_t> first_row_;  // of each request, in the Case's order
  std::vector<int32_t> cu_seqlens_q_, cu_seqlens_k_;
  std::vector<int32_t> q_lens_, kv_lens_;  // of pieces
  DenseTable table_;
  Status stored_;  // what store_kv said
};

template <class Visit>
void AttentionScene::for_each_key(std::vector<uint8_t> RequestData::*which,
                                  const Visit& visit) const {
  for (size_t i = 0; i < count(); ++i) {
    for (int32_t t = 0; t < kv_len(i); ++t)
      if ((request(i).*which)[static_cast<size_t>(t)]) visit(i, t);
  }
}

}  // namespace shadowgraph
