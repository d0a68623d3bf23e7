// Lightning attention: a constant decay per head, S stored [head_dim_k, head_dim_v].
#include <string>

#include "io/file.h"
#include "io/linear_case.h"

namespace shadowgraph {
namespace {

struct LightningCase {
  int64_t heads = 0, dim = 0;
  StateType state;
  RowLengths lengths;
  LinearAttention call;
};

/// All but the rows.
LightningCase read_lightning(CaseReader& reader, LinearVector* vector) {
  LightningCase c;
  vector->dtype = read_torch_dtype(reader, "dtype");
  c.heads = read_dim(reader, "H");
  c.dim = read_dim(reader, "D");
  c.state = {read_state_dtype(reader), {c.heads, c.dim, c.dim}};
  c.call.rule = LinearAttention::Rule::kAdd;
  c.call.order = LinearAttention::StateOrder::kKeyValue;
  c.call.scale = reader.positive("scale");
  if (reader.has("hazard")) vector->departs = reader.text("hazard");
  return c;
}

/// log_decay = -slope
ConstTensorView read_decay(CaseReader& reader, int64_t heads) {
  const ConstTensorView slopes = reader.tensor("slopes", {DType::kF32}, {heads});
  if (!slopes.defined()) return slopes;
  const auto* slope = reinterpret_cast<const float*>(slopes.data);
  std::vector<float> decay(slope, slope + heads);
  for (float& d : decay) d = -d;
  return {reader.own(std::move(decay)).data(), DType::kF32, {heads}};
}

/// Pool, rows, tokens, results.
void read_arrays(CaseReader& reader, const RowFields& fields, LightningCase* c,
                 LinearVector* vector) {
  LinearAttention& call = c->call;
  const DTypes dtype = {vector->dtype};
  const Shape head = {c->heads, c->dim}, out = {c->lengths.tokens, c->heads, c->dim};
  call.states = read_pool(reader, c->state, "pool_before", "pool_after", vector);
  call.rows = read_rows(reader, c->lengths, fields, vector->states_before.shape[0], vector);
  call.q = read_tokens(reader, "q", dtype, c->lengths, head);
  call.k = read_tokens(reader, "k", dtype, c->lengths, head);
  call.v = read_tokens(reader, "v", dtype, c->lengths, head);
  call.log_decay = read_decay(reader, c->heads);
  vector->recorded.out = reader.tensor("out", dtype, out);
  vector->reference.out = read_reference(reader, "out_ref", out);
  call.out = without_memory(vector->recorded.out);
}

/// Rows of at most `steps` draft tokens, all of them.
void read_draft_steps(CaseReader& reader, LightningCase* c, LinearVector* vector) {
  c->call.store = false;
  c->call.draft = read_draft(reader, c->state, c->lengths, "", "", vector);
}

void finish(const LightningCase& c, LinearVector* vector) {
  Recurrence recurrence;
  recurrence.call = c.call;
  vector->call = recurrence;
}

/// A batch of one token a row on the average goes to the decode kernel, and so does, as far as
/// arithmetic goes, a verify step.
void read_seg(CaseReader& reader, LinearVector* vector) {
  LightningCase c = read_lightning(reader, vector);
  const std::string mode = reader.text("mode");
  const bool verify = mode == "verify", prefill = mode == "prefill";
  if (!verify && !prefill && mode != "decode" && reader.ok())
    reader.bad_field("mode", "prefill, decode or verify", printable(mode));
  const int64_t steps = reader.integer("steps", 1, INT16_MAX);
  const PadRow pad = read_pad(reader, PadRow::kSkip);
  c.lengths = read_lens(reader);
  for (const int32_t n : c.lengths.lens) {
    if (prefill || n == steps) continue;
    reader.bad_field("lens", std::to_string(steps) + " everywhere, as steps says",
                     std::to_string(n));
    break;
  }
  if (!reader.ok()) return;
  vector->kernel = prefill && c.lengths.tokens > c.lengths.rows() ? "lightning_seg_prefill"
                                                                  : "lightning_seg_decode";
  const RowFields fields = {
      .offsets = "cu_seqlens", .has_initial = "has_initial_state", .pad = pad};
  read_arrays(reader, fields, &c, vector);
  if (!prefill) c.call.rows.has_initial_state = {};  // the kernel does not look at it
  if (verify) {
    c.lengths.steps = steps;
    read_draft_steps(reader, &c, vector);
  } else {
    read_state_ref(reader, c.state, c.lengths.rows(), vector);
  }
  finish(c, vector);
}

/// One sequence a call.
void read_minimax_prefill(CaseReader& reader, LinearVector* vector) {
  LightningCase c = read_lightning(reader, vector);
  vector->kernel = "lightning_minimax_prefill";
  c.lengths = read_lens(reader);
  if (reader.ok() && c.lengths.rows() != 1)
    reader.bad_field("lens", "one sequence", std::to_string(c.lengths.rows()));
  if (!reader.ok()) return;
  read_arrays(reader, {.offsets = {}, .has_initial = {}}, &c, vector);
  read_state_ref(reader, c.state, 1, vector);
  if (!vector->departs.empty() || reader.has_tensor("out_ref_kernel")) {
    vector->departed_out =
        read_reference(reader, "out_ref_kernel", {c.lengths.tokens, c.heads, c.dim});
  }
  finish(c, vector);
}

void read_minimax_decode(CaseReader& reader, LinearVector* vector) {
  LightningCase c = read_lightning(reader, vector);
  vector->kernel = "lightning_minimax_decode";
  const PadRow pad = read_pad(reader, PadRow::kSkip);
  c.lengths = same_lens(reader, "state_indices", 1);
  if (!reader.ok()) return;
  read_arrays(reader, {.offsets = {}, .has_initial = {}, .pad = pad}, &c, vector);
  read_state_ref(reader, c.state, c.lengths.rows(), vector);
  finish(c, vector);
}

/// "heads_layers": a pair per table.
std::vector<Shape> read_table_shapes(CaseReader& reader) {
  const JsonValue* value = reader.field("heads_layers");
  if (value == nullptr) return {};
  std::vector<Shape> shapes;
  const auto* pairs = value->as<JsonValue::Array>();
  const std::string expected = "pairs of heads and layers, 1 or more each";
  if (pairs == nullptr || pairs->empty())
    reader.bad_field("heads_layers", expected, value->describe());
  for (size_t i = 0; pairs != nullptr && i < pairs->size(); ++i) {
    Shape shape;  // [layers, heads]
    if (const auto* pair = (*pairs)[i].as<JsonValue::Array>();
        pair != nullptr && pair->size() == 2) {
      for (const size_t axis : {size_t{1}, size_t{0}}) {
        const auto* n = (*pair)[axis].as<uint64_t>();
        if (n != nullptr && *n > 0 && *n <= INT16_MAX) shape.push_back(static_cast<int64_t>(*n));
      }
    }
    if (shape.size() == 2) {
      shapes.push_back(shape);
      continue;
    }
    reader.bad_field("heads_layers", expected,
                     (*pairs)[i].describe() + " at [" + std::to_string(i) + ']');
    break;
  }
  return shapes;
}

void read_slopes(CaseReader& reader, LinearVector* vector) {
  const std::vector<Shape> shapes = read_table_shapes(reader);
  if (!reader.ok()) return;
  SlopeTables tables;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const std::string number = std::to_string(i);
    tables.recorded.push_back(reader.tensor("slopes" + number, {DType::kF32}, shapes[i]));
    tables.reference.push_back(read_reference(reader, "slopes_ref" + number, shapes[i]));
  }
  vector->call = tables;
}

constexpr LinearKind kKinds[] = {
    {"slopes", read_slopes},
    {"seg_prefill", read_seg},
    {"seg_decode", read_seg},
    {"seg_verify", read_seg},
    {"minimax_prefill", read_minimax_prefill},
    {"minimax_decode", read_minimax_decode},
};

}  // namespace

std::span<const LinearKind> lightning_kinds() { return kKinds; }

}  // namespace shadowgraph
