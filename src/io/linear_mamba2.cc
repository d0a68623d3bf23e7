// Mamba2's state space duality: q = C, k = B, v = x, beta = dt after its gate.
#include <algorithm>
#include <string>

#include "io/linear_case.h"

namespace shadowgraph {
namespace {

struct Mamba2Case {
  int64_t heads = 0, head_dim = 0, groups = 0, state_dim = 0;
  StateType state;
  RowLengths lengths;
};

/// All but the rows.
Mamba2Case read_mamba2(CaseReader& reader, LinearVector* vector) {
  Mamba2Case c;
  vector->dtype = read_torch_dtype(reader, "dtype");
  c.heads = read_dim(reader, "nheads");
  c.head_dim = read_dim(reader, "headdim");
  c.groups = read_dim(reader, "ngroups");
  c.state_dim = read_dim(reader, "dstate");
  c.state = {read_state_dtype(reader), {c.heads, c.head_dim, c.state_dim}};
  known_flag(reader, "dt_softplus", true);
  if (reader.ok() && c.heads % c.groups != 0) {
    reader.bad_field("ngroups", "a divisor of " + std::to_string(c.heads) + " heads",
                     std::to_string(c.groups));
  }
  return c;
}

/// "dt_limit" [0.0, "inf"]: none.
void check_dt_limit(CaseReader& reader) {
  const JsonValue* limit = reader.field("dt_limit");
  if (limit == nullptr) return;
  const auto* ends = limit->as<JsonValue::Array>();
  if (ends != nullptr && ends->size() == 2) {
    const auto* low = (*ends)[0].as<double>();
    const auto* high = (*ends)[1].as<std::string>();
    if (low != nullptr && *low == 0 && high != nullptr && *high == "inf") return;
  }
  reader.bad_field("dt_limit", "[0.0, \"inf\"]", limit->describe());
}

/// split: tokens are stored as [rows, steps].
void read_arrays(CaseReader& reader, const Mamba2Case& c, bool split, Recurrence* recurrence,
                 LinearVector* vector) {
  const DTypes dtype = {vector->dtype};
  const Shape head = {c.heads, c.head_dim}, group = {c.groups, c.state_dim};
  LinearAttention& call = recurrence->call;
  call.rule = LinearAttention::Rule::kAdd;
  call.q = read_tokens(reader, "C", dtype, c.lengths, group, split);
  call.k = read_tokens(reader, "B", dtype, c.lengths, group, split);
  call.v = read_tokens(reader, "x", dtype, c.lengths, head, split);
  if (reader.has_tensor("z")) call.z = read_tokens(reader, "z", dtype, c.lengths, head, split);
  call.skip = reader.tensor("D", {DType::kF32}, {c.heads});
  DecayGate& gate = recurrence->gate.emplace();
  gate.kind = DecayGate::Kind::kStep;
  gate.x = read_tokens(reader, "dt", dtype, c.lengths, {c.heads}, split);
  gate.a_log = reader.tensor("A", {DType::kF32}, {c.heads});
  gate.dt_bias = reader.tensor("dt_bias", {DType::kF32}, {c.heads});
  gate.log_decay = gate.beta = without_memory(DType::kF32, {c.lengths.tokens, c.heads});
  vector->recorded.out = read_tokens(reader, "out", dtype, c.lengths, head, split);
  vector->reference.out =
      read_tokens(reader, "out_ref", {DType::kF32, DType::kF64}, c.lengths, head, split);
  call.out = without_memory(vector->recorded.out);
}

/// The state that enters each physical chunk, of some cases: of the call's chunks those that begin
/// where a physical one does.
void read_chunk_states(CaseReader& reader, const Mamba2Case& c, LinearAttention* call,
                       LinearVector* vector) {
  if (!reader.has_tensor("chunk_states")) return;
  int32_t chunks = 0;
  int64_t begin = 0;
  for (const int32_t n : c.lengths.lens) {
    const int64_t end = begin + n;
    for (; begin < end; ++chunks) {
      if (begin % call->chunk_size == 0) vector->recorded_chunks.push_back(chunks);
      begin = std::min(end, (begin / call->chunk_size + 1) * call->chunk_size);
    }
  }
  const Shape shape = joined({std::ssize(vector->recorded_chunks)}, c.state.shape);
  vector->recorded.chunk_states = reader.tensor("chunk_states", {DType::kF32}, shape);
  call->chunk_states = without_memory(DType::kF32, joined({chunks}, c.state.shape));
}

/// Which row each token is of, and the chunk lists, which the kernel gets where a row has a state.
void check_prepared(CaseReader& reader, const Mamba2Case& c, bool prepared, const StateRows& rows) {
  std::vector<int32_t> row_of;
  for (size_t r = 0; r < c.lengths.lens.size(); ++r)
    row_of.insert(row_of.end(), static_cast<size_t>(c.lengths.lens[r]), static_cast<int32_t>(r));
  reader.indices("seq_idx", row_of);
  const auto& flags = rows.has_initial_state;
  if (reader.ok() && prepared != (std::count(flags.begin(), flags.end(), 1) > 0)) {
    reader.bad_field("prep_initial_states", "true where, and only where, a row has one",
                     prepared ? "true" : "false");
  }
  if (!prepared) return;
  const ConstTensorView indices = reader.tensor("chunk_indices", {DType::kI32}, {-1});
  reader.tensor("chunk_offsets", {DType::kI32}, {indices.defined() ? indices.shape[0] : -1});
}

void read_scan(CaseReader& reader, LinearVector* vector) {
  Mamba2Case c = read_mamba2(reader, vector);
  vector->kernel = "mamba2_scan";
  check_dt_limit(reader);
  Recurrence recurrence;
  LinearAttention& call = recurrence.call;
  call.chunk_grid = ChunkGrid::kTokens;
  call.chunk_size = reader.integer("chunk", 1, kMaxVectorTokens);
  const bool prepared = reader.flag("prep_initial_states");
  c.lengths = read_lens(reader);
  if (!reader.ok()) return;
  call.states = read_pool(reader, c.state, "pool_before", "pool_after", vector);
  call.rows =
      read_rows(reader, c.lengths, {.offsets = "cu_seqlens", .has_initial = "has_initial_states"},
                vector->states_before.shape[0], vector);
  read_arrays(reader, c, false, &recurrence, vector);
  read_state_ref(reader, c.state, c.lengths.rows(), vector);
  reader.tensor("varlen_states", {c.state.dtype}, joined({c.lengths.rows()}, c.state.shape));
  check_prepared(reader, c, prepared, call.rows);
  read_chunk_states(reader, c, &call, vector);
  vector->call = recurrence;
}

/// One or several tokens a row; verify: slots are not written, the state of each step is kept.
void read_steps_of_rows(CaseReader& reader, bool verify, LinearVector* vector) {
  Mamba2Case c = read_mamba2(reader, vector);
  vector->kernel = "mamba2_update";
  const int64_t steps = reader.integer("steps", 1, verify ? INT16_MAX : 1);
  const PadRow pad = read_pad(reader, PadRow::kFromZero);
  const bool tree = reader.flag("tree");
  c.lengths = same_lens(reader, "state_indices", steps);
  if (!reader.ok()) return;
  Recurrence recurrence;
  LinearAttention& call = recurrence.call;
  call.states = read_pool(reader, c.state, "pool_before", "pool_after", vector);
  call.rows = read_rows(reader, c.lengths, {.offsets = {}, .has_initial = {}, .pad = pad},
                        vector->states_before.shape[0], vector);
  read_arrays(reader, c, true, &recurrence, vector);
  if (verify) {
    call.store = false;
    call.draft = read_draft(reader, c.state, c.lengths, "intermediate_indices",
                            tree ? "parents" : "", vector);
    call.draft.of_padding = false;  // what a padded row leaves is not kept
  } else {
    read_state_ref(reader, c.state, c.lengths.rows(), vector);
  }
  vector->call = recurrence;
}

void read_update(CaseReader& reader, LinearVector* vector) {
  read_steps_of_rows(reader, false, vector);
}

void read_verify(CaseReader& reader, LinearVector* vector) {
  read_steps_of_rows(reader, true, vector);
}

struct NumberedName {
  std::string_view stem;
  std::string operator[](int64_t i) const { return std::string(stem) + std::to_string(i); }
};

/// Offsets from 0 that do not fall, at most kMaxVectorTokens.
void check_offsets(CaseReader& reader, const std::string& name, std::span<const int32_t> offsets) {
  if (offsets.empty() && reader.ok()) reader.bad_tensor(name, "an offset at least", "none");
  for (size_t i = 0; i < offsets.size(); ++i) {
    const int32_t low = i == 0 ? 0 : offsets[i - 1], high = i == 0 ? 0 : kMaxVectorTokens;
    if (offsets[i] >= low && offsets[i] <= high) continue;
    reader.bad_tensor(name, "from " + std::to_string(low) + " to " + std::to_string(high),
                      std::to_string(offsets[i]), static_cast<int64_t>(i));
    return;
  }
}

std::span<const int32_t> read_list(CaseReader& reader, const std::string& name, int64_t size) {
  const ConstTensorView view = reader.tensor(name, {DType::kI32}, {size});
  if (!view.defined()) return {};
  return reader.indices(name, view.shape[0]);
}

void read_chunk_meta(CaseReader& reader, LinearVector* vector) {
  const int32_t count = reader.integer("n", 1, INT16_MAX);
  std::vector<int32_t> sizes = reader.lengths("chunk_sizes", count);
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] == 0)
      reader.bad_field("chunk_sizes", "1 or more", "0 at [" + std::to_string(i) + ']');
  if (!reader.ok()) return;
  constexpr NumberedName kOffsets{"qsl"}, kIndices{"chunk_indices"}, kStarts{"chunk_offsets"};
  ChunkLists lists;
  for (int64_t i = 0; i < count; ++i) {
    ChunkLists::One one{};
    one.chunk_size = sizes[static_cast<size_t>(i)];
    one.cu_seqlens_q = read_list(reader, kOffsets[i], -1);
    check_offsets(reader, kOffsets[i], one.cu_seqlens_q);
    one.indices = read_list(reader, kIndices[i], -1);
    one.offsets = read_list(reader, kStarts[i], std::ssize(one.indices));
    lists.batches.push_back(one);
  }
  vector->call = lists;
}

constexpr LinearKind kKinds[] = {
    {"chunk_meta", read_chunk_meta}, {"scan", read_scan},          {"update", read_update},
    {"verify_chain", read_verify},   {"verify_tree", read_verify},
};

}  // namespace

std::span<const LinearKind> mamba2_kinds() { return kKinds; }

}  // namespace shadowgraph
