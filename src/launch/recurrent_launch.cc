#include "launch/recurrent_launch.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "attn/state_chunks.h"
#include "attn/validate/validate_recurrent.h"
#include "kernels/recurrent/causal_conv1d.h"
#include "kernels/recurrent/decay_gate.h"
#include "kernels/recurrent/linear_attention.h"
#include "kernels/recurrent/state_spans.h"
#include "launch/checked_array.h"
#include "launch/checked_launch.h"

namespace shadowgraph {
namespace {

/// Without the tokens behind the last row's.
template <class View>
void drop_tokens(int64_t tokens, View* t) {
  if (t->rank > 1 && tokens >= 0) t->shape[0] = std::min(t->shape[0], tokens);
}

int64_t tokens_of(const StateRows& rows) {
  return rows.cu_seqlens_q.empty() ? -1 : rows.cu_seqlens_q.back();
}

/// Offsets that a row's tokens can be found by.
bool has_sound_offsets(const StateRows& rows, int64_t tokens) {
  int32_t before = 0;
  for (const int32_t offset : rows.cu_seqlens_q) {
    if (offset < before || offset > tokens) return false;
    before = offset;
  }
  return true;
}

/// What a row without a guard would do to the slot that it names, in the pool or outside of it.
void add_slot(Footprint* spans, const TensorView& states, int64_t slot, Access access,
              int64_t row) {
  int64_t elements = 1;
  for (int i = 1; i < states.rank; ++i) elements *= states.shape[i];
  spans->push_back({states.data, slot * states.stride[0], elements, element_bytes(states.dtype),
                    access, static_cast<int32_t>(row)});
}

/// Metadata, and the slots that rows name.
Footprint refused_rows(const StateRows& rows, const TensorView& states, bool store,
                       int64_t tokens) {
  Footprint spans;
  add_whole(&spans, rows.cu_seqlens_q);
  add_whole(&spans, rows.state_indices);
  add_whole(&spans, rows.has_initial_state);
  if (!has_sound_offsets(rows, tokens)) return spans;
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const int64_t slot = rows.slot(r);
    if (slot == -1 || rows.tokens(r) == 0) continue;
    if (rows.has_initial_state.empty() || rows.has_initial_state[static_cast<size_t>(r)] != 0)
      add_slot(&spans, states, slot, Access::kRead, r);
    if (store) add_slot(&spans, states, slot, Access::kWrite, r);
  }
  return spans;
}

/// The parents of so many tokens.
void drop_parents(int64_t tokens, DraftSteps* draft) {
  if (tokens >= 0 && tokens < std::ssize(draft->parents))
    draft->parents = draft->parents.first(static_cast<size_t>(tokens));
}

struct RecurrentLaunch : CheckedLaunch<LinearAttention> {
  static LinearAttention without_padding(LinearAttention c) {
    const int64_t tokens = tokens_of(c.rows);
    for (ConstTensorView* t : {&c.q, &c.k, &c.v, &c.beta, &c.z, &c.log_decay})
      drop_tokens(tokens, t);
    drop_tokens(tokens, &c.out);
    drop_parents(tokens, &c.draft);
    if (c.chunk_states.defined() && c.chunk_size > 0 && has_sound_offsets(c.rows, c.v.shape[0]))
      c.chunk_states.shape[0] = std::min(c.chunk_states.shape[0], count_chunks(c));
    return c;
  }
  static Status run(const LinearAttention& c) { return linear_attention(c); }
  static std::array<TensorView, 1> outputs(const LinearAttention& c) { return {c.out}; }
  static Footprint footprint(const LinearAttention& c) { return linear_attention_footprint(c); }
  static Footprint refused(const LinearAttention& c) {
    return refused_rows(c.rows, c.states, c.store, c.v.shape[0]);
  }
};

/// The offsets of rows that lists of chunks say; nothing where these are no cut of all tokens.
class ChunkCut {
 public:
  ChunkCut(const LinearCall& c, Footprint* spans)
      : c_(c),
        rows_of_tokens_(array(c.chunks.seq_idx, spans)),
        indices_(array(c.chunks.indices, spans)),
        offsets_(array(c.chunks.offsets, spans)),
        count_(array(c.chunks.count, spans)) {}

  std::optional<std::vector<int32_t>> run() {
    const int64_t rows = c_.rows.rows(), tokens = tokens_of(c_.rows);
    const auto count = count_.load(0, -1);
    if (!count || *count < 0 || c_.chunk_size < 1) return {};
    std::vector<int32_t> cut(static_cast<size_t>(rows) + 1);
    int64_t row = 0, begin = 0;
    std::optional<int64_t> next = *count > 0 ? start(0) : tokens;
    if (next != 0) return {};
    for (int64_t i = 0; i < *count; ++i, begin = *next) {
      next = i + 1 < *count ? start(i + 1) : tokens;
      if (!next || *next <= begin || *next > (begin / c_.chunk_size + 1) * c_.chunk_size) return {};
      const auto of = rows_of_tokens_.load(begin, -1);
      if (!of || *of < row || *of >= rows) return {};
      for (int64_t t = begin + 1; t < *next; ++t)
        if (rows_of_tokens_.load(t, -1) != of) return {};
      for (; row < *of; ++row) cut[static_cast<size_t>(row) + 1] = static_cast<int32_t>(begin);
    }
    for (; row < rows; ++row) cut[static_cast<size_t>(row) + 1] = static_cast<int32_t>(tokens);
    return cut;
  }

 private:
  static CheckedArray<const int32_t> array(std::span<const int32_t> of, Footprint* spans) {
    return {of.data(), std::ssize(of), spans};
  }
  /// The first token of a run.
  std::optional<int64_t> start(int64_t run) {
    const auto index = indices_.load(run, -1), offset = offsets_.load(run, -1);
    if (!index || !offset || *index < 0 || *offset < 0 || *offset >= c_.chunk_size) return {};
    return int64_t{*index} * c_.chunk_size + *offset;
  }

  const LinearCall& c_;
  CheckedArray<const int32_t> rows_of_tokens_, indices_, offsets_, count_;
};

void run_linear(const LinearCall& given) {
  if (given.chunks.count.empty()) return run_checked<RecurrentLaunch>(given);
  const auto cut = ChunkCut(given, nullptr).run();
  if (!cut) return poison(RecurrentLaunch::without_padding(given).out);
  LinearAttention c = given;
  c.rows.cu_seqlens_q = *cut;
  run_checked<RecurrentLaunch>(c);
}

void note_linear(const LinearCall& given, Footprint* spans) {
  if (given.chunks.count.empty()) return note_checked<RecurrentLaunch>(given, spans);
  const auto cut = ChunkCut(given, spans).run();
  LinearAttention c = given;
  Footprint all;
  if (cut) {
    c.rows.cu_seqlens_q = *cut;
    note_checked<RecurrentLaunch>(c, &all);
    add_whole(spans, given.rows.cu_seqlens_q);
  } else {
    c = RecurrentLaunch::without_padding(c);
    all = RecurrentLaunch::refused(c);
    add_written(&all, c.out);
  }
  for (const AccessSpan& span : all)
    if (!cut || span.buffer != cut->data()) spans->push_back(span);
}

struct ConvLaunch : CheckedLaunch<CausalConv1d> {
  static CausalConv1d without_padding(CausalConv1d c) {
    const int64_t tokens = tokens_of(c.rows);
    drop_tokens(tokens, &c.x);
    drop_tokens(tokens, &c.out);
    drop_parents(tokens, &c.draft);
    return c;
  }
  static Status run(const CausalConv1d& c) { return causal_conv1d(c); }
  static std::array<TensorView, 1> outputs(const CausalConv1d& c) { return {c.out}; }
  static Footprint footprint(const CausalConv1d& c) { return causal_conv1d_footprint(c); }
  static Footprint refused(const CausalConv1d& c) {
    return refused_rows(c.rows, c.states, true, c.x.shape[0]);
  }
};

struct GateLaunch : CheckedLaunch<DecayGate> {
  static Status run(const DecayGate& g) { return decay_gate(g); }
  static Footprint footprint(const DecayGate& g) { return decay_gate_footprint(g); }
  static Footprint refused(const DecayGate& /*gate*/) { return {}; }
};

void make_parents(const DraftParents& c) {
  const auto steps = static_cast<size_t>(c.steps);
  for (size_t at = 0; at + steps <= c.parents.size(); at += steps) {
    const auto row = c.parents.subspan(at, steps);
    if (tree_parents(c.next_token.subspan(at, steps), c.next_sibling.subspan(at, steps), c.steps,
                     row)
            .ok())
      continue;
    for (size_t j = 0; j < steps; ++j) row[j] = j == 0 ? 0 : static_cast<int32_t>(j) - 1;
  }
}

void note_parents(const DraftParents& c, Footprint* spans) {
  for (int64_t at = 0; at < std::ssize(c.parents); at += c.steps) {
    const auto row = static_cast<int32_t>(at / c.steps);
    for (const auto& list : {c.next_token, c.next_sibling})
      spans->push_back({list.data(), at, c.steps, sizeof(int32_t), Access::kRead, row});
    spans->push_back({c.parents.data(), at, c.steps, sizeof(int32_t), Access::kWrite, row});
  }
}

}  // namespace

constinit const Kernel kLinearAttention =
    launch_kernel<LinearCall, run_linear, note_linear>("linear_attention");
constinit const Kernel kCausalConv1d = checked_kernel<ConvLaunch>("causal_conv1d");
constinit const Kernel kDecayGate = checked_kernel<GateLaunch>("decay_gate");
constinit const Kernel kDraftParents =
    launch_kernel<DraftParents, make_parents, note_parents>("draft_parents");

KernelLaunch recurrent_launch(const LinearCall& call, const RequestRows& rows) {
  return launch_of(kLinearAttention, call, rows, call.rows.rows());
}

KernelLaunch conv_launch(const CausalConv1d& call, const RequestRows& rows) {
  return launch_of(kCausalConv1d, call, rows, call.rows.rows());
}

KernelLaunch gate_launch(const DecayGate& gate) {
  return launch_of(kDecayGate, gate, {.a_request = 0}, gate.x.shape[0]);  // rows are tokens
}

KernelLaunch parents_launch(const DraftParents& call, const RequestRows& rows) {
  return launch_of(kDraftParents, call, rows, 1);
}

}  // namespace shadowgraph
