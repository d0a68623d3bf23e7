#include "fuzz/call/recurrent_scene.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "attn/tensor_rows.h"
#include "check/bounds/recurrent_compare.h"

namespace shadowgraph {

RecurrentArrangement RecurrentArrangement::of(const Case& x) {
  RecurrentArrangement a;
  a.calls.emplace_back();
  const auto& l = std::get<RecurrentCase>(x.call);
  for (size_t r = 0; r < l.rows.size(); ++r)
    a.calls[0].push_back({static_cast<int64_t>(r), 0, l.rows[r].tokens});
  arrange_as(x, &a);
  return a;
}

std::string RecurrentArrangement::to_string() const {
  const bool poison = poison_unread && calls.size() == 1;
  return describe_rows() + (poison ? ", poison in all that the footprint does not read" : "");
}

RecurrentResults::RecurrentResults(const Case& x) {
  out.resize(static_cast<size_t>(x.tokens()));
  draft = chunks = out;
  states.resize(std::get<RecurrentCase>(x.call).rows.size());
}

RecurrentScene::RecurrentScene(const Case& x, const RecurrentData& data,
                               const RecurrentArrangement& how)
    : x_(std::get<RecurrentCase>(x.call)), data_(data), how_(how), rng_(how.seed) {
  add_pool();
}

void RecurrentScene::add_pool() {
  const auto count = static_cast<int32_t>(x_.rows.size() + 1 + rng_.below(3));
  int64_t first = 0;
  const auto add = [&](DType type, std::vector<int64_t> shape, AxisOrder order) {
    if (!how_.far) return stored_memory_.add("states", type, shape, rng_, order);
    first =
        far_rows(std::accumulate(shape.begin() + 1, shape.end(), int64_t{1}, std::multiplies()));
    shape[0] += first;
    return stored_memory_.add_far("states", type, shape, first);
  };
  if (is_conv()) {
    pool_ = add(x_.dtype, {count, x_.dim, x_.width - 1}, AxisOrder::kAny);
  } else {
    const bool by_value = x_.order == LinearAttention::StateOrder::kValueKey;
    const int64_t a = by_value ? x_.head_dim_v : x_.head_dim_k;
    const int64_t b = by_value ? x_.head_dim_k : x_.head_dim_v;
    pool_ = add(x_.state_dtype, {count, x_.num_v_heads, a, b}, AxisOrder::kAsNamed);
  }
  slots_.resize(static_cast<size_t>(count));
  std::iota(slots_.begin(), slots_.end(), static_cast<int32_t>(first));
  shuffle(slots_, rng_);
  for (size_t i = 0; i < slots_.size(); ++i) scatter(data_.slots[i], at_place(pool_, slots_[i]));
}

TensorView RecurrentScene::add_states(const char* field, DType dtype,
                                      std::initializer_list<int64_t> leading) {
  std::vector<int64_t> shape(leading);
  for (int axis = 1; axis < pool_.rank; ++axis)
    shape.push_back(pool_.shape[static_cast<size_t>(axis)]);
  return memory_.add(field, dtype, shape, rng_, is_conv() ? AxisOrder::kAny : AxisOrder::kAsNamed);
}

int32_t RecurrentScene::slot_of(const RowPiece& piece) const {
  if (piece.row == RowPiece::kNobody) return piece.slot ? slots_.back() : -1;
  const auto row = static_cast<size_t>(piece.row);
  return x_.rows[row].slot ? slots_[row] : -1;
}

void RecurrentScene::lay_rows() {
  cu_seqlens_q_ = {0};
  state_indices_.clear(), has_initial_state_.clear(), parents_.clear();
  bool needed = rng_.below(2) != 0;
  for (const RowPiece& p : pieces_) {
    const bool mine = p.row != RowPiece::kNobody;
    bool starts = rng_.below(2) != 0;
    if (mine && x_.rows[static_cast<size_t>(p.row)].slot) {
      starts = p.begin > 0 || x_.rows[static_cast<size_t>(p.row)].initial;
      needed |= !starts;
    }
    cu_seqlens_q_.push_back(cu_seqlens_q_.back() + p.end - p.begin);
    state_indices_.push_back(slot_of(p));
    has_initial_state_.push_back(starts ? 1 : 0);
    for (int32_t j = p.begin; j < p.end && x_.tree; ++j) {
      const int64_t first = mine ? data_.first_token[static_cast<size_t>(p.row)] : 0;
      parents_.push_back(mine ? data_.parents[static_cast<size_t>(first + j)] : std::max(0, j - 1));
    }
  }
  if (!needed) has_initial_state_.clear();
}

void RecurrentScene::lay_drafts() {
  indices_.clear();
  draft_ = TensorView();
  if (!x_.drafts) return;
  int64_t steps = rng_.below(3);
  int32_t longest = 1;
  for (const RowPiece& p : pieces_) longest = std::max(longest, p.end - p.begin);
  steps += longest;
  const auto rows = static_cast<int32_t>(pieces_.size());
  const auto places = static_cast<int32_t>(rows + 1 + rng_.below(2));
  if (rng_.below(2) != 0) {
    indices_.resize(static_cast<size_t>(places));
    std::iota(indices_.begin(), indices_.end(), 0);
    shuffle(indices_, rng_);
    indices_.resize(static_cast<size_t>(rows));
  }
  draft_ = add_states("draft.states", is_conv() ? x_.dtype : x_.draft_dtype, {places, steps});
}

/// Rows of tokens to their places; what belongs to nobody stays poison.
void RecurrentScene::lay_tokens(const TensorView& to, const LogicalTensor& from) const {
  const int64_t bytes = from.heads * from.row_bytes();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const RowPiece& p = pieces_[i];
    for (int32_t j = p.begin; p.row != RowPiece::kNobody && j < p.end; ++j) {
      const int64_t token = data_.first_token[static_cast<size_t>(p.row)] + j;
      scatter({from.row(token, 0), static_cast<size_t>(bytes)},
              at_place(to, cu_seqlens_q_[i] + j - p.begin));
    }
  }
}

void RecurrentScene::lay_attention(LinearAttention* call) {
  const int64_t n = tokens(), kh = x_.num_k_heads, vh = x_.num_v_heads, dk = x_.head_dim_k,
                dv = x_.head_dim_v;
  const auto add = [&](const char* field, DType type, std::initializer_list<int64_t> shape,
                       const LogicalTensor& from) -> ConstTensorView {
    const TensorView t = memory_.add(field, type, shape, rng_);
    shape.size() == 1 ? scatter(from.bytes, t) : lay_tokens(t, from);
    return t;
  };
  call->rule = x_.rule, call->form = x_.form, call->order = x_.order;
  call->q = add("q", x_.dtype, {n, kh, dk}, data_.q);
  call->k = add("k", x_.dtype, {n, kh, dk}, data_.k);
  call->v = add("v", x_.dtype, {n, vh, dv}, data_.v);
  const DType f32 = DType::kF32;
  call->log_decay = x_.decay_rank == 1   ? add("log_decay", f32, {vh}, data_.log_decay)
                    : x_.decay_rank == 2 ? add("log_decay", f32, {n, vh}, data_.log_decay)
                                         : add("log_decay", f32, {n, vh, dk}, data_.log_decay);
  if (x_.beta) call->beta = add("beta", f32, {n, vh}, data_.beta);
  if (x_.skip) call->skip = add("skip", f32, {vh}, data_.skip);
  if (x_.z) call->z = add("z", x_.dtype, {n, vh, dv}, data_.z);
  call->scale = x_.scale, call->l2norm = x_.l2norm, call->store = x_.store;
  chunks_ = TensorView();
  if (x_.chunk_size > 0) {
    int64_t chunks = 0;
    call->chunk_size = x_.chunk_size, call->chunk_grid = x_.chunk_grid;
    for (size_t i = 0; i < pieces_.size(); ++i)
      for (const int64_t chunk : chunks_of(i)) chunks = std::max(chunks, chunk + 1);
    chunks_ = add_states("chunk_states", x_.chunk_dtype, {chunks});
  }
  call->chunk_states = chunks_;
  out_ = memory_.add("out", x_.out_dtype, {n, vh, dv}, rng_);
}

void RecurrentScene::lay_conv(CausalConv1d* call) {
  const int64_t n = tokens(), dim = x_.dim;
  const TensorView x = memory_.add("x", x_.dtype, {n, dim}, rng_, AxisOrder::kAny);
  lay_tokens(x, data_.x);
  const TensorView weight = memory_.add("weight", x_.dtype, {dim, x_.width}, rng_, AxisOrder::kAny);
  scatter(data_.weight.bytes, weight);
  call->x = x, call->weight = weight;
  if (x_.bias) {
    const TensorView bias = memory_.add("bias", x_.dtype, {dim}, rng_);
    scatter(data_.bias.bytes, bias);
    call->bias = bias;
  }
  if (x_.silu) call->activation = CausalConv1d::Activation::kSilu;
  out_ = memory_.add("out", x_.dtype, {n, dim}, rng_, AxisOrder::kAny);
}

std::vector<int64_t> RecurrentScene::chunks_of(size_t row) const {
  std::vector<int64_t> begins;
  int64_t chunk = -1;
  for (size_t i = 0; i <= row; ++i) {
    for (int32_t j = 0; j < cu_seqlens_q_[i + 1] - cu_seqlens_q_[i]; ++j) {
      const int32_t place = x_.chunk_grid == ChunkGrid::kRow ? j : cu_seqlens_q_[i] + j;
      const bool begin = j == 0 || place % x_.chunk_size == 0;
      chunk += begin ? 1 : 0;
      if (i == row) begins.push_back(begin ? chunk : -1);
    }
  }
  return begins;
}

void RecurrentScene::find_written() {
  written_.clear();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const int64_t begin = cu_seqlens_q_[i], count = cu_seqlens_q_[i + 1] - begin;
    const int32_t slot = state_indices_[i];
    const bool computed = slot >= 0 || x_.pad == PadRow::kFromZero;
    if (count == 0) continue;
    if (computed || x_.pad == PadRow::kZeroOut)
      written_.push_back(rows_of(ConstTensorView(out_), begin, count));
    if (!computed) continue;
    if (x_.drafts && (slot >= 0 || x_.of_padding))
      written_.push_back(rows_of(at_place(ConstTensorView(draft_), place_of(i)), 0, count));
    if (x_.chunk_size > 0) {
      for (const int64_t chunk : chunks_of(i))
        if (chunk >= 0) written_.push_back(at_place(ConstTensorView(chunks_), chunk));
    }
    if (slot >= 0 && (is_conv() || x_.store))
      written_.push_back(at_place(ConstTensorView(pool_), slot));
  }
}

void RecurrentScene::lay(size_t index) {
  memory_ = CallMemory();
  pieces_ = how_.calls[index];
  // Rows without tokens, whatever their slot, and padding.
  const auto idle = [&] {
    RowPiece piece{RowPiece::kNobody, 0, 0, rng_.below(2) != 0};
    if (!piece.slot) piece.end = static_cast<int32_t>(rng_.below(4));
    return piece;
  };
  add_idle_rows(how_.idle_rows, idle, rng_, &pieces_);
  lay_rows();
  lay_drafts();
  const auto finish = [&](auto* call) {
    call->rows = {cu_seqlens_q_, state_indices_, has_initial_state_, x_.pad};
    call->states = pool_;
    call->draft.states = draft_, call->draft.indices = indices_;
    call->draft.parents = parents_, call->draft.of_padding = x_.of_padding;
    call->out = out_;
    call->options = how_.options;
    call_ = *call;
  };
  if (is_conv()) {
    CausalConv1d call;
    lay_conv(&call);
    finish(&call);
  } else {
    LinearAttention call;
    lay_attention(&call);
    finish(&call);
  }
  guard_lists(rng_);
  find_written();
  if (how_.poison_unread && how_.calls.size() == 1) {
    const Footprint spans = footprint_of(call_);
    memory_.poison_unread(spans), stored_memory_.poison_unread(spans);
  }
  memory_.remember(), stored_memory_.remember();
}

RecurrentScene::Call RecurrentScene::truth() const {
  const ConstTensorView was = stored_memory_.before(pool_);
  Call call = call_;
  std::visit([&](auto& c) { c.states.data = const_cast<std::byte*>(was.data); }, call);
  return call;
}

void RecurrentScene::collect(RecurrentResults* results) const {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const RowPiece& p = pieces_[i];
    const int32_t slot = state_indices_[i];
    const bool computed = slot >= 0 || x_.pad == PadRow::kFromZero;
    if (p.row == RowPiece::kNobody || p.begin == p.end) continue;
    if (!computed && x_.pad != PadRow::kZeroOut) continue;
    const auto row = static_cast<size_t>(p.row);
    const std::vector<int64_t> chunks = x_.chunk_size > 0 ? chunks_of(i) : std::vector<int64_t>();
    for (int32_t j = p.begin; j < p.end; ++j) {
      const auto token = static_cast<size_t>(data_.first_token[row] + j);
      const int32_t in_piece = j - p.begin;
      results->out[token] = gather(at_place(out_, cu_seqlens_q_[i] + in_piece));
      if (computed && x_.drafts && (slot >= 0 || x_.of_padding))
        results->draft[token] = gather(at_place(at_place(draft_, place_of(i)), in_piece));
      if (computed && !chunks.empty() && chunks[static_cast<size_t>(in_piece)] >= 0)
        results->chunks[token] = gather(at_place(chunks_, chunks[static_cast<size_t>(in_piece)]));
    }
    if (slot >= 0 && (is_conv() || x_.store)) results->states[row] = gather(at_place(pool_, slot));
  }
}

}  // namespace shadowgraph
