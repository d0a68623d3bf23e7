// SparseScene of sparse_attention and pack_latents.
#include <algorithm>
#include <cassert>

#include "check/bounds/recurrent_compare.h"
#include "core/float_formats.h"
#include "fuzz/call/sparse_scene.h"

namespace shadowgraph {

WritableLatentPool SparseScene::make_pool(const char* field, int list, CallMemory* memory,
                                          int64_t slots) {
  const LatentLayout layout = list == 0 ? x_.layout : x_.extra_layout;
  const bool paged = layout == LatentLayout::kV4;
  const int32_t page_size = paged ? how_.page_size[static_cast<size_t>(list)] : 1;
  const int64_t width = layout == LatentLayout::kRows  ? x_.head_dim
                        : layout == LatentLayout::kDsa ? kDsaBytes
                                                       : v4_page_bytes(page_size);
  const DType type = layout == LatentLayout::kRows ? x_.rows_dtype : DType::kU8;
  return {add_pool(memory, field, type, {(slots + page_size - 1) / page_size, width}), layout,
          page_size};
}

int64_t SparseScene::slots_before(const WritableLatentPool& pool) const {
  return rows_before(pool.data.shape[1]) * pool.page_size;
}

void SparseScene::add_pack_pool() {
  first_slot_ = !x_.padding_page ? 0 : x_.layout == LatentLayout::kV4 ? how_.page_size[0] : 4;
  pool_ = make_pool("pool", 0, &stored_memory_, first_slot_ + std::ssize(x_.rows) + rng_.below(9));
  const int64_t before = slots_before(pool_) + first_slot_;
  slots_ = shuffled(pool_.slots() - before, before);
  slots_.resize(x_.rows.size());
}

void SparseScene::lay_call(PackLatents* call) {
  out_cache_loc_.clear();
  for (const RowPiece& p : pieces_) {
    // Any number of tokens may name the same slot of the padding page.
    const auto none = static_cast<int64_t>(rng_.below(x_.padding_page ? 3 : 2)) - 2;
    out_cache_loc_.push_back(drops(p) ? none : slots_[static_cast<size_t>(p.row)]);
  }
  const auto tokens = static_cast<int64_t>(count());
  const TensorView latents = add("latents", x_.dtype, {tokens, x_.head_dim});
  lay_rows(latents, data_.x);
  call->latents = latents, call->out_cache_loc = out_cache_loc_, call->pool = pool_;
  call->first_slot = first_slot_;
  const ConstTensorView& data = pool_.data;
  for (const RowPiece& p : pieces_) {
    if (drops(p)) continue;
    const int64_t slot = slots_[static_cast<size_t>(p.row)];
    const auto bytes = [&](int64_t first, int64_t elements) {
      const auto size = static_cast<int64_t>(size_of(data.dtype));
      written_.emplace_back(data.data + first * size, data.dtype,
                            std::initializer_list<int64_t>{elements});
      return written_.back();
    };
    Left left{static_cast<size_t>(p.row), {}, {}};
    const bool v4 = pool_.layout == LatentLayout::kV4;
    left.beside.push_back(bytes(pool_.latent_at(slot), v4 ? kV4Bytes : data.shape[1]));
    if (v4) left.beside.push_back(bytes(pool_.scales_at(slot), kV4Scales));
    left_.push_back(left);
  }
}

void SparseScene::lay_call(SparseAttention* call) {
  const auto tokens = static_cast<int64_t>(count());
  const TensorView q = add("q", x_.dtype, {tokens, x_.heads, x_.head_dim});
  lay_rows(q, data_.x);
  call->q = q;
  lay_keys("keys", 0, &call->keys);
  if (x_.has_extra) lay_keys("extra", 1, &call->extra);
  call->head_dim_v = x_.head_dim_v;
  call->sm_scale = data_.sm_scale;
  sinks_ = data_.sinks;
  call->sinks = sinks_;
  call->out = add("out", x_.out_dtype, {tokens, x_.heads, x_.head_dim_v});
  leave_rows(call->out);
  if (!how_.with_lse) return;
  const TensorView lse = memory_.add("lse", DType::kF32, {tokens, x_.heads}, rng_, AxisOrder::kAny);
  call->lse = NaturalLse(lse);
  leave_rows(lse, true);
}

void SparseScene::lay_keys(const char* field, int list, ChosenKeys* keys) {
  const auto l = static_cast<size_t>(list);
  const int64_t named = data_.first[l].back(), all = named + SparseData::kForeign;
  WritableLatentPool pool = make_pool(field, list, &memory_, all + rng_.below(14));
  std::vector<int64_t> slots = shuffled(pool.slots() - slots_before(pool), slots_before(pool));
  const LogicalTensor& latents = data_.latents[l];
  if (pool.layout == LatentLayout::kRows) {
    for (int64_t key = 0; key < all; ++key)
      for (int64_t i = 0; i < x_.head_dim; ++i)
        store_float(pool.data.at(slots[static_cast<size_t>(key)]), pool.data.dtype, i,
                    latents.value(key, 0, i));
  } else {
    PackLatents pack;
    pack.latents = ConstTensorView(latents.bytes.data(), DType::kF32, {all, x_.head_dim});
    pack.out_cache_loc = std::span(slots).first(static_cast<size_t>(all));
    pack.pool = pool;
    [[maybe_unused]] const Status packed = pack_latents(pack);
    assert(packed.ok());
  }
  keys->pool = pool;
  lay_list(slots, list, keys);
}

void SparseScene::lay_list(const std::vector<int64_t>& slots, int list, ChosenKeys* keys) {
  const auto l = static_cast<size_t>(list);
  List& made = lists_[l] = {};
  std::vector<std::vector<int32_t>> rows(count());
  size_t widest = 0;
  for (size_t i = 0; i < count(); ++i) {
    std::vector<int32_t>& row = rows[i];
    const auto mine = static_cast<size_t>(std::max<int64_t>(pieces_[i].row, 0));
    const int64_t begin = data_.first[l][mine];
    const int64_t end = pieces_[i].row < 0 ? begin : data_.first[l][mine + 1];
    for (int64_t key = begin; key < end; ++key) {
      while (how_.holes && rng_.below(4) == 0) row.push_back(-1);
      row.push_back(static_cast<int32_t>(slots[static_cast<size_t>(key)]));
    }
    if (row.empty() && rng_.below(2) == 0) row.push_back(-1);
    widest = std::max(widest, row.size());
  }
  widest += rng_.below(3);
  made.indptr = {0};
  for (std::vector<int32_t>& row : rows) {
    made.lengths.push_back(static_cast<int32_t>(row.size()));
    // What is behind a list's length is not looked at.
    if (!how_.ragged[l]) row.resize(widest, INT32_MIN);
    made.indices.insert(made.indices.end(), row.begin(), row.end());
    made.indptr.push_back(static_cast<int32_t>(made.indices.size()));
  }
  keys->indices = made.indices;
  if (how_.ragged[l]) {
    keys->indptr = made.indptr;
  } else {
    keys->width = static_cast<int64_t>(widest);
    keys->lengths = made.lengths;
  }
}

}  // namespace shadowgraph
