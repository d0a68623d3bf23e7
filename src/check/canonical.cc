#include "check/canonical.h"

#include <algorithm>
#include <iterator>

#include "attn/mask.h"
#include "attn/row_keys.h"
#include "backends/fill/rows.h"

namespace shadowgraph {
namespace {

/// Builds the rows of one kind of layer.
class RowBuilder {
 public:
  RowBuilder(const ForwardBatch& batch, const LayerKind& kind, const ModelConfig& model)
      : b_(batch), kind_(kind), model_(model) {
    rows_.cu_seqlens_q = {0};
    tree_ = is_target_verify(b_.mode) && !b_.spec.custom_mask.empty();
    const bool pairs = tree_ || kind_.local || kind_.dual_chunk || model.dcp_size > 1 ||
                       !batch.item_delimiters.empty();
    if (pairs && !kind_.cross) rows_.mask_indptr = {0};
  }

  CanonicalRows run() {
    for (int64_t i = 0; i < b_.size(); ++i) {
      const RequestExtent e = b_.extent(i);
      if (kind_.dual_chunk)
        rows_.key_factors.push_back(static_cast<float>(
            dual_chunk_factor(b_.prompt_len(i), model_.dual_chunk.original_max_position)));
      if (kind_.cross) {
        add_encoder_row(i, e);
        continue;
      }
      for (int32_t branch = 0; branch < rows_a_request(b_); ++branch)
        add_text(i, e, text_keys(i, branch));
    }
    return std::move(rows_);
  }

 private:
  int32_t translated(int64_t slot) const {
    const bool swa = in_window_pool(model_, kind_);
    return static_cast<int32_t>(swa ? b_.full_to_swa[static_cast<size_t>(slot)] : slot);
  }

  /// The rank has token c of a request.
  bool has(int32_t c) const { return c % model_.dcp_size == model_.dcp_rank; }

  /// Those that the rank has.
  std::vector<int32_t> text_keys(int64_t request, int32_t branch) const {
    std::vector<int32_t> keys;
    int32_t c = 0;
    for (const int32_t slot : row_keys(b_, request, branch)) {
      if (has(c++)) keys.push_back(translated(slot) / model_.dcp_size);
    }
    return keys;
  }

  void add(int32_t q_len, std::vector<int32_t> keys) {
    rows_.cu_seqlens_q.push_back(rows_.cu_seqlens_q.back() + q_len);
    rows_.kv_lens.push_back(static_cast<int32_t>(keys.size()));
    rows_.keys.push_back(std::move(keys));
  }

  /// The last of the keys that the rank has are the new tokens'.
  void add_text(int64_t i, const RequestExtent& e, std::vector<int32_t> keys) {
    int32_t first = e.kv_len;
    auto key = keys.end();
    while (first > e.prefix_len) key -= has(--first);
    for (int32_t c = e.prefix_len; c < e.kv_len; ++c) rows_.stored.push_back(has(c) ? *key++ : -1);
    add(e.q_len, std::move(keys));
    add_mask(i, e);
  }

  void add_encoder_row(int64_t i, const RequestExtent& e) {
    std::vector<int32_t> keys = encoder_keys(b_, i);
    for (int32_t& slot : keys) slot = translated(slot);
    add(e.q_len, std::move(keys));
  }

  /// Pair by pair, where causal and window alone do not say it.
  void add_mask(int64_t i, const RequestExtent& e) {
    if (rows_.mask_indptr.empty()) return;
    for (int32_t q = 0; q < e.q_len; ++q) {
      for (int32_t k = 0; k < e.kv_len; ++k) {
        if (has(k)) rows_.mask.push_back(sees(e, q, k) && item_sees(i, e, q, k));
      }
    }
    rows_.mask_indptr.push_back(static_cast<int64_t>(rows_.mask.size()));
    tree_at_ += tree_ ? int64_t{e.q_len} * e.kv_len : 0;
  }

  bool tree_bit(const RequestExtent& e, int32_t q, int32_t k) const {
    return b_.spec.custom_mask[static_cast<size_t>(tree_at_ + int64_t{q} * e.kv_len + k)] != 0;
  }

  /// Tokens between the start of the request and this key, along the branch it is on.
  int64_t position(const RequestExtent& e, int32_t k) const {
    if (!tree_ || k < e.prefix_len) return k;
    int64_t ancestors = 0;
    for (int32_t u = e.prefix_len; u < e.kv_len; ++u)
      ancestors += u != k && tree_bit(e, k - e.prefix_len, u);
    return e.prefix_len + ancestors;
  }

  bool sees(const RequestExtent& e, int32_t q, int32_t k) const {
    const int64_t at = position(e, e.prefix_len + q), key = position(e, k);
    if (tree_ && !tree_bit(e, q, k)) return false;
    // As many queries as keys: query `at` stands at key position `at`.
    MaskShape mask = MaskShape::of(kind_.params, e.kv_len, e.kv_len);
    mask.causal = mask.causal && !tree_;
    if (!attends(mask, at, key)) return false;
    return !kind_.local || key / model_.attention_chunk == at / model_.attention_chunk;
  }

  /// In a request with items a query sees no key behind itself. From the first delimiter on it sees
  /// what stands before the first delimiter, or behind the last delimiter that it has reached.
  bool item_sees(int64_t i, const RequestExtent& e, int32_t q, int32_t k) const {
    const std::span<const int32_t> places = b_.delimiters(i);
    if (places.empty()) return true;
    const int32_t token = k - e.prefix_len;
    if (q < places.front()) return token <= q;
    const int32_t own = *std::prev(std::ranges::upper_bound(places, q));
    return token < places.front() || (own < token && token <= q);
  }

  const ForwardBatch& b_;
  const LayerKind& kind_;
  const ModelConfig& model_;
  bool tree_ = false;
  int64_t tree_at_ = 0;  // of the request in custom_mask
  CanonicalRows rows_;
};

/// One copy of the queries.
ConstTensorView queries_of(ConstTensorView q, const LayerKind& kind, ChunkPart part) {
  const int64_t heads = kind.params.num_qo_heads;
  q.data +=
      static_cast<int64_t>(part) * heads * q.stride[1] * static_cast<int64_t>(size_of(q.dtype));
  q.shape[1] = heads;
  return q;
}

}  // namespace

std::span<const int32_t> CanonicalRows::stored_by(size_t row) const {
  if (stored.empty()) return {};
  const auto first = static_cast<size_t>(cu_seqlens_q[row]);
  return std::span(stored).subspan(first, static_cast<size_t>(cu_seqlens_q[row + 1]) - first);
}

std::span<const int32_t> CanonicalRows::old_keys(size_t row) const {
  const auto fresh = std::ranges::count_if(stored_by(row), [](int32_t slot) { return slot >= 0; });
  return std::span(keys[row]).first(keys[row].size() - static_cast<size_t>(fresh));
}

CanonicalRows canonical_rows(const ForwardBatch& batch, const LayerKind& kind,
                             const ModelConfig& model) {
  return RowBuilder(batch, kind, model).run();
}

CanonicalCall::CanonicalCall(const ForwardBatch& batch, const ModelConfig& model, const LayerIo& io)
    : rows_(canonical_rows(batch, model.layers[static_cast<size_t>(io.kind)], model)) {
  const LayerKind& kind = model.layers[static_cast<size_t>(io.kind)];
  call_.q = io.q;
  call_.out = io.out;
  call_.lse = io.lse;
  call_.q.shape[0] = call_.out.shape[0] = rows_.cu_seqlens_q.back();
  if (call_.lse.defined()) call_.lse.tensor.shape[0] = rows_.cu_seqlens_q.back();
  read_from(slot_view(io.cache), rows_.keys);
  call_.cu_seqlens_q = rows_.cu_seqlens_q;
  call_.params = kind.params;
  if (kind.dual_chunk) {
    dual_chunk_.emplace().chunks = {model.dual_chunk.chunk_len()};
    for (const ChunkPart part : kChunkParts)
      dual_chunk_->q[static_cast<size_t>(part)] = queries_of(call_.q, kind, part);
    call_.q = dual_chunk_->q[0];
  }
  if (rows_.mask_indptr.empty() && !kind.cross) return;
  call_.params.causal = false;
  call_.params.window_left = call_.params.window_right = -1;
  if (kind.cross) return;
  call_.params.custom_mask = {CustomMask::Kind::kBool, rows_.mask, rows_.mask_indptr};
}

void CanonicalCall::read_from(const KvCache& cache, const std::vector<std::vector<int32_t>>& keys) {
  const int32_t widest = rows_.kv_lens.empty() ? 0 : std::ranges::max(rows_.kv_lens);
  page_table_.clear();
  for (const std::vector<int32_t>& row : keys) {
    page_table_.insert(page_table_.end(), row.begin(), row.end());
    page_table_.resize(page_table_.size() + static_cast<size_t>(widest) - row.size(), -1);
  }
  call_.cache = cache;
  call_.pages = PageTable::dense(page_table_, widest, rows_.kv_lens);
}

}  // namespace shadowgraph
