#include "launch/linear_launch.h"

#include "attn/linear_chunks.h"
#include "attn/validate_linear.h"
#include "kernels/causal_conv1d.h"
#include "kernels/decay_gate.h"
#include "kernels/linear_attention.h"
#include "kernels/state_spans.h"
#include "launch/view_args.h"

namespace shadowgraph {
namespace {

/// Lists of rows: their pointers, then their scalars.
struct RowsOf {
  int64_t num_rows, num_initial, num_indices, num_parents;
  RequestRows requests;
  PadRow pad;
  uint8_t of_padding, unused[6];
};
static_assert(sizeof(RowsOf) == 4 * 8 + 8 + 8);
constexpr size_t kRowArgs = 5;

KernelArgs& add_row_args(KernelArgs& args, const StateRows& rows, const DraftSteps& draft,
                         const RequestRows& requests) {
  RowsOf s{};
  s.num_rows = rows.rows();
  s.num_initial = std::ssize(rows.has_initial_state);
  s.num_indices = std::ssize(draft.indices), s.num_parents = std::ssize(draft.parents);
  s.requests = requests;
  s.pad = rows.pad, s.of_padding = draft.of_padding;
  return args.pointer(rows.cu_seqlens_q.data())
      .pointer(rows.state_indices.data())
      .pointer(rows.has_initial_state.data())
      .pointer(draft.indices.data())
      .pointer(draft.parents.data())
      .scalar(s);
}

RequestRows take_row_args(const LaunchFrame& f, size_t first, StateRows* rows, DraftSteps* draft) {
  const auto s = f.scalar<RowsOf>(first + kRowArgs);
  rows->cu_seqlens_q = array_of<int32_t>(f, first, s.num_rows + 1);
  rows->state_indices = array_of<int32_t>(f, first + 1, s.num_rows);
  rows->has_initial_state = array_of<uint8_t>(f, first + 2, s.num_initial);
  rows->pad = s.pad;
  draft->indices = array_of<int32_t>(f, first + 3, s.num_indices);
  draft->parents = array_of<int32_t>(f, first + 4, s.num_parents);
  draft->of_padding = s.of_padding != 0;
  return s.requests;
}

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

void add_refused(Footprint* spans, const StateRows& rows, const TensorView& states, bool store,
                 int64_t tokens) {
  add_whole(spans, rows.cu_seqlens_q);
  add_whole(spans, rows.state_indices);
  add_whole(spans, rows.has_initial_state);
  if (!has_sound_offsets(rows, tokens)) return;
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const int64_t slot = rows.slot(r);
    if (slot == -1 || rows.tokens(r) == 0) continue;
    if (rows.has_initial_state.empty() || rows.has_initial_state[static_cast<size_t>(r)] != 0)
      add_slot(spans, states, slot, Access::kRead, r);
    if (store) add_slot(spans, states, slot, Access::kWrite, r);
  }
}

/// Without padding.
LinearAttention linear_without_padding(const LaunchFrame& f) {
  LinearAttention c = linear_call(f.launch).call;
  const int64_t tokens = tokens_of(c.rows);
  for (ConstTensorView* t : {&c.q, &c.k, &c.v, &c.beta, &c.z, &c.log_decay}) drop_tokens(tokens, t);
  drop_tokens(tokens, &c.out);
  if (tokens >= 0 && tokens < std::ssize(c.draft.parents))
    c.draft.parents = c.draft.parents.first(static_cast<size_t>(tokens));
  if (c.chunk_states.defined() && c.chunk_size > 0 && has_sound_offsets(c.rows, c.v.shape[0]))
    c.chunk_states.shape[0] = std::min(c.chunk_states.shape[0], count_chunks(c));
  return c;
}

CausalConv1d conv_without_padding(const LaunchFrame& f) {
  CausalConv1d c = conv_call(f.launch).call;
  const int64_t tokens = tokens_of(c.rows);
  drop_tokens(tokens, &c.x);
  drop_tokens(tokens, &c.out);
  if (tokens >= 0 && tokens < std::ssize(c.draft.parents))
    c.draft.parents = c.draft.parents.first(static_cast<size_t>(tokens));
  return c;
}

Progress linear_body(LaunchFrame& f) {
  const LinearAttention call = linear_without_padding(f);
  if (!linear_attention(call).ok()) poison(call.out);
  return Progress::kDone;
}

void linear_spans(const LaunchFrame& f, Footprint* spans) {
  const LinearAttention call = linear_without_padding(f);
  if (validate(call).ok()) {
    *spans = linear_attention_footprint(call);
  } else {
    add_refused(spans, call.rows, call.states, call.store, call.v.shape[0]);
    add_written(spans, call.out);
  }
  name_requests(linear_call(f.launch).rows, spans);
}

Progress conv_body(LaunchFrame& f) {
  const CausalConv1d call = conv_without_padding(f);
  if (!causal_conv1d(call).ok()) poison(call.out);
  return Progress::kDone;
}

void conv_spans(const LaunchFrame& f, Footprint* spans) {
  const CausalConv1d call = conv_without_padding(f);
  if (validate(call).ok()) {
    *spans = causal_conv1d_footprint(call);
  } else {
    add_refused(spans, call.rows, call.states, true, call.x.shape[0]);
    add_written(spans, call.out);
  }
  name_requests(conv_call(f.launch).rows, spans);
}

Progress gate_body(LaunchFrame& f) {
  (void)decay_gate(gate_call(f.launch));
  return Progress::kDone;
}

void gate_spans(const LaunchFrame& f, Footprint* spans) {
  const DecayGate gate = gate_call(f.launch);
  if (validate(gate).ok()) *spans = decay_gate_footprint(gate);
  name_requests({.a_request = 0}, spans);  // rows are tokens
}

enum ParentsArg : uint8_t { kNextToken, kNextSibling, kParents, kParentsScalars };
struct ParentsScalars {
  int64_t tokens, steps;
  RequestRows rows;
};

Progress parents_body(LaunchFrame& f) {
  const DraftParents c = parents_call(f.launch).call;
  const auto steps = static_cast<size_t>(c.steps);
  for (size_t at = 0; at + steps <= c.parents.size(); at += steps) {
    const auto row = c.parents.subspan(at, steps);
    if (tree_parents(c.next_token.subspan(at, steps), c.next_sibling.subspan(at, steps), c.steps,
                     row)
            .ok())
      continue;
    for (size_t j = 0; j < steps; ++j) row[j] = j == 0 ? 0 : static_cast<int32_t>(j) - 1;
  }
  return Progress::kDone;
}

void parents_spans(const LaunchFrame& f, Footprint* spans) {
  const auto [c, rows] = parents_call(f.launch);
  for (int64_t at = 0; at < std::ssize(c.parents); at += c.steps) {
    const auto row = static_cast<int32_t>(at / c.steps);
    for (const void* list : {static_cast<const void*>(c.next_token.data()),
                             static_cast<const void*>(c.next_sibling.data())})
      spans->push_back({list, at, c.steps, sizeof(int32_t), Access::kRead, row});
    spans->push_back({c.parents.data(), at, c.steps, sizeof(int32_t), Access::kWrite, row});
  }
  name_requests(rows, spans);
}

struct LinearScalars {
  float scale;
  int32_t chunk_size, num_threads;
  LinearAttention::Rule rule;
  LinearAttention::Form form;
  LinearAttention::StateOrder order;
  ChunkGrid grid;
  uint8_t l2norm, store, unused[2];
};
static_assert(sizeof(LinearScalars) == 12 + 4 + 4);
constexpr size_t kLinearViews = 11, kConvViews = 6, kGateViews = 6;

}  // namespace

constinit const Kernel kLinearAttention{
    .name = "linear_attention", .body = linear_body, .footprint = linear_spans};
constinit const Kernel kCausalConv1d{
    .name = "causal_conv1d", .body = conv_body, .footprint = conv_spans};
constinit const Kernel kDecayGate{.name = "decay_gate", .body = gate_body, .footprint = gate_spans};
constinit const Kernel kDraftParents{
    .name = "draft_parents", .body = parents_body, .footprint = parents_spans};

CallOf<LinearAttention> linear_call(const KernelLaunch& launch) {
  const LaunchFrame f{launch};
  const auto t = views_of<kLinearViews>(f, 0);
  LinearAttention c;
  c.q = t[0], c.k = t[1], c.v = t[2], c.log_decay = t[3], c.beta = t[4], c.skip = t[5], c.z = t[6];
  c.states = t[7], c.draft.states = t[8], c.chunk_states = t[9], c.out = t[10];
  const RequestRows rows = take_row_args(f, kLinearViews + 1, &c.rows, &c.draft);
  const auto s = f.scalar<LinearScalars>(kLinearViews + 1 + kRowArgs + 1);
  c.scale = s.scale, c.chunk_size = s.chunk_size, c.options.num_threads = s.num_threads;
  c.rule = s.rule, c.form = s.form, c.order = s.order, c.chunk_grid = s.grid;
  c.l2norm = s.l2norm != 0, c.store = s.store != 0;
  return {c, rows};
}

KernelLaunch linear_launch(const LinearAttention& c, const RequestRows& rows) {
  LinearScalars s{};
  s.scale = c.scale, s.chunk_size = c.chunk_size, s.num_threads = c.options.num_threads;
  s.rule = c.rule, s.form = c.form, s.order = c.order, s.grid = c.chunk_grid;
  s.l2norm = c.l2norm, s.store = c.store;
  KernelLaunch launch = launch_of(kLinearAttention, c.rows.rows());
  add_views<kLinearViews>(launch.args, {c.q, c.k, c.v, c.log_decay, c.beta, c.skip, c.z, c.states,
                                        c.draft.states, c.chunk_states, c.out});
  add_row_args(launch.args, c.rows, c.draft, rows).scalar(s);
  return launch;
}

CallOf<CausalConv1d> conv_call(const KernelLaunch& launch) {
  const LaunchFrame f{launch};
  const auto t = views_of<kConvViews>(f, 0);
  CausalConv1d c;
  c.x = t[0], c.weight = t[1], c.bias = t[2], c.states = t[3], c.draft.states = t[4], c.out = t[5];
  const RequestRows rows = take_row_args(f, kConvViews + 1, &c.rows, &c.draft);
  c.activation = f.scalar<CausalConv1d::Activation>(kConvViews + 1 + kRowArgs + 1);
  return {c, rows};
}

KernelLaunch conv_launch(const CausalConv1d& c, const RequestRows& rows) {
  KernelLaunch launch = launch_of(kCausalConv1d, c.rows.rows());
  add_views<kConvViews>(launch.args, {c.x, c.weight, c.bias, c.states, c.draft.states, c.out});
  add_row_args(launch.args, c.rows, c.draft, rows).scalar(c.activation);
  return launch;
}

DecayGate gate_call(const KernelLaunch& launch) {
  const LaunchFrame f{launch};
  const auto t = views_of<kGateViews>(f, 0);
  DecayGate g;
  g.x = t[0], g.a_log = t[1], g.dt_bias = t[2], g.b = t[3], g.log_decay = t[4], g.beta = t[5];
  g.kind = f.scalar<DecayGate::Kind>(kGateViews + 1);
  g.lower_bound = f.scalar<float>(kGateViews + 2);
  return g;
}

KernelLaunch gate_launch(const DecayGate& g) {
  KernelLaunch launch = launch_of(kDecayGate, g.x.shape[0]);
  add_views<kGateViews>(launch.args, {g.x, g.a_log, g.dt_bias, g.b, g.log_decay, g.beta});
  launch.args.scalar(g.kind).scalar(g.lower_bound);
  return launch;
}

CallOf<DraftParents> parents_call(const KernelLaunch& launch) {
  const LaunchFrame f{launch};
  const auto s = f.scalar<ParentsScalars>(kParentsScalars);
  return {{array_of<int32_t>(f, kNextToken, s.tokens),
           array_of<int32_t>(f, kNextSibling, s.tokens),
           {f.pointer<int32_t>(kParents), static_cast<size_t>(s.tokens)},
           s.steps},
          s.rows};
}

KernelLaunch parents_launch(const DraftParents& c, const RequestRows& rows) {
  KernelLaunch launch = launch_of(kDraftParents, 1);
  launch.args.pointer(c.next_token.data())
      .pointer(c.next_sibling.data())
      .pointer(c.parents.data())
      .scalar(ParentsScalars{std::ssize(c.parents), c.steps, rows});
  return launch;
}

}  // namespace shadowgraph
