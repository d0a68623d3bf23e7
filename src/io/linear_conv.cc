// Causal convolutions: of a prefill, and of decode steps, draft tokens and trees of them.
#include <string>

#include "io/linear_case.h"

namespace shadowgraph {
namespace {

struct ConvCase {
  CausalConv1d call;
  int64_t dim = 0;
  StateType state;
  PadRow pad = PadRow::kSkip;
  RowLengths lengths;
};

/// All but the rows.
ConvCase read_conv(CaseReader& reader, LinearVector* vector) {
  ConvCase c;
  vector->kernel = "conv";
  vector->dtype = read_torch_dtype(reader, "dtype");
  c.dim = read_dim(reader, "dim");
  c.state = {vector->dtype, {c.dim, reader.integer("width", 2, 8) - 1}};
  c.pad = read_pad(reader, PadRow::kSkip);
  const JsonValue* activation = reader.field("activation");
  if (activation != nullptr && activation->as<std::nullptr_t>() == nullptr) {
    reader.known_text("activation", "silu");
    c.call.activation = CausalConv1d::Activation::kSilu;
  }
  return c;
}

void read_pool_and_rows(CaseReader& reader, const RowFields& fields, ConvCase* c,
                        LinearVector* vector) {
  c->call.states = read_pool(reader, c->state, "conv_state_before", "conv_state_after", vector);
  c->call.rows = read_rows(reader, c->lengths, fields, vector->states_before.shape[0], vector);
}

/// split: tokens are stored as [rows, steps].
void read_arrays(CaseReader& reader, bool split, ConvCase* c, LinearVector* vector) {
  const DType dtype = vector->dtype;
  CausalConv1d& call = c->call;
  call.x = read_tokens(reader, "x", {dtype}, c->lengths, {c->dim}, split);
  call.weight = reader.tensor("weight", {dtype}, {c->dim, c->state.shape[1] + 1});
  if (reader.has_tensor("bias")) call.bias = reader.tensor("bias", {dtype}, {c->dim});
  vector->recorded.out = read_tokens(reader, "out", {dtype}, c->lengths, {c->dim}, split);
  vector->reference.out =
      read_tokens(reader, "out_ref", {DType::kF32, DType::kF64}, c->lengths, {c->dim}, split);
  read_state_ref(reader, c->state, c->lengths.rows(), vector);
  call.out = without_memory(vector->recorded.out);
  vector->call = call;
}

/// out_valid says of each token what its row's slot says.
void check_out_valid(CaseReader& reader, const ConvCase& c, const LinearVector& vector) {
  const std::span<const uint8_t> valid = reader.bytes("out_valid", c.lengths.tokens);
  for (size_t t = 0; t < valid.size(); ++t) {
    const int expected = vector.out_valid.empty() ? 1 : vector.out_valid[t];
    if (valid[t] == expected) continue;
    reader.bad_tensor("out_valid", std::to_string(expected) + ", as pad_rows says",
                      std::to_string(valid[t]), static_cast<int64_t>(t));
    return;
  }
}

void read_prefill(CaseReader& reader, LinearVector* vector) {
  ConvCase c = read_conv(reader, vector);
  c.lengths = read_lens(reader);
  if (!reader.ok()) return;
  read_pool_and_rows(reader,
                     {.slots = "cache_indices",
                      .offsets = "query_start_loc",
                      .has_initial = "has_initial_state",
                      .pad = c.pad},
                     &c, vector);
  if (reader.ok()) check_out_valid(reader, c, *vector);
  read_arrays(reader, false, &c, vector);
}

/// The tree as the kernel gets it, the parents that it made of that, and those of the reference.
void read_tree(CaseReader& reader, const RowLengths& lengths, LinearVector* vector) {
  vector->first_child = read_steps(reader, "next_token", lengths, -1, false);
  vector->next_sibling = read_steps(reader, "next_sibling", lengths, -1, false);
  vector->recorded_parents = read_steps(reader, "parent_out", lengths, 0, true);
}

void read_update(CaseReader& reader, LinearVector* vector) {
  ConvCase c = read_conv(reader, vector);
  const int64_t steps = reader.integer("steps", 1, INT16_MAX);
  const bool tree = reader.flag("tree");
  c.lengths = same_lens(reader, "conv_state_indices", steps);
  if (!reader.ok()) return;
  const RowFields fields = {
      .slots = "conv_state_indices", .offsets = {}, .has_initial = {}, .pad = c.pad};
  read_pool_and_rows(reader, fields, &c, vector);
  if (steps > 1) {
    c.call.draft = read_draft(reader, c.state, c.lengths, "intermediate_state_indices",
                              tree ? "parent_ref" : "", vector);
  }
  if (tree) read_tree(reader, c.lengths, vector);
  read_arrays(reader, true, &c, vector);
}

constexpr LinearKind kKinds[] = {
    {"conv_prefill", read_prefill},
    {"conv_update", read_update},
};

}  // namespace

std::span<const LinearKind> conv_kinds() { return kKinds; }

}  // namespace shadowgraph
