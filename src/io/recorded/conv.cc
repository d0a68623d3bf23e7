// Causal convolutions: of a prefill, and of decode steps, draft tokens and trees of them.
#include <string>

#include "io/recorded/recorded_cases.h"
#include "io/recorded/state_rows.h"

namespace shadowgraph {
namespace {

/// All except the rows. In shapes: "window", the tokens of a state.
StateType read_conv(CaseReader& reader, PadRow* pad, CausalConv1d* call, RecordedCase* c) {
  c->dtype = reader.torch_dtype("dtype");
  reader.dim("dim");
  reader.bind("window", reader.integer("width", 2, 8) - 1);
  *pad = read_pad(reader, PadRow::kSkip);
  if (!reader.is_null("activation")) {
    reader.known_text("activation", "silu");
    call->activation = CausalConv1d::Activation::kSilu;
  }
  return {c->dtype, "dim window"};
}

/// tokens: their axes in the file.
void read_arrays(CaseReader& reader, const StateType& state, const std::string& tokens,
                 ConvCase conv, RecordedCase* c) {
  CausalConv1d& call = conv.call;
  call.x = reader.tensor("x", {c->dtype}, tokens + " dim");
  call.weight = reader.tensor("weight", {c->dtype}, "dim width");
  if (reader.has_tensor("bias")) call.bias = reader.tensor("bias", {c->dtype}, "dim");
  c->gpu().out = reader.tensor("out", {c->dtype}, tokens + " dim");
  c->reference.out = reader.reference("out_ref", tokens + " dim");
  read_state_ref(reader, state, c);
  call.out = without_memory(c->gpu().out);
  c->call = conv;
}

}  // namespace

void read_conv_prefill(CaseReader& reader, RecordedCase* c) {
  ConvCase conv;
  PadRow pad;
  const StateType state = read_conv(reader, &pad, &conv.call, c);
  const std::vector<int32_t> lens = read_lens(reader);
  if (!reader.ok()) return;
  conv.call.states = read_pool(reader, state, "conv_state_before", "conv_state_after", c);
  conv.call.rows = read_rows(reader, lens,
                             {.slots = "cache_indices",
                              .offsets = "query_start_loc",
                              .has_initial = "has_initial_state",
                              .pad = pad},
                             c);
  const std::span<const uint8_t> valid = reader.bytes("out_valid", "tokens");
  const auto expected = [&](size_t t) { return c->out_valid.empty() ? 1 : c->out_valid[t]; };
  if (reader.ok()) reader.all_as("out_valid", valid, expected, "pad_rows says");
  read_arrays(reader, state, "tokens", conv, c);
}

void read_conv_update(CaseReader& reader, RecordedCase* c) {
  ConvCase conv;
  PadRow pad;
  const StateType state = read_conv(reader, &pad, &conv.call, c);
  const int64_t steps = reader.dim("steps");
  const bool tree = reader.flag("tree");
  const std::vector<int32_t> lens = read_equal_lens(reader, "conv_state_indices", steps);
  if (!reader.ok()) return;
  conv.call.states = read_pool(reader, state, "conv_state_before", "conv_state_after", c);
  conv.call.rows = read_rows(reader, lens, {.slots = "conv_state_indices", .pad = pad}, c);
  if (steps > 1)
    conv.call.draft =
        read_draft(reader, state, "intermediate_state_indices", tree ? "parent_ref" : "", c);
  if (tree) {  // as the kernel gets it, and the parents that it made of that
    conv.tree.first_child = read_steps(reader, "next_token", -1, false);
    conv.tree.next_sibling = read_steps(reader, "next_sibling", -1, false);
    conv.tree.parents = read_steps(reader, "parent_out", 0, true);
  }
  read_arrays(reader, state, "(rows steps)", conv, c);
}

}  // namespace shadowgraph
