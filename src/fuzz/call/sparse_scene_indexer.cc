// SparseScene of the indexer's calls.
#include <algorithm>
#include <cstring>

#include "attn/index_page.h"
#include "check/bounds/recurrent_compare.h"
#include "fuzz/call/sparse_scene.h"

namespace shadowgraph {
namespace {

void store_i32(const TensorView& t, int64_t i, int64_t j, int32_t value) {
  std::memcpy(t.at(i, j), &value, sizeof value);
}

/// The pieces of a page that are one key's: its bytes and its scale's.
std::array<TensorView, 2> key_views(const TensorView& pages, int64_t page, int64_t in_page) {
  const IndexKeyPlace place = place_in_pages(pages, page, in_page);
  return {TensorView(pages.data + place.key, DType::kU8, {kIndexDim}),
          TensorView(pages.data + place.scale, DType::kU8, {int64_t{sizeof(float)}})};
}

std::span<const std::byte> row_bytes(const LogicalTensor& t, int64_t row) {
  return {t.row(row, 0), static_cast<size_t>(t.heads * t.row_bytes())};
}

int64_t pages_of(int64_t keys) { return (keys + kIndexPageTokens - 1) / kIndexPageTokens; }

}  // namespace

void SparseScene::lay_call(ActQuant* call) {
  const auto tokens = static_cast<int64_t>(count());
  const TensorView x = add("x", x_.dtype, {tokens, x_.head_dim});
  lay_rows(x, data_.x);
  call->x = x, call->ue8m0 = x_.ue8m0;
  call->y = add("y", DType::kE4M3, {tokens, x_.head_dim});
  call->scale = add("scale", DType::kF32, {tokens, x_.head_dim / kIndexDim});
  leave_rows(call->y), leave_rows(call->scale);
}

// ---- pages

void SparseScene::add_index_pages() {
  const int64_t first = x_.padding_page ? kIndexPageTokens : 0, rows = std::ssize(x_.rows);
  const int64_t pages = pages_of(first + rows) + rng_.below(2);
  stored_ = add_pool(&stored_memory_, "pages", DType::kU8, {pages, kIndexPageBytes});
  slots_ = shuffled(pages * kIndexPageTokens - first,
                    rows_before(kIndexPageBytes) * kIndexPageTokens + first);
  slots_.resize(static_cast<size_t>(rows));
}

void SparseScene::lay_call(StoreIndexKeys* call) {
  const auto tokens = static_cast<int64_t>(count());
  const TensorView k = add("k", DType::kE4M3, {tokens, kIndexDim});
  const TensorView scale = add_column("k_scale", DType::kF32, tokens);
  lay_rows(k, data_.keys), lay_rows(scale, data_.key_scales);
  out_cache_loc_.clear();
  for (const RowPiece& p : pieces_) {
    // Any number of tokens may name the same slot of page 0.
    const auto none = x_.padding_page ? static_cast<int64_t>(rng_.below(3)) - 1 : -1;
    out_cache_loc_.push_back(drops(p) ? none : slots_[static_cast<size_t>(p.row)]);
    if (drops(p)) continue;
    const int64_t slot = out_cache_loc_.back();
    Left left{static_cast<size_t>(p.row), {}, {}};
    for (const TensorView& view :
         key_views(stored_, slot / kIndexPageTokens, slot % kIndexPageTokens)) {
      written_.emplace_back(view), left.beside.emplace_back(view);
    }
    left_.push_back(left);
  }
  call->k = k, call->k_scale = scale, call->out_cache_loc = out_cache_loc_;
  call->pages = stored_, call->first_slot = x_.padding_page ? kIndexPageTokens : 0;
}

TensorView SparseScene::lay_index_pages(const std::vector<int64_t>& first,
                                        std::vector<int64_t>* pages) {
  int64_t all = 0;
  for (size_t r = 0; r + 1 < first.size(); ++r) all += pages_of(first[r + 1] - first[r]);
  const int64_t count = all + rng_.below(3);
  const TensorView pool = add_pool(&memory_, "pages", DType::kU8, {count, kIndexPageBytes});
  *pages = shuffled(count, rows_before(kIndexPageBytes));
  size_t next = 0;
  for (size_t r = 0; r + 1 < first.size(); ++r) {
    for (int64_t key = first[r]; key < first[r + 1]; ++key) {
      const int64_t s = key - first[r];
      const auto views = key_views(pool, (*pages)[next + static_cast<size_t>(s / kIndexPageTokens)],
                                   s % kIndexPageTokens);
      scatter(row_bytes(data_.keys, key), views[0]);
      scatter(row_bytes(data_.key_scales, key), views[1]);
    }
    next += static_cast<size_t>(pages_of(first[r + 1] - first[r]));
  }
  return pool;
}

void SparseScene::lay_call(GatherIndexKeys* call) {
  std::vector<int64_t> pages, first_page = {0};
  int64_t widest = 0;
  for (const SparseCase::Row& r : x_.rows) {
    first_page.push_back(first_page.back() + pages_of(r.count));
    widest = std::max(widest, pages_of(r.count));
  }
  call->pages = lay_index_pages(data_.first[0], &pages);
  const TensorView table =
      add("page_table", DType::kI32, {static_cast<int64_t>(count()), widest + rng_.below(2)});
  List& list = lists_[0] = {};
  list.indptr = {0};
  for (size_t i = 0; i < count(); ++i) {
    const RowPiece& p = pieces_[i];
    const int32_t keys = p.row < 0 ? 0 : row_of(p).count;
    list.indptr.push_back(list.indptr.back() + keys);
    for (int64_t page = 0; page < pages_of(keys); ++page)
      store_i32(table, static_cast<int64_t>(i), page,
                static_cast<int32_t>(
                    pages[static_cast<size_t>(first_page[static_cast<size_t>(p.row)] + page)]));
  }
  call->page_table = table, call->cu_seqlens_k = list.indptr;
  // What lies behind the keys stays.
  const int64_t room = list.indptr.back() + rng_.below(3);
  call->k = add("k", DType::kE4M3, {room, kIndexDim});
  call->k_scale = add_column("k_scale", DType::kF32, room);
  for (ConstTensorView view : {ConstTensorView(call->k), ConstTensorView(call->k_scale)}) {
    view.shape[0] = list.indptr.back();
    written_.push_back(view);
  }
  for (size_t i = 0; i < count(); ++i) {
    if (pieces_[i].row < 0) continue;
    Left left{static_cast<size_t>(pieces_[i].row), {}, {}};
    for (int64_t key = list.indptr[i]; key < list.indptr[i + 1]; ++key) {
      left.out.push_back(at_place(ConstTensorView(call->k), key));
      left.out.emplace_back(call->k_scale.at(key), DType::kF32, std::initializer_list<int64_t>{1});
    }
    left_.push_back(left);
  }
}

// ---- scores

void SparseScene::lay_paged_keys(IndexerLogits* call) {
  std::vector<int64_t> pages, first_page = {0};
  int64_t widest = 0;
  for (int64_t r = 0; r < x_.requests; ++r) {
    first_page.push_back(first_page.back() + pages_of(request_keys(x_, r)));
    widest = std::max(widest, pages_of(request_keys(x_, r)));
  }
  call->pages = lay_index_pages(data_.first_of_request, &pages);
  const auto tokens = static_cast<int64_t>(count());
  // Which request's pages a row of the table has.
  std::vector<int64_t> requests = shuffled(x_.requests);
  if (!how_.row_list) {
    requests.clear();
    for (const RowPiece& p : pieces_) requests.push_back(p.row < 0 ? 0 : p.row % x_.requests);
  }
  const TensorView table =
      add("page_table", DType::kI32,
          {std::ssize(requests), widest + static_cast<int64_t>(rng_.below(2))});
  for (size_t row = 0; row < requests.size(); ++row) {
    const auto r = static_cast<size_t>(requests[row]);
    for (int64_t page = 0; page < first_page[r + 1] - first_page[r]; ++page)
      store_i32(table, static_cast<int64_t>(row), page,
                static_cast<int32_t>(pages[static_cast<size_t>(first_page[r] + page)]));
  }
  call->page_table = table;
  for (int64_t t = 0; t < tokens && how_.row_list; ++t) {
    const int64_t row = pieces_[static_cast<size_t>(t)].row;
    const auto place = std::ranges::find(requests, std::max<int64_t>(row, 0) % x_.requests);
    rows_.push_back(static_cast<int32_t>(place - requests.begin()));
  }
  call->rows = rows_;
}

void SparseScene::lay_packed_keys(IndexerLogits* call) {
  const int64_t keys = data_.first_of_request.back();
  call->k = lay_all("k", data_.keys, {keys, kIndexDim});
  const TensorView scales = add_column("k_scale", DType::kF32, keys);
  scatter(data_.key_scales.bytes, scales);
  call->k_scale = scales;
}

void SparseScene::lay_call(IndexerLogits* call) {
  rows_.clear(), ks_.clear(), ke_.clear();
  const auto tokens = static_cast<int64_t>(count());
  const TensorView q = add("q", DType::kE4M3, {tokens, x_.heads, kIndexDim});
  const TensorView weights = add("weights", DType::kF32, {tokens, x_.heads});
  lay_rows(q, data_.x), lay_rows(weights, data_.head_weights);
  call->q = q, call->weights = weights;
  int32_t widest = 0;
  bool from_zero = true;
  for (const RowPiece& p : pieces_) {
    int64_t first = 0;
    if (p.row >= 0) first = row_of(p).first;
    if (p.row >= 0 && !how_.paged)
      first += data_.first_of_request[static_cast<size_t>(p.row % x_.requests)];
    ks_.push_back(static_cast<int32_t>(first));
    ke_.push_back(ks_.back() + (p.row < 0 ? 0 : row_of(p).count));
    widest = std::max(widest, ke_.back());
    from_zero &= first == 0;
  }
  if (from_zero && rng_.below(2) != 0) ks_.clear();
  call->ks = ks_, call->ke = ke_;
  how_.paged ? lay_paged_keys(call) : lay_packed_keys(call);
  call->logits = add("logits", DType::kF32, {tokens, widest + rng_.below(70)});
  written_.emplace_back(call->logits);
  for (int64_t t = 0; t < tokens; ++t) {
    const RowPiece& p = pieces_[static_cast<size_t>(t)];
    if (p.row < 0) continue;
    const ConstTensorView seen(call->logits.at(t, call->first(t)), DType::kF32,
                               {call->last(t) - call->first(t)});
    left_.push_back({static_cast<size_t>(p.row), {seen}, {}});
  }
}

// ---- choices

void SparseScene::lay_call(SelectIndices* call) {
  ks_.clear(), ke_.clear();
  const auto tokens = static_cast<int64_t>(count());
  const bool from_zero = rng_.below(3) == 0;
  int32_t widest = 0;
  for (const RowPiece& p : pieces_) {
    ks_.push_back(from_zero ? 0 : static_cast<int32_t>(rng_.below(9)));
    ke_.push_back(ks_.back() + (p.row < 0 ? 0 : row_of(p).count));
    widest = std::max(widest, ke_.back());
  }
  const TensorView logits = add("logits", DType::kF32, {tokens, widest + rng_.below(5)});
  for (int64_t t = 0; t < tokens; ++t) {
    const RowPiece& p = pieces_[static_cast<size_t>(t)];
    if (p.row < 0) continue;
    const int64_t first = data_.first[0][static_cast<size_t>(p.row)];
    const auto size = static_cast<size_t>(row_of(p).count) * sizeof(float);
    if (size > 0)
      std::memcpy(logits.at(t, ks_[static_cast<size_t>(t)]), data_.scores.row(first, 0), size);
  }
  if (from_zero && rng_.below(2) != 0) ks_.clear();
  call->logits = logits, call->ks = ks_, call->ke = ke_;
  call->indices = add("indices", DType::kI32, {tokens, x_.topk});
  leave_rows(call->indices);
}

void SparseScene::lay_entries(const TensorView& to) const {
  for (int64_t t = 0; t < to.shape[0]; ++t) {
    const int64_t row = pieces_[static_cast<size_t>(t)].row;
    for (int64_t j = 0; j < x_.topk; ++j)
      store_i32(to, t, j, row < 0 ? -1 : data_.indices[static_cast<size_t>(row * x_.topk + j)]);
  }
}

void SparseScene::lay_call(TransformIndices* call) {
  rows_.clear(), offsets_.clear();
  const auto tokens = static_cast<int64_t>(count());
  const TensorView indices = add("indices", DType::kI32, {tokens, x_.topk});
  lay_entries(indices);
  call->indices = indices;
  std::vector<int64_t> requests = shuffled(x_.requests);
  if (!how_.row_list) requests.clear();
  for (const RowPiece& p : pieces_) {
    const int64_t row = std::max<int64_t>(p.row, 0), request = row % x_.requests;
    offsets_.push_back(data_.offsets[static_cast<size_t>(row)]);
    if (!how_.row_list) requests.push_back(request);
    const auto place = std::ranges::find(requests, request) - requests.begin();
    if (how_.row_list) rows_.push_back(static_cast<int32_t>(place));
  }
  call->out = add("out", DType::kI32, {tokens, x_.topk});
  leave_rows(call->out);
  if (!x_.by_table) {
    call->offsets = offsets_;
    return;
  }
  const TensorView table =
      add("page_table_1", DType::kI32, {std::ssize(requests), data_.table_width});
  for (int64_t row = 0; row < std::ssize(requests); ++row)
    for (int64_t j = 0; j < data_.table_width; ++j)
      store_i32(table, row, j,
                data_.table[static_cast<size_t>(
                    requests[static_cast<size_t>(row)] * data_.table_width + j)]);
  call->page_table_1 = table, call->rows = rows_;
}

void SparseScene::lay_call(CompactIndices* call) {
  const auto tokens = static_cast<int64_t>(count());
  const TensorView indices = add("indices", DType::kI32, {tokens, x_.topk});
  lay_entries(indices);
  List& list = lists_[0] = {};
  list.indptr = {0};
  for (const RowPiece& p : pieces_)
    list.indptr.push_back(list.indptr.back() + (p.row < 0 ? 0 : row_of(p).count));
  const TensorView entries =
      add("kv_indices", DType::kI32, {list.indptr.back() + static_cast<int64_t>(rng_.below(4))});
  call->indices = indices, call->kv_indptr = list.indptr;
  call->kv_indices = {reinterpret_cast<int32_t*>(entries.data),
                      static_cast<size_t>(entries.shape[0])};
  for (size_t i = 0; i < count(); ++i) {
    const ConstTensorView row(entries.at(list.indptr[i]), DType::kI32,
                              {list.indptr[i + 1] - list.indptr[i]});
    written_.push_back(row);
    if (pieces_[i].row >= 0) left_.push_back({static_cast<size_t>(pieces_[i].row), {row}, {}});
  }
}

}  // namespace shadowgraph
