// Gated DeltaNet and Kimi Delta Attention: the delta rule, with a decay per head or per channel.
#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "io/recorded/recorded_cases.h"
#include "io/recorded/state_rows.h"

namespace shadowgraph {
namespace {

constexpr const char* kMixedBases =
    "inside a chunk the decay is 2^g, though g is a natural logarithm";

struct DeltaCase {
  bool kda = false;
  StateType state;
  Recurrence recurrence;

  /// Axes of a token's decays: per channel or per head; in the file those of channels may be flat.
  std::string decays() const { return kda ? "tokens HV K" : "tokens HV"; }
  std::string flat_decays() const { return kda ? "tokens [HV K]" : "tokens HV"; }
};

/// All except the rows. `kda` in the metadata repeats the system.
DeltaCase read_delta(CaseReader& reader, RecordedCase* c) {
  DeltaCase d;
  d.kda = c->system == "kda";
  if (reader.has("kda")) reader.known_flag("kda", d.kda);
  c->dtype = reader.torch_dtype("dtype");
  const int32_t heads = reader.dim("H");
  // KDA's prefill has as many of both.
  if (reader.has("HV") || !d.kda)
    reader.dim("HV");
  else
    reader.bind("HV", heads);
  reader.dim("K"), reader.dim("V");
  LinearAttention& call = d.recurrence.call;
  call.rule = LinearAttention::Rule::kDelta;
  call.scale = reader.positive("scale");
  // Decode and verify always normalise.
  call.l2norm = reader.has("l2norm") ? reader.flag("l2norm") : true;
  d.state = {read_state_dtype(reader), "HV V K"};
  if (reader.ok() && reader.size("HV") % heads != 0)
    reader.bad_field("HV", "a multiple of " + std::to_string(heads) + " heads",
                     std::to_string(reader.size("HV")));
  return d;
}

void read_qkv(CaseReader& reader, const RecordedCase& c, LinearAttention* call) {
  call->q = reader.tensor("q", {c.dtype}, "tokens H K");
  call->k = reader.tensor("k", {c.dtype}, "tokens H K");
  call->v = reader.tensor("v", {c.dtype}, "tokens HV V");
}

/// Rows [q heads | k heads | v heads].
void read_mixed_qkv(CaseReader& reader, const RecordedCase& c, LinearAttention* call) {
  const int64_t tokens = reader.size("tokens"), heads_k = reader.size("H"),
                heads_v = reader.size("HV"), dim_k = reader.size("K"), dim_v = reader.size("V");
  const int64_t keys = heads_k * dim_k, row = 2 * keys + heads_v * dim_v;
  const ConstTensorView mixed =
      reader.tensor("mixed_qkv", {c.dtype}, "tokens " + std::to_string(row));
  if (!mixed.defined()) return;
  const auto part = [&](int64_t begin, int64_t heads, int64_t dim) {
    return ConstTensorView(mixed.at(0, begin), c.dtype, {tokens, heads, dim}, {row, dim, 1});
  };
  call->q = part(0, heads_k, dim_k);
  call->k = part(keys, heads_k, dim_k);
  call->v = part(2 * keys, heads_v, dim_v);
}

/// A_log and dt_bias; x and b are the caller's.
DecayGate read_gate(CaseReader& reader, bool kda) {
  DecayGate gate;
  gate.a_log = reader.f32("A_log", "HV");
  gate.dt_bias = reader.f32("dt_bias", kda ? "[HV K]" : "HV");
  return gate;
}

/// Arrays that the gate writes have no memory.
void set_outputs(DecayGate* gate) {
  if (!gate->x.defined()) return;
  gate->log_decay = without_memory(gate->x);
  gate->log_decay.dtype = DType::kF32;
  if (!gate->b.defined()) return;
  gate->beta = without_memory(gate->b);
  gate->beta.dtype = DType::kF32;
}

/// From the tensors a and b, as decode and verify have them.
DecayGate read_raw_gate(CaseReader& reader, const DeltaCase& d, DType dtype) {
  DecayGate gate = read_gate(reader, d.kda);
  gate.x = reader.tensor("a", {dtype}, d.flat_decays());
  gate.b = reader.tensor("b", {dtype}, "tokens HV");
  set_outputs(&gate);
  return gate;
}

/// GDN's: those that its gate kernel stored, else its projections.
void read_gdn_decays(CaseReader& reader, DeltaCase* d, RecordedCase* c) {
  const bool stored = reader.has_tensor("g") || reader.has_tensor("beta");
  // All of a gate, or nothing.
  const bool raw =
      std::ranges::any_of(std::initializer_list<std::string_view>{"a", "b", "A_log", "dt_bias"},
                          [&](std::string_view name) { return reader.has_tensor(name); });
  if (!stored || raw) {
    const DecayGate gate = read_raw_gate(reader, *d, c->dtype);
    if (!stored) d->recurrence.gate = gate;
  }
  if (!stored) return;
  LinearAttention& call = d->recurrence.call;
  Recorded &recorded = c->gpu(), &reference = c->reference;
  call.log_decay = recorded.log_decay = reader.f32("g", "tokens HV");
  call.beta = recorded.beta = reader.f32("beta", "tokens HV");
  if (reader.has_tensor("g_ref")) reference.log_decay = reader.reference("g_ref", "tokens HV");
  if (reader.has_tensor("beta_ref")) reference.beta = reader.reference("beta_ref", "tokens HV");
}

/// "gate" and "lower_bound", of KDA's metadata; none: g is log_decay itself.
std::optional<DecayGate> read_kda_gate(CaseReader& reader) {
  constexpr std::optional<DecayGate::Kind> kKinds[] = {
      DecayGate::Kind::kSoftplus, DecayGate::Kind::kLowerBound, {}};
  const auto kind = kKinds[reader.one_of(
      "gate", {"raw: -exp(A_log)*softplus(g+dt_bias)",
               "raw: lower_bound*sigmoid(exp(A_log)*(g+dt_bias))", "activated"})];
  DecayGate gate;
  if (kind) gate.kind = *kind;
  if (kind == DecayGate::Kind::kLowerBound) {
    gate.lower_bound = reader.negative("lower_bound");
  } else if (!reader.is_null("lower_bound")) {
    reader.bad_field("lower_bound", "null", reader.field("lower_bound")->describe());
  }
  return kind ? std::optional(gate) : std::nullopt;
}

/// KDA's: beta is given, g before or after its gate.
void read_kda_decays(CaseReader& reader, const std::optional<DecayGate>& kind, DeltaCase* d,
                     RecordedCase* c) {
  LinearAttention& call = d->recurrence.call;
  const ConstTensorView g = reader.tensor("g", {kind ? c->dtype : DType::kF32}, "tokens HV K");
  call.beta = reader.f32("beta", "tokens HV");
  c->reference.log_decay = reader.reference("g_ref", "tokens HV K");
  DecayGate gate = read_gate(reader, true);
  if (!kind) {
    call.log_decay = g;
    return;
  }
  gate.kind = kind->kind;
  gate.lower_bound = kind->lower_bound;
  gate.x = g;
  set_outputs(&gate);
  d->recurrence.gate = gate;
}

/// Answers, and the call as the case's.
void finish(CaseReader& reader, DeltaCase d, RecordedCase* c) {
  c->gpu().out = reader.tensor("out", {c->dtype}, "tokens HV V");
  c->reference.out = reader.reference("out_ref", "tokens HV V");
  d.recurrence.call.out = without_memory(c->gpu().out);
  c->call = std::move(d.recurrence);
}

/// The state before each chunk of each row, of some cases.
void read_chunk_states(CaseReader& reader, std::span<const int32_t> lens, LinearAttention* call,
                       RecordedCase* c) {
  if (!reader.has_tensor("h") && !reader.has_tensor("h_ref")) return;
  int64_t chunks = 0;
  for (const int32_t n : lens) chunks += (int64_t{n} + call->chunk_size - 1) / call->chunk_size;
  reader.bind("chunks", chunks);
  c->gpu().chunk_states = reader.tensor("h", {c->dtype}, "chunks HV V K");
  c->reference.chunk_states = reader.reference("h_ref", "chunks HV V K");
  call->chunk_states = without_memory(c->gpu().chunk_states);
}

/// Pool and rows of one or several tokens, each with the state of its slot.
void read_slots(CaseReader& reader, std::span<const int32_t> lens, PadRow pad, DeltaCase* d,
                RecordedCase* c) {
  LinearAttention& call = d->recurrence.call;
  call.states = read_pool(reader, d->state, "pool_before", "pool_after", c);
  call.rows = read_rows(reader, lens, {.pad = pad}, c);
}

}  // namespace

void read_delta_prefill(CaseReader& reader, RecordedCase* c) {
  DeltaCase d = read_delta(reader, c);
  LinearAttention& call = d.recurrence.call;
  call.chunk_size = reader.integer("chunk", 1, kMaxVectorTokens);
  const std::optional<DecayGate> gate = d.kda ? read_kda_gate(reader) : std::nullopt;
  const std::vector<int32_t> lens = read_lens(reader);
  if (!reader.ok()) return;
  call.states = read_pool(reader, d.state, "pool_before", "pool_after", c);
  call.rows = read_rows(reader, lens, {.offsets = "cu_seqlens"}, c);
  read_qkv(reader, *c, &call);
  if (d.kda)
    read_kda_decays(reader, gate, &d, c);
  else
    read_gdn_decays(reader, &d, c);
  read_state_ref(reader, d.state, c);
  read_chunk_states(reader, lens, &call, c);
  // Rows of one token have nothing between their chunk's start and themselves.
  const bool mixed = c->kind.starts_with("prefill_seed_era");
  if (mixed && std::ranges::any_of(lens, [](int32_t n) { return n > 1; }))
    c->gpu().known_wrong = kMixedBases;
  finish(reader, std::move(d), c);
}

/// Dense states: slot r is row r's.
void read_delta_recurrent(CaseReader& reader, RecordedCase* c) {
  DeltaCase d = read_delta(reader, c);
  const bool has_initial = reader.flag("initial_state");
  const std::vector<int32_t> lens = read_lens(reader);
  if (!reader.ok()) return;
  LinearAttention& call = d.recurrence.call;
  c->gpu().states = reader.tensor("final_state", {d.state.dtype}, "rows HV V K");
  if (has_initial)
    c->states_before = reader.tensor("initial_state", {d.state.dtype}, "rows HV V K");
  const std::vector<int32_t> offsets = indptr_of(lens);
  const std::span<const int64_t> wide = reader.i64("cu_seqlens", std::to_string(offsets.size()));
  reader.all_as(
      "cu_seqlens", wide, [&](size_t i) { return offsets[i]; }, "the metadata says");
  std::vector<int32_t> slots(lens.size());
  std::iota(slots.begin(), slots.end(), 0);
  call.rows.cu_seqlens_q = reader.own(offsets);
  call.rows.state_indices = reader.own(std::move(slots));
  read_qkv(reader, *c, &call);
  read_gdn_decays(reader, &d, c);
  read_state_ref(reader, d.state, c);
  if (reader.ok() && !has_initial) {
    const ConstTensorView& states = c->gpu().states;
    const auto bytes = static_cast<size_t>(states.numel()) * size_of(states.dtype);
    c->states_before = states;
    c->states_before.data = reader.own(std::vector<std::byte>(bytes)).data();
    call.rows.has_initial_state = reader.own(std::vector<uint8_t>(lens.size(), 0));
  }
  call.states = without_memory(c->states_before);
  finish(reader, std::move(d), c);
}

void read_delta_decode(CaseReader& reader, RecordedCase* c) {
  DeltaCase d = read_delta(reader, c);
  const bool packed = reader.flag("packed");
  c->gpu().kernel = c->system + (packed ? "_packed_decode" : "_decode");
  const PadRow pad = read_pad(reader, PadRow::kFromZero);
  const std::vector<int32_t> lens = read_equal_lens(reader, "state_indices", 1);
  if (!reader.ok()) return;
  read_slots(reader, lens, pad, &d, c);
  read_mixed_qkv(reader, *c, &d.recurrence.call);
  d.recurrence.gate = read_raw_gate(reader, d, c->dtype);
  read_state_ref(reader, d.state, c);
  finish(reader, std::move(d), c);
}

void read_delta_verify(CaseReader& reader, RecordedCase* c) {
  DeltaCase d = read_delta(reader, c);
  const int64_t steps = reader.dim("D");
  const bool tree = reader.flag("tree");
  const std::vector<int32_t> lens = read_equal_lens(reader, "state_indices", steps);
  if (!reader.ok()) return;
  LinearAttention& call = d.recurrence.call;
  call.store = false;
  read_slots(reader, lens, PadRow::kFromZero, &d, c);
  call.draft = read_draft(reader, d.state, "intermediate_indices", tree ? "parents" : "", c);
  read_qkv(reader, *c, &call);
  d.recurrence.gate = read_raw_gate(reader, d, c->dtype);
  finish(reader, std::move(d), c);
}

/// The gate by itself.
void read_gating(CaseReader& reader, RecordedCase* c) {
  c->dtype = reader.torch_dtype("dtype");
  if (!reader.ok()) return;
  DecayGate gate;
  gate.x = reader.tensor("a", {c->dtype}, "tokens HV");
  gate.b = reader.tensor("b", {c->dtype}, "tokens HV");
  gate.a_log = reader.f32("A_log", "HV");
  gate.dt_bias = reader.f32("dt_bias", "HV");
  set_outputs(&gate);
  c->gpu().log_decay = reader.f32("g", "tokens HV");
  c->gpu().beta = reader.f32("beta", "tokens HV");
  c->reference.log_decay = reader.reference("g_ref", "tokens HV");
  c->reference.beta = reader.reference("beta_ref", "tokens HV");
  c->call = gate;
}

void read_l2norm(CaseReader& reader, RecordedCase* c) {
  c->dtype = reader.torch_dtype("dtype");
  reader.dim("D");
  L2Norm norm;
  norm.eps = reader.positive("eps");
  if (!reader.ok()) return;
  norm.x = reader.tensor("x", {c->dtype}, "tokens D");
  c->gpu().out = reader.tensor("y", {c->dtype}, "tokens D");
  c->reference.out = reader.reference("y_ref", "tokens D");
  c->call = norm;
}

}  // namespace shadowgraph
