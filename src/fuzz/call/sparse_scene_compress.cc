// SparseScene of the compressor's calls.
#include <algorithm>

#include "check/bounds/recurrent_compare.h"
#include "core/float_formats.h"
#include "fuzz/call/sparse_scene.h"

namespace shadowgraph {

/// Pages of all requests, with what they hold of tokens before the call; the rest is poison.
void SparseScene::add_state() {
  const CompressShape shape = x_.shape();
  first_page_ = {0};
  for (const SparseCase::Row& row : x_.rows)
    first_page_.push_back(first_page_.back() + compress_pages(x_, row));
  const int64_t first = x_.padding_page ? 1 : 0;
  const int64_t pages = first + first_page_.back() + rng_.below(3);
  stored_ = stored_memory_.add("state", DType::kF32,
                               {pages, x_.ratio, shape.channels() * x_.head_dim}, rng_);
  slots_ = shuffled(pages - first);
  for (int64_t& page : slots_) page += first;
  for (size_t r = 0; r < x_.rows.size(); ++r) {
    for (int64_t p = data_.first_position[r]; p < x_.rows[r].first; ++p) {
      const int64_t place = first_page_[r] + compress_page(x_, x_.rows[r], p);
      const int64_t from = data_.first_in_stream[r] + p - data_.first_position[r];
      for (int64_t e = 0; e < stored_.shape[2]; ++e)
        store_float(stored_.at(slots_[static_cast<size_t>(place)], p % x_.ratio, e), DType::kF32, 0,
                    data_.stream.value(from, 0, e));
    }
  }
}

/// Its tokens' lengths and pages, what they leave, and what is written.
void SparseScene::lay_tokens(const RowPiece& piece, Compress* call) {
  const auto row = static_cast<size_t>(std::max<int64_t>(piece.row, 0));
  const SparseCase::Row& r = x_.rows[row];
  const bool dropped = drops(piece);
  for (int64_t j = piece.begin; j < piece.end; ++j) {
    const auto token = static_cast<int64_t>(seq_lens_.size());
    const int64_t position = dropped ? token : r.first + j;
    const auto page_at = [&](int64_t p) {
      const int64_t place = first_page_[row] + compress_page(x_, r, p);
      return static_cast<int32_t>(slots_[static_cast<size_t>(place)]);
    };
    seq_lens_.push_back(static_cast<int32_t>(position + 1));
    // Pages that are not looked at may be anything.
    const int32_t none = x_.padding_page && rng_.below(2) != 0 ? 0 : -1;
    const bool older =
        !dropped && x_.shape().overlaps() && position >= x_.ratio && (position + 1) % x_.ratio == 0;
    pages_.push_back(dropped ? none : page_at(position));
    extra_.push_back(older ? page_at(position - x_.ratio) : INT32_MIN);
    if (dropped) continue;
    const ConstTensorView place =
        at_place(at_place(ConstTensorView(stored_), pages_.back()), position % x_.ratio);
    written_.push_back(place);
    Left left{static_cast<size_t>(data_.first[0][row] + j), {}, {}};
    if ((position + 1) % x_.ratio == 0) {
      left.out.push_back(at_place(ConstTensorView(call->out), token));
      written_.push_back(left.out[0]);
    }
    // A later token of the request may write there, in a ring.
    const int64_t again = x_.ring ? x_.ratio * compress_pages(x_, r) : r.count;
    if (j + again >= r.count) left.beside.push_back(place);
    left_.push_back(left);
  }
}

void SparseScene::lay_call(Compress* call) {
  seq_lens_.clear(), pages_.clear(), extra_.clear();
  call->shape = x_.shape();
  List& list = lists_[0] = {};
  list.indptr = {0};
  for (const RowPiece& p : pieces_) list.indptr.push_back(list.indptr.back() + p.end - p.begin);
  const int64_t tokens = list.indptr.back(), width = data_.stream.dim;
  const TensorView kv_score = add("kv_score", x_.dtype, {tokens, width});
  call->ape = lay_all("ape", data_.ape, {call->shape.window(), x_.head_dim});
  call->out = add("out", x_.out_dtype, {tokens, x_.head_dim});
  for (size_t i = 0; i < count(); ++i) {
    const RowPiece& p = pieces_[i];
    lay_tokens(p, call);
    for (int64_t j = p.begin; j < p.end && p.row >= 0; ++j) {
      const auto r = static_cast<size_t>(p.row);
      const int64_t from = data_.first_in_stream[r] + row_of(p).first - data_.first_position[r] + j;
      scatter({data_.stream.row(from, 0), static_cast<size_t>(data_.stream.row_bytes())},
              at_place(kv_score, list.indptr[i] + j - p.begin));
    }
  }
  call->kv_score = kv_score, call->cu_seqlens_q = list.indptr, call->seq_lens = seq_lens_;
  call->indices = pages_, call->extra = extra_, call->state = stored_;
  call->first_page = x_.padding_page ? 1 : 0;
}

template <class Norm>
void SparseScene::lay_norm(Norm* call) {
  const auto blocks = static_cast<int64_t>(count());
  call->weight = [&] {
    const TensorView t = add("weight", DType::kF32, {x_.head_dim});
    scatter(data_.weight.bytes, t);
    return ConstTensorView(t);
  }();
  call->eps = data_.eps;
  const TensorView freqs = add("freqs", DType::kF32, {blocks, x_.rope_dim});
  lay_rows(freqs, data_.freqs);
  call->freqs = freqs;
  call->out = add("out", x_.out_dtype, {blocks, x_.head_dim});
  leave_rows(call->out);
}

void SparseScene::lay_call(PoolNormRope* call) {
  call->shape = x_.shape();
  const TensorView kv_score =
      add("kv_score", x_.dtype, {static_cast<int64_t>(count()), call->shape.window(), data_.x.dim});
  lay_rows(kv_score, data_.x);
  call->kv_score = kv_score;
  call->ape = lay_all("ape", data_.ape, {x_.ratio, data_.ape.dim});
  lay_norm(call);
}

void SparseScene::lay_call(NormRope* call) {
  const TensorView x = add("x", x_.dtype, {static_cast<int64_t>(count()), x_.head_dim});
  lay_rows(x, data_.x);
  call->x = x;
  lay_norm(call);
}

}  // namespace shadowgraph
