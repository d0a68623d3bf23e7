// linear_attention: one item of work is one row, at one value head where rows are few. Its tokens
// go through in blocks; a block ends where a state is kept. The state is worked on where it lies if
// it is f32 there, whole vectors wide and to be stored, else in scratch. Tested by
// tests/kernels/linear_attention_test.cc.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "attn/state_chunks.h"
#include "attn/validate/validate_recurrent.h"
#include "core/float_formats.h"
#include "core/parallel.h"
#include "kernels/checked_call.h"
#include "kernels/recurrent/linear_chunked.h"
#include "kernels/recurrent/linear_rows.h"

namespace shadowgraph {
namespace {

constexpr int32_t kReadyTokens = 64;  // edge: tokens; whose vectors are made ready together

/// A thread's memory.
struct TokenScratch {
  int64_t row = -1, k_head = -1, first = -1;  // whose q, k and kq these are
  std::vector<float> q, k, decayed_q, decayed_k, v, decay, beta, kq, out, state, kept;
};

/// One row at one value head.
class HeadRun {
 public:
  HeadRun(const LinearAttention& call, const LinearIsa& isa, TokenScratch& s, int64_t row,
          int64_t head)
      : call_(call),
        isa_(isa),
        s_(s),
        row_(row),
        head_(head),
        k_head_(head / (call.v.shape[1] / call.k.shape[1])),
        slot_(call.rows.slot(row)),
        by_value_(call.order == LinearAttention::StateOrder::kValueKey),
        dim_k_(static_cast<int32_t>(call.k.shape[2])),
        dim_v_(static_cast<int32_t>(call.v.shape[2])),
        k_stride_(static_cast<int32_t>(round_up(dim_k_, kPanel))),
        // The dim along the lanes is padded; the other one counts rows.
        wide_k_(by_value_ ? k_stride_ : dim_k_),
        wide_v_(by_value_ ? dim_v_ : static_cast<int32_t>(round_up(dim_v_, kPanel))) {}

  void run() {
    const int64_t begin = call_.rows.begin(row_);
    const int64_t tokens = call_.rows.tokens(row_);
    if (!call_.rows.is_computed(row_)) {
      if (call_.rows.pad == PadRow::kZeroOut) zero_out(call_, row_, head_);
      return;
    }
    if (tokens == 0) return;
    const bool tree = !call_.draft.parents.empty();
    open_state();
    const bool keeps = call_.draft.keeps(slot_ >= 0);
    for (int64_t j = 0; j < tokens;) {
      if (tree && j > 0)
        load(keeps ? draft_state(parent_of(begin + j)) : kept(parent_of(begin + j)));
      if (call_.chunk_states.defined() && begins_chunk(call_, begin + j, j)) save(next_chunk());
      int64_t end = std::min<int64_t>(tokens, j + (keeps || tree ? 1 : kReadyTokens));
      for (int64_t i = j + 1; i < end; ++i) {
        if (call_.chunk_states.defined() && begins_chunk(call_, begin + i, i)) end = i;
      }
      block(begin + j, static_cast<int32_t>(end - j));
      if (keeps) save(draft_state(j));
      if (tree && !keeps) save(kept(j));
      j = end;
    }
    if (call_.store && slot_ >= 0 && !in_place_) save(slot_state());
  }

 private:
  /// A head's state in a tensor whose last two axes it is.
  struct Matrix {
    std::byte* data;
    DType dtype;
    int64_t stride;
  };
  static Matrix matrix(const TensorView& t, std::byte* at) {
    return {at, t.dtype, t.stride[static_cast<size_t>(t.rank) - 2]};
  }
  Matrix slot_state() const { return matrix(call_.states, call_.states.at(slot_, head_)); }
  Matrix draft_state(int64_t step) const {
    const DraftSteps& d = call_.draft;
    const int64_t place = d.place(row_);
    return matrix(d.states, d.states.at(place, step, head_));
  }
  /// Behind a token of a tree, where the call keeps no states of the row.
  Matrix kept(int64_t step) {
    const int64_t size = rows() * stride_;
    if (std::ssize(s_.kept) < (step + 1) * size)
      s_.kept.resize(static_cast<size_t>((step + 1) * size));
    return {reinterpret_cast<std::byte*>(&s_.kept[static_cast<size_t>(step * size)]), DType::kF32,
            stride_};
  }
  Matrix next_chunk() {
    if (chunk_ < 0) chunk_ = count_chunks(call_, row_);
    return matrix(call_.chunk_states, call_.chunk_states.at(chunk_++, head_));
  }
  int64_t parent_of(int64_t token) const { return call_.draft.parents[static_cast<size_t>(token)]; }

  int64_t rows() const { return by_value_ ? dim_v_ : dim_k_; }
  int64_t columns() const { return by_value_ ? dim_k_ : dim_v_; }

  void open_state() {
    const bool starts = call_.rows.starts_from_slot(row_);
    in_place_ = call_.store && slot_ >= 0 && call_.states.dtype == DType::kF32 &&
                columns() % kPanel == 0 && call_.draft.parents.empty();
    if (in_place_) {
      const Matrix m = slot_state();
      state_ = reinterpret_cast<float*>(m.data);
      stride_ = m.stride;
      if (starts) return;
    } else {
      stride_ = by_value_ ? wide_k_ : wide_v_;
      s_.state.assign(static_cast<size_t>(rows() * stride_), 0);
      state_ = s_.state.data();
      if (starts) load(slot_state());
      return;
    }
    for (int64_t r = 0; r < rows(); ++r) std::fill_n(state_ + r * stride_, columns(), 0.F);
  }

  RowsUnit rows_unit(const Matrix& m) const {
    RowsUnit unit;
    unit.at = m.data, unit.dtype = m.dtype, unit.stride = m.stride;
    unit.rows = rows(), unit.columns = columns();
    unit.floats = state_, unit.floats_stride = stride_;
    return unit;
  }
  void load(const Matrix& m) const { isa_.load_rows(rows_unit(m)); }
  void save(const Matrix& m) const { isa_.save_rows(rows_unit(m)); }

  int32_t decay_step() const { return call_.log_decay.rank == 3 ? k_stride_ : 1; }
  void make_token(int64_t token, int64_t at) {
    const auto of_k = static_cast<size_t>(at * k_stride_), one = static_cast<size_t>(at);
    TokenUnit unit;
    unit.q = &s_.q[of_k], unit.k = &s_.k[of_k], unit.dim_k = dim_k_;
    unit.decay = &s_.decay[static_cast<size_t>(at * decay_step())];
    unit.decayed_q = &s_.decayed_q[of_k], unit.decayed_k = &s_.decayed_k[of_k];
    const ConstTensorView& g = call_.log_decay;
    if (g.rank == 3) {
      unit.log_decay = reinterpret_cast<const float*>(g.at(token, head_));
    } else {
      const double log = load_float(g.rank == 1 ? g.at(head_) : g.at(token, head_), g.dtype, 0);
      *unit.decay = static_cast<float>(std::exp(log));
    }
    isa_.token(unit);
    s_.beta[one] = beta_of(call_, token, head_);
    isa_.vectors(plain_unit(call_.v, token, 1, head_, &s_.v[static_cast<size_t>(at * wide_v_)]));
  }

  /// q and k of a block, which heads of one key head share.
  void make_vectors(int64_t first, int32_t tokens) {
    if (s_.row == row_ && s_.k_head == k_head_ && s_.first == first) return;
    isa_.vectors(vector_unit(call_, call_.q, first, tokens, k_head_, call_.scale, s_.q.data()));
    isa_.vectors(vector_unit(call_, call_.k, first, tokens, k_head_, 1, s_.k.data()));
    isa_.token_dots({s_.k.data(), s_.q.data(), tokens, k_stride_, s_.kq.data()});
    s_.row = row_, s_.k_head = k_head_, s_.first = first;
  }

  void block(int64_t first, int32_t tokens) {
    make_vectors(first, tokens);
    for (int32_t i = 0; i < tokens; ++i) make_token(first + i, i);
    RecurUnit unit;
    unit.delta = call_.rule == LinearAttention::Rule::kDelta;
    unit.tokens = tokens;
    unit.dim_k = wide_k_;
    unit.dim_v = wide_v_, unit.k_stride = k_stride_;
    unit.k = s_.k.data(), unit.decayed_k = s_.decayed_k.data();
    unit.decayed_q = s_.decayed_q.data(), unit.v = s_.v.data();
    unit.decay = s_.decay.data(), unit.decay_step = decay_step();
    unit.beta = s_.beta.data(), unit.kq = s_.kq.data();
    unit.state = state_, unit.state_stride = stride_;
    unit.out = s_.out.data();
    (by_value_ ? isa_.recur_values : isa_.recur_keys)(unit);
    for (int32_t i = 0; i < tokens; ++i)
      finish_token(call_, isa_, first + i, head_, &s_.out[static_cast<size_t>(i * wide_v_)],
                   &s_.v[static_cast<size_t>(i * wide_v_)]);
  }

  const LinearAttention& call_;
  const LinearIsa& isa_;
  TokenScratch& s_;
  const int64_t row_, head_, k_head_, slot_;
  const bool by_value_;
  const int32_t dim_k_, dim_v_, k_stride_, wide_k_, wide_v_;
  bool in_place_ = false;
  float* state_ = nullptr;
  int64_t stride_ = 0;
  int64_t chunk_ = -1;  // the next one of this row
};

/// Tokens of the longest row whose tree's states the call does not keep.
int64_t unkept_steps(const LinearAttention& call) {
  int64_t steps = 0;
  if (call.draft.parents.empty() || call.draft.of_padding) return 0;
  for (int64_t r = 0; r < call.rows.rows(); ++r)
    if (call.rows.slot(r) < 0) steps = std::max(steps, call.rows.tokens(r));
  return steps;
}

void run(const LinearAttention& call) {
  const LinearIsa& isa = linear_isa(call.options.isa);
  const int64_t heads = call.v.shape[1];
  const int team = team_size(call.options.num_threads, call.rows.rows() * heads);
  // A slot in the order in which it lies, where there are rows enough for every thread.
  const int64_t group = call.rows.rows() >= 2 * team ? heads : 1;
  const int64_t groups = (heads + group - 1) / group, items = call.rows.rows() * groups;
  const int threads = static_cast<int>(std::min<int64_t>(team, items));
  const int64_t wide_k = round_up(call.k.shape[2], kPanel),
                wide_v = round_up(call.v.shape[2], kPanel);
  int64_t block = 0;
  for (int64_t r = 0; r < call.rows.rows(); ++r)
    block = std::min<int64_t>(kReadyTokens, std::max(block, call.rows.tokens(r)));
  std::vector<TokenScratch> scratch(static_cast<size_t>(threads));
  for (TokenScratch& s : scratch) {
    for (auto* x : {&s.q, &s.k, &s.decayed_q, &s.decayed_k, &s.decay})
      x->assign(static_cast<size_t>(block * wide_k), 0);
    for (auto* x : {&s.v, &s.out}) x->assign(static_cast<size_t>(block * wide_v), 0);
    for (auto* x : {&s.beta, &s.kq}) x->assign(static_cast<size_t>(block), 0);
    // No thread takes memory later.
    s.state.reserve(static_cast<size_t>(wide_k * wide_v));
    s.kept.reserve(static_cast<size_t>(unkept_steps(call) * wide_k * wide_v));
  }
  parallel_for(items, threads, [&](int64_t item, int thread) {
    const int64_t first = item % groups * group;
    for (int64_t head = first; head < std::min(first + group, heads); ++head)
      HeadRun(call, isa, scratch[static_cast<size_t>(thread)], item / groups, head).run();
  });
}

}  // namespace

Status linear_attention(const LinearAttention& call) noexcept {
  return checked(
      call, [&] { call.form == LinearAttention::Form::kChunked ? run_chunked(call) : run(call); });
}

}  // namespace shadowgraph
