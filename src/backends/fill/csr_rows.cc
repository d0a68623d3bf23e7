#include "backends/fill/csr_rows.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "attn/tree_mask.h"

namespace shadowgraph {

namespace {

/// A size beyond 63 bits is more than any arena has.
int64_t saturated_product(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

}  // namespace

int32_t lists_a_row(const Limits& limits) { return is_draft_tree(limits) ? limits.model.topk : 1; }

int64_t most_listed_keys(const Limits& limits, int64_t max_keys) {
  int64_t keys = saturated_product(limits.rows, max_keys);
  if (!limits.is_bucket()) {
    const int64_t padding = row_of({}, limits, 0).extent.kv_len;
    keys = std::min(keys, limits.sum_kv_lens + limits.rows * padding);
  }
  return saturated_product(lists_a_row(limits), keys);
}

Status fits_lists(const ForwardBatch& batch, const Limits& limits) {
  Status status = fits(batch, limits);
  if (!status.ok()) return status;
  if (is_target_verify(limits.mode) && !batch.spec.custom_mask.empty())
    status.add(check_trees(batch));
  status.add(translates(batch, limits, 1));
  return status;
}

void bind_csr(Binder& binder, const CsrIds& ids, std::string_view name, int64_t rows,
              int64_t capacity, DType dtype) {
  const std::string of(name);
  binder.ints(ids.indptr, of + "_indptr", {rows + 1});
  binder.list(ids.indices, of + "_indices", capacity, dtype);
}

template <class T>
CsrRows<T>::CsrRows(Filler& filler, const CsrIds& ids)
    : filler_(filler), ids_(ids), indptr_(filler.ints(ids.indptr)) {
  indptr_[0] = 0;
}

template <class T>
std::span<T> CsrRows<T>::add(int64_t count) {
  assert(row_ + 1 < static_cast<int64_t>(indptr_.size()));
  const int32_t first = indptr_[static_cast<size_t>(row_)];
  indptr_[static_cast<size_t>(++row_)] = first + static_cast<int32_t>(count);
  return filler_.list<T>(ids_.indices, first, count);
}

template <class T>
void CsrRows<T>::add(const RequestRow& row, KvRange tokens, std::span<const int64_t> map) {
  add(row, tokens, {}, map);
}

template <class T>
void CsrRows<T>::add(const RequestRow& row, KvRange tokens, std::span<const int64_t> branch,
                     std::span<const int64_t> map) {
  const std::span<T> to = add(tokens.size());
  if (row.padding()) {
    std::ranges::fill(to, 0);
    return;
  }
  const auto in_pool = [&](int64_t slot) {
    return static_cast<T>(map.empty() ? slot : translate(map, slot));
  };
  const int32_t committed = tokens.end - static_cast<int32_t>(branch.size());
  int32_t token = tokens.begin;
  for (T& slot : to) {
    slot = in_pool(token < committed ? row.slots[static_cast<size_t>(token)]
                                     : branch[static_cast<size_t>(token - committed)]);
    ++token;
  }
}

template <class T>
void CsrRows<T>::close() {
  assert(row_ + 1 == static_cast<int64_t>(indptr_.size()));
  filler_.retire_behind(ids_.indices, indptr_.back());
}

template class CsrRows<int32_t>;
template class CsrRows<int64_t>;

}  // namespace shadowgraph
