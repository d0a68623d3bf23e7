// Mamba2's state space duality: q = C, k = B, v = x, beta = dt after its gate.
#include <algorithm>
#include <string>

#include "io/recorded/recorded_cases.h"
#include "io/recorded/state_rows.h"

namespace shadowgraph {
namespace {

/// All except the rows.
StateType read_mamba2(CaseReader& reader, RecordedCase* c) {
  c->dtype = reader.torch_dtype("dtype");
  const int32_t heads = reader.dim("nheads");
  reader.dim("headdim");
  const int32_t groups = reader.dim("ngroups");
  reader.dim("dstate");
  reader.known_flag("dt_softplus", true);
  if (reader.ok() && heads % groups != 0)
    reader.bad_field("ngroups", "a divisor of " + std::to_string(heads) + " heads",
                     std::to_string(groups));
  return {read_state_dtype(reader), "nheads headdim dstate"};
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

/// Arrays of tokens and heads, and the call as the case's. tokens: their axes in the file.
void finish(CaseReader& reader, const std::string& tokens, Recurrence recurrence, RecordedCase* c) {
  const auto read = [&](const char* name, const char* of_token) {
    return reader.tensor(name, {c->dtype}, tokens + of_token);
  };
  LinearAttention& call = recurrence.call;
  call.rule = LinearAttention::Rule::kAdd;
  call.q = read("C", " ngroups dstate");
  call.k = read("B", " ngroups dstate");
  call.v = read("x", " nheads headdim");
  if (reader.has_tensor("z")) call.z = read("z", " nheads headdim");
  call.skip = reader.f32("D", "nheads");
  DecayGate& gate = recurrence.gate.emplace();
  gate.kind = DecayGate::Kind::kStep;
  gate.x = read("dt", " nheads");
  gate.a_log = reader.f32("A", "nheads");
  gate.dt_bias = reader.f32("dt_bias", "nheads");
  gate.log_decay = gate.beta =
      without_memory(DType::kF32, {reader.size("tokens"), reader.size("nheads")});
  c->gpu().out = read("out", " nheads headdim");
  c->reference.out = reader.reference("out_ref", tokens + " nheads headdim");
  call.out = without_memory(c->gpu().out);
  c->call = recurrence;
}

/// The state that enters each physical chunk, of some cases: of the call's chunks those that begin
/// where a physical one does.
void read_chunk_states(CaseReader& reader, std::span<const int32_t> lens, Recurrence* recurrence,
                       RecordedCase* c) {
  if (!reader.has_tensor("chunk_states")) return;
  LinearAttention& call = recurrence->call;
  int32_t chunks = 0;
  int64_t begin = 0;
  for (const int32_t n : lens) {
    const int64_t end = begin + n;
    for (; begin < end; ++chunks) {
      if (begin % call.chunk_size == 0) recurrence->recorded_chunks.push_back(chunks);
      begin = std::min(end, (begin / call.chunk_size + 1) * call.chunk_size);
    }
  }
  reader.bind("chunks", std::ssize(recurrence->recorded_chunks));
  c->gpu().chunk_states = reader.f32("chunk_states", "chunks nheads headdim dstate");
  call.chunk_states = without_memory(
      DType::kF32, {chunks, reader.size("nheads"), reader.size("headdim"), reader.size("dstate")});
}

/// Which row each token is of, and the chunk lists, which the kernel gets where a row has a state.
void check_prepared(CaseReader& reader, std::span<const int32_t> lens, bool prepared,
                    const StateRows& rows) {
  std::vector<int32_t> row_of;
  for (size_t r = 0; r < lens.size(); ++r)
    row_of.insert(row_of.end(), static_cast<size_t>(lens[r]), static_cast<int32_t>(r));
  reader.indices("seq_idx", row_of);
  if (reader.ok() && prepared != (std::ranges::count(rows.has_initial_state, 1) > 0))
    reader.bad_field("prep_initial_states", "true where, and only where, a row has one",
                     prepared ? "true" : "false");
  if (!prepared) return;
  reader.i32("chunk_indices", "pieces");
  reader.i32("chunk_offsets", "pieces");
}

/// One or several tokens a row; verify: slots are not written, the state of each step is kept.
void read_steps_of_rows(CaseReader& reader, bool verify, RecordedCase* c) {
  const StateType state = read_mamba2(reader, c);
  const int64_t steps = reader.integer("steps", 1, verify ? INT16_MAX : 1);
  const PadRow pad = read_pad(reader, PadRow::kFromZero);
  const bool tree = reader.flag("tree");
  const std::vector<int32_t> lens = read_equal_lens(reader, "state_indices", steps);
  if (!reader.ok()) return;
  Recurrence recurrence;
  LinearAttention& call = recurrence.call;
  call.states = read_pool(reader, state, "pool_before", "pool_after", c);
  call.rows = read_rows(reader, lens, {.pad = pad}, c);
  if (verify) {
    call.store = false;
    call.draft = read_draft(reader, state, "intermediate_indices", tree ? "parents" : "", c);
    call.draft.of_padding = false;  // the states of padded rows are not kept
  } else {
    read_state_ref(reader, state, c);
  }
  finish(reader, "(rows steps)", recurrence, c);
}

/// Offsets from 0 that do not fall, at most kMaxVectorTokens.
void check_offsets(CaseReader& reader, const std::string& name, std::span<const int32_t> offsets) {
  if (offsets.empty() && reader.ok()) reader.bad_tensor(name, "an offset at least", "none");
  for (size_t i = 0; i < offsets.size(); ++i) {
    const int32_t low = i == 0 ? 0 : offsets[i - 1], high = i == 0 ? 0 : kMaxVectorTokens;
    if (offsets[i] >= low && offsets[i] <= high) continue;
    return reader.bad_tensor(name, "from " + std::to_string(low) + " to " + std::to_string(high),
                             std::to_string(offsets[i]), static_cast<int64_t>(i));
  }
}

}  // namespace

void read_mamba2_scan(CaseReader& reader, RecordedCase* c) {
  const StateType state = read_mamba2(reader, c);
  check_dt_limit(reader);
  Recurrence recurrence;
  LinearAttention& call = recurrence.call;
  call.chunk_grid = ChunkGrid::kTokens;
  call.chunk_size = reader.integer("chunk", 1, kMaxVectorTokens);
  const bool prepared = reader.flag("prep_initial_states");
  const std::vector<int32_t> lens = read_lens(reader);
  if (!reader.ok()) return;
  call.states = read_pool(reader, state, "pool_before", "pool_after", c);
  call.rows =
      read_rows(reader, lens, {.offsets = "cu_seqlens", .has_initial = "has_initial_states"}, c);
  read_state_ref(reader, state, c);
  reader.tensor("varlen_states", {state.dtype}, "rows nheads headdim dstate");
  check_prepared(reader, lens, prepared, call.rows);
  read_chunk_states(reader, lens, &recurrence, c);
  finish(reader, "tokens", recurrence, c);
}

void read_mamba2_update(CaseReader& reader, RecordedCase* c) {
  read_steps_of_rows(reader, false, c);
}

void read_mamba2_verify(CaseReader& reader, RecordedCase* c) {
  read_steps_of_rows(reader, true, c);
}

void read_chunk_meta(CaseReader& reader, RecordedCase* c) {
  const std::vector<int32_t> sizes = reader.lengths("chunk_sizes", reader.dim("n"));
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] == 0)
      reader.bad_field("chunk_sizes", "1 or more", "0 at [" + std::to_string(i) + ']');
  if (!reader.ok()) return;
  ChunkLists lists;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::string number = std::to_string(i);
    ChunkLists::One one;
    one.chunk_size = sizes[i];
    one.cu_seqlens_q = reader.i32("qsl" + number, "?");
    check_offsets(reader, "qsl" + number, one.cu_seqlens_q);
    one.indices = reader.i32("chunk_indices" + number, "?");
    one.offsets = reader.i32("chunk_offsets" + number, std::to_string(one.indices.size()));
    lists.batches.push_back(one);
  }
  c->call = lists;
}

}  // namespace shadowgraph
