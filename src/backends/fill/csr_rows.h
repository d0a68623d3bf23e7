// Lists of slots as CSR: what FlashInfer and Triton read instead of page tables, one slot a token.
// Tested by tests/backends/csr_rows_test.cc.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>

#include "attn/mask.h"
#include "backends/fill/rows.h"

namespace shadowgraph {

/// By a backend's numbering of buffers.
struct CsrIds {
  int indptr;   // int32 [rows + 1]
  int indices;  // int32 or int64 [capacity]: slots
};

/// Lists of a row: one, of a draft tree topk.
int32_t lists_a_row(const Limits& limits);
/// Keys of all rows and their lists together, padding's too, where a list has up to so many.
int64_t most_listed_keys(const Limits& limits, int64_t max_keys);

/// What a fill of lists asks first: fits(), a tree where a verify has a mask, and an entry in
/// full_to_swa for every slot.
Status fits_lists(const ForwardBatch& batch, const Limits& limits);

/// fn(i, row) for every request of the bucket. What it has no tokens for, padding does not ask for.
template <class Fn>
void for_each_row(const ForwardBatch& batch, const Limits& limits, Fn fn) {
  int32_t tokens = 0;
  for (int32_t i = 0; i < limits.rows; ++i) {
    RequestRow row = row_of(batch, limits, i);
    row.extent.q_len = std::min(row.extent.q_len, limits.tokens - tokens);
    tokens += row.extent.q_len * lists_a_row(limits);
    fn(i, row);
  }
}

/// Declares a list of so many rows; capacity: of all of them together.
void bind_csr(Binder& binder, const CsrIds& ids, std::string_view name, int64_t rows,
              int64_t capacity, DType dtype = DType::kI32);

/// Fills one row after the other; what is behind the last is retired when it is closed.
template <class T = int32_t>
class CsrRows {
 public:
  CsrRows(Filler& filler, const CsrIds& ids);
  CsrRows(const CsrRows&) = delete;
  CsrRows& operator=(const CsrRows&) = delete;

  /// The next row, to be written.
  std::span<T> add(int64_t count);
  /// The next row: these tokens of a request, in their pool (map: full_to_swa, or empty). Padding
  /// has only slot 0.
  void add(const RequestRow& row, KvRange tokens, std::span<const int64_t> map = {});
  /// The same where the last of the row's tokens are those of a draft's branch, by their slots in
  /// the full pool; the range may begin inside them.
  void add(const RequestRow& row, KvRange tokens, std::span<const int64_t> branch,
           std::span<const int64_t> map);
  /// Requires as many rows as were declared.
  void close();

 private:
  Filler& filler_;
  CsrIds ids_;
  std::span<int32_t> indptr_;
  int64_t row_ = 0;
};

}  // namespace shadowgraph
