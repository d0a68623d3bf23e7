// Gated DeltaNet and Kimi Delta Attention: the delta rule, with a decay per head or per channel.
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "io/file.h"
#include "io/linear_case.h"

namespace shadowgraph {
namespace {

struct DeltaCase {
  bool kda = false;
  DType dtype = DType::kBF16;
  int64_t heads_k = 0, heads_v = 0, dim_k = 0, dim_v = 0;
  float scale = 1;
  bool l2norm = true;
  StateType state;
  RowLengths lengths;
};

constexpr const char* kMixedBases =
    "inside a chunk the decay is 2^g, though g is a natural logarithm";

/// All but the rows. `kda` in the metadata repeats the system.
DeltaCase read_delta(CaseReader& reader, LinearVector* vector) {
  DeltaCase c;
  c.kda = vector->system == "kda";
  if (reader.has("kda")) known_flag(reader, "kda", c.kda);
  vector->dtype = c.dtype = read_torch_dtype(reader, "dtype");
  c.heads_k = read_dim(reader, "H");
  // KDA's prefill has as many of both.
  c.heads_v = reader.has("HV") || !c.kda ? read_dim(reader, "HV") : c.heads_k;
  c.dim_k = read_dim(reader, "K");
  c.dim_v = read_dim(reader, "V");
  c.scale = reader.positive("scale");
  if (reader.has("l2norm")) c.l2norm = reader.flag("l2norm");  // decode and verify always do
  c.state = {read_state_dtype(reader), {c.heads_v, c.dim_v, c.dim_k}};
  if (reader.ok() && c.heads_v % c.heads_k != 0) {
    reader.bad_field("HV", "a multiple of " + std::to_string(c.heads_k) + " heads",
                     std::to_string(c.heads_v));
  }
  return c;
}

LinearAttention delta_call(const DeltaCase& c) {
  LinearAttention call;
  call.rule = LinearAttention::Rule::kDelta;
  call.scale = c.scale;
  call.l2norm = c.l2norm;
  return call;
}

void read_qkv(CaseReader& reader, const DeltaCase& c, LinearAttention* call) {
  call->q = read_tokens(reader, "q", {c.dtype}, c.lengths, {c.heads_k, c.dim_k});
  call->k = read_tokens(reader, "k", {c.dtype}, c.lengths, {c.heads_k, c.dim_k});
  call->v = read_tokens(reader, "v", {c.dtype}, c.lengths, {c.heads_v, c.dim_v});
}

/// Rows [q heads | k heads | v heads].
void read_mixed_qkv(CaseReader& reader, const DeltaCase& c, LinearAttention* call) {
  const int64_t keys = c.heads_k * c.dim_k, row = 2 * keys + c.heads_v * c.dim_v;
  const ConstTensorView mixed = read_tokens(reader, "mixed_qkv", {c.dtype}, c.lengths, {row});
  if (!mixed.defined()) return;
  const auto part = [&](int64_t begin, int64_t heads, int64_t dim) {
    return ConstTensorView(mixed.at(0, begin), c.dtype, {c.lengths.tokens, heads, dim},
                           {row, dim, 1});
  };
  call->q = part(0, c.heads_k, c.dim_k);
  call->k = part(keys, c.heads_k, c.dim_k);
  call->v = part(2 * keys, c.heads_v, c.dim_v);
}

/// [..., heads * dim], dense, seen as [..., heads, dim]: a channel's own gate is stored flat.
ConstTensorView by_channel(const DeltaCase& c, const ConstTensorView& view) {
  if (!view.defined()) return view;
  if (view.rank == 1) return {view.data, view.dtype, {c.heads_v, c.dim_k}};
  return {view.data, view.dtype, {view.shape[0], c.heads_v, c.dim_k}};
}

/// A_log and dt_bias; x and b are its caller's.
DecayGate read_gate(CaseReader& reader, const DeltaCase& c) {
  DecayGate gate;
  gate.a_log = reader.tensor("A_log", {DType::kF32}, {c.heads_v});
  const int64_t biases = c.kda ? c.heads_v * c.dim_k : c.heads_v;
  gate.dt_bias = reader.tensor("dt_bias", {DType::kF32}, {biases});
  if (c.kda) gate.dt_bias = by_channel(c, gate.dt_bias);
  return gate;
}

/// What the gate writes has no memory.
void set_outputs(DecayGate* gate, int64_t heads) {
  if (!gate->x.defined()) return;
  gate->log_decay = without_memory(gate->x);
  gate->log_decay.dtype = DType::kF32;
  if (gate->b.defined()) gate->beta = without_memory(DType::kF32, {gate->x.shape[0], heads});
}

/// Of the tensors a and b, as decode and verify have them.
DecayGate read_raw_gate(CaseReader& reader, const DeltaCase& c) {
  DecayGate gate = read_gate(reader, c);
  const int64_t decays = c.kda ? c.heads_v * c.dim_k : c.heads_v;
  gate.x = read_tokens(reader, "a", {c.dtype}, c.lengths, {decays});
  if (c.kda) gate.x = by_channel(c, gate.x);
  gate.b = read_tokens(reader, "b", {c.dtype}, c.lengths, {c.heads_v});
  set_outputs(&gate, c.heads_v);
  return gate;
}

/// GDN's: those that its gate kernel stored, else its projections.
void read_gdn_decays(CaseReader& reader, const DeltaCase& c, Recurrence* recurrence,
                     LinearVector* vector) {
  const bool stored = reader.has_tensor("g") || reader.has_tensor("beta");
  if (!stored || reader.has_tensor("a")) {
    DecayGate gate = read_raw_gate(reader, c);
    if (!stored) recurrence->gate = gate;
  }
  if (!stored) return;
  LinearAttention& call = recurrence->call;
  LinearArrays &recorded = vector->recorded, &reference = vector->reference;
  call.log_decay = recorded.log_decay =
      read_tokens(reader, "g", {DType::kF32}, c.lengths, {c.heads_v});
  call.beta = recorded.beta = read_tokens(reader, "beta", {DType::kF32}, c.lengths, {c.heads_v});
  const Shape shape = {c.lengths.tokens, c.heads_v};
  if (reader.has_tensor("g_ref")) reference.log_decay = read_reference(reader, "g_ref", shape);
  if (reader.has_tensor("beta_ref")) reference.beta = read_reference(reader, "beta_ref", shape);
}

struct GateText {
  std::string_view text;
  std::optional<DecayGate::Kind> kind;  // none: g is log_decay itself
};
constexpr GateText kGateTexts[] = {
    {"raw: -exp(A_log)*softplus(g+dt_bias)", DecayGate::Kind::kSoftplus},
    {"raw: lower_bound*sigmoid(exp(A_log)*(g+dt_bias))", DecayGate::Kind::kLowerBound},
    {"activated", std::nullopt},
};

/// "gate" and "lower_bound", of metadata.
std::optional<DecayGate> read_kda_gate(CaseReader& reader) {
  const std::string text = reader.text("gate");
  std::optional<DecayGate> gate;
  bool known = false;
  for (const GateText& line : kGateTexts) {
    if (text != line.text) continue;
    known = true;
    if (line.kind) gate.emplace().kind = *line.kind;
  }
  if (!known && reader.ok()) reader.bad_field("gate", "a gate of KDA", printable(text));
  const bool bounded = gate && gate->kind == DecayGate::Kind::kLowerBound;
  const JsonValue* bound = reader.field("lower_bound");
  if (bounded) {
    gate->lower_bound = reader.negative("lower_bound");
  } else if (bound != nullptr && bound->as<std::nullptr_t>() == nullptr) {
    reader.bad_field("lower_bound", "null", bound->describe());
  }
  return gate;
}

/// KDA's: beta is given, g before or after its gate.
void read_kda_decays(CaseReader& reader, const DeltaCase& c, const std::optional<DecayGate>& kind,
                     Recurrence* recurrence, LinearVector* vector) {
  LinearAttention& call = recurrence->call;
  const Shape channels = {c.heads_v, c.dim_k};
  const DType dtype = kind ? c.dtype : DType::kF32;
  const ConstTensorView g = read_tokens(reader, "g", {dtype}, c.lengths, channels);
  call.beta = read_tokens(reader, "beta", {DType::kF32}, c.lengths, {c.heads_v});
  vector->reference.log_decay =
      read_reference(reader, "g_ref", joined({c.lengths.tokens}, channels));
  DecayGate gate = read_gate(reader, c);
  if (!kind) {
    call.log_decay = g;
    return;
  }
  gate.kind = kind->kind;
  gate.lower_bound = kind->lower_bound;
  gate.x = g;
  set_outputs(&gate, c.heads_v);
  recurrence->gate = gate;
}

void read_out(CaseReader& reader, const DeltaCase& c, LinearAttention* call, LinearVector* vector) {
  const Shape head = {c.heads_v, c.dim_v};
  vector->recorded.out = read_tokens(reader, "out", {c.dtype}, c.lengths, head);
  vector->reference.out = read_reference(reader, "out_ref", joined({c.lengths.tokens}, head));
  call->out = without_memory(vector->recorded.out);
}

/// The state before each chunk of each row, of some cases.
void read_chunk_states(CaseReader& reader, const DeltaCase& c, LinearAttention* call,
                       LinearVector* vector) {
  if (!reader.has_tensor("h") && !reader.has_tensor("h_ref")) return;
  int64_t chunks = 0;
  for (const int32_t n : c.lengths.lens)
    chunks += (int64_t{n} + call->chunk_size - 1) / call->chunk_size;
  const Shape shape = joined({chunks}, c.state.shape);
  vector->recorded.chunk_states = reader.tensor("h", {c.dtype}, shape);
  vector->reference.chunk_states = read_reference(reader, "h_ref", shape);
  call->chunk_states = without_memory(vector->recorded.chunk_states);
}

void read_prefill(CaseReader& reader, LinearVector* vector) {
  DeltaCase c = read_delta(reader, vector);
  vector->kernel = c.kda ? "kda_prefill" : "gdn_prefill";
  Recurrence recurrence;
  LinearAttention& call = recurrence.call;
  call = delta_call(c);
  call.chunk_size = reader.integer("chunk", 1, kMaxVectorTokens);
  const std::optional<DecayGate> gate = c.kda ? read_kda_gate(reader) : std::nullopt;
  c.lengths = read_lens(reader);
  if (!reader.ok()) return;
  call.states = read_pool(reader, c.state, "pool_before", "pool_after", vector);
  call.rows = read_rows(reader, c.lengths, {.offsets = "cu_seqlens", .has_initial = {}},
                        vector->states_before.shape[0], vector);
  read_qkv(reader, c, &call);
  if (c.kda) {
    read_kda_decays(reader, c, gate, &recurrence, vector);
  } else {
    read_gdn_decays(reader, c, &recurrence, vector);
  }
  read_out(reader, c, &call, vector);
  read_state_ref(reader, c.state, c.lengths.rows(), vector);
  read_chunk_states(reader, c, &call, vector);
  vector->call = recurrence;
}

/// Rows of one token have nothing between their chunk's start and themselves.
void read_seed_era(CaseReader& reader, LinearVector* vector) {
  read_prefill(reader, vector);
  if (!reader.ok()) return;
  const StateRows& rows = std::get<Recurrence>(vector->call).call.rows;
  for (int64_t r = 0; r < rows.rows(); ++r)
    if (rows.tokens(r) > 1) vector->departs = kMixedBases;
}

/// Dense states: slot r is row r's.
void read_recurrent(CaseReader& reader, LinearVector* vector) {
  DeltaCase c = read_delta(reader, vector);
  vector->kernel = "gdn_recurrent";
  const bool has_initial = reader.flag("initial_state");
  c.lengths = read_lens(reader);
  if (!reader.ok()) return;
  Recurrence recurrence;
  LinearAttention& call = recurrence.call;
  call = delta_call(c);
  const int64_t rows = c.lengths.rows();
  const Shape shape = joined({rows}, c.state.shape);
  vector->recorded.states = reader.tensor("final_state", {c.state.dtype}, shape);
  if (has_initial) vector->states_before = reader.tensor("initial_state", {c.state.dtype}, shape);
  const std::vector<int32_t> offsets = indptr_of(c.lengths.lens);
  const ConstTensorView wide = reader.tensor("cu_seqlens", {DType::kI64}, {rows + 1});
  for (size_t i = 0; wide.defined() && i < offsets.size(); ++i) {
    const int64_t got = reinterpret_cast<const int64_t*>(wide.data)[i];
    if (got == offsets[i]) continue;
    reader.bad_tensor("cu_seqlens", std::to_string(offsets[i]) + ", as the metadata says",
                      std::to_string(got), static_cast<int64_t>(i));
    break;
  }
  std::vector<int32_t> slots(static_cast<size_t>(rows));
  std::iota(slots.begin(), slots.end(), 0);
  call.rows.cu_seqlens_q = reader.own(offsets);
  call.rows.state_indices = reader.own(std::move(slots));
  read_qkv(reader, c, &call);
  read_gdn_decays(reader, c, &recurrence, vector);
  read_out(reader, c, &call, vector);
  read_state_ref(reader, c.state, rows, vector);
  if (!reader.ok()) return;
  if (!has_initial) {
    const auto bytes =
        static_cast<size_t>(vector->recorded.states.numel()) * size_of(c.state.dtype);
    vector->states_before = vector->recorded.states;
    vector->states_before.data = reader.own(std::vector<std::byte>(bytes)).data();
    call.rows.has_initial_state = reader.own(std::vector<uint8_t>(static_cast<size_t>(rows), 0));
  }
  call.states = without_memory(vector->states_before);
  vector->call = recurrence;
}

void read_decode(CaseReader& reader, LinearVector* vector) {
  DeltaCase c = read_delta(reader, vector);
  const bool packed = reader.flag("packed");
  vector->kernel = vector->system + (packed ? "_packed_decode" : "_decode");
  const PadRow pad = read_pad(reader, PadRow::kFromZero);
  c.lengths = same_lens(reader, "state_indices", 1);
  if (!reader.ok()) return;
  Recurrence recurrence;
  LinearAttention& call = recurrence.call;
  call = delta_call(c);
  call.states = read_pool(reader, c.state, "pool_before", "pool_after", vector);
  call.rows = read_rows(reader, c.lengths, {.offsets = {}, .has_initial = {}, .pad = pad},
                        vector->states_before.shape[0], vector);
  read_mixed_qkv(reader, c, &call);
  recurrence.gate = read_raw_gate(reader, c);
  read_out(reader, c, &call, vector);
  read_state_ref(reader, c.state, c.lengths.rows(), vector);
  vector->call = recurrence;
}

void read_verify(CaseReader& reader, LinearVector* vector) {
  DeltaCase c = read_delta(reader, vector);
  vector->kernel = vector->system + "_decode";
  const int64_t steps = read_dim(reader, "D");
  const bool tree = reader.flag("tree");
  c.lengths = same_lens(reader, "state_indices", steps);
  if (!reader.ok()) return;
  Recurrence recurrence;
  LinearAttention& call = recurrence.call;
  call = delta_call(c);
  call.store = false;
  call.states = read_pool(reader, c.state, "pool_before", "pool_after", vector);
  call.rows =
      read_rows(reader, c.lengths, {.offsets = {}, .has_initial = {}, .pad = PadRow::kFromZero},
                vector->states_before.shape[0], vector);
  call.draft =
      read_draft(reader, c.state, c.lengths, "intermediate_indices", tree ? "parents" : "", vector);
  read_qkv(reader, c, &call);
  recurrence.gate = read_raw_gate(reader, c);
  read_out(reader, c, &call, vector);
  vector->call = recurrence;
}

/// The gate by itself.
void read_gating(CaseReader& reader, LinearVector* vector) {
  vector->kernel = "gdn_gate";
  vector->dtype = read_torch_dtype(reader, "dtype");
  if (!reader.ok()) return;
  DecayGate gate;
  gate.x = reader.tensor("a", {vector->dtype}, {-1, -1});
  if (!gate.x.defined()) return;
  const int64_t tokens = gate.x.shape[0], heads = gate.x.shape[1];
  gate.b = reader.tensor("b", {vector->dtype}, {tokens, heads});
  gate.a_log = reader.tensor("A_log", {DType::kF32}, {heads});
  gate.dt_bias = reader.tensor("dt_bias", {DType::kF32}, {heads});
  set_outputs(&gate, heads);
  vector->recorded.log_decay = reader.tensor("g", {DType::kF32}, {tokens, heads});
  vector->recorded.beta = reader.tensor("beta", {DType::kF32}, {tokens, heads});
  vector->reference.log_decay = read_reference(reader, "g_ref", {tokens, heads});
  vector->reference.beta = read_reference(reader, "beta_ref", {tokens, heads});
  vector->call = gate;
}

void read_l2norm(CaseReader& reader, LinearVector* vector) {
  vector->kernel = "l2norm";
  vector->dtype = read_torch_dtype(reader, "dtype");
  const int64_t dim = read_dim(reader, "D");
  L2Norm norm;
  norm.eps = reader.positive("eps");
  if (!reader.ok()) return;
  norm.x = reader.tensor("x", {vector->dtype}, {-1, dim});
  const Shape shape = {norm.x.shape[0], dim};
  vector->recorded.out = reader.tensor("y", {vector->dtype}, shape);
  vector->reference.out = read_reference(reader, "y_ref", shape);
  vector->call = norm;
}

constexpr LinearKind kGdnKinds[] = {
    {"gating", read_gating},         {"l2norm", read_l2norm},       {"prefill", read_prefill},
    {"chain_prefill", read_prefill}, {"recurrent", read_recurrent}, {"decode", read_decode},
    {"chain_decode", read_decode},   {"verify_chain", read_verify}, {"verify_tree", read_verify},
};
constexpr LinearKind kKdaKinds[] = {
    {"prefill_seed_era", read_seed_era}, {"prefill", read_prefill},
    {"chain_prefill", read_prefill},     {"decode", read_decode},
    {"chain_decode", read_decode},       {"verify_chain", read_verify},
    {"verify_tree", read_verify},
};

}  // namespace

std::span<const LinearKind> gdn_kinds() { return kGdnKinds; }
std::span<const LinearKind> kda_kinds() { return kKdaKinds; }

}  // namespace shadowgraph
