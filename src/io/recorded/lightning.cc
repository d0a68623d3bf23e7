// Lightning attention: a constant decay per head, S stored [head_dim_k, head_dim_v].
#include <algorithm>
#include <string>

#include "io/recorded/recorded_cases.h"
#include "io/recorded/state_rows.h"

namespace shadowgraph {
namespace {

/// All except the rows.
StateType read_lightning(CaseReader& reader, LinearAttention* call, RecordedCase* c) {
  c->dtype = reader.torch_dtype("dtype");
  reader.dim("H"), reader.dim("D");
  call->rule = LinearAttention::Rule::kAdd;
  call->order = LinearAttention::StateOrder::kKeyValue;
  call->scale = reader.positive("scale");
  if (reader.has("hazard")) c->gpu().known_wrong = reader.text("hazard");
  return {read_state_dtype(reader), "H D D"};
}

/// log_decay = -slope
ConstTensorView read_decay(CaseReader& reader) {
  const std::span<const float> slopes = reader.floats("slopes", "H");
  std::vector<float> decay(slopes.begin(), slopes.end());
  for (float& d : decay) d = -d;
  const int64_t heads = std::ssize(decay);
  return {reader.own(std::move(decay)).data(), DType::kF32, {heads}};
}

/// Pool, rows, tokens, answers.
void read_arrays(CaseReader& reader, const StateType& state, std::span<const int32_t> lens,
                 const RowFields& fields, LinearAttention* call, RecordedCase* c) {
  call->states = read_pool(reader, state, "pool_before", "pool_after", c);
  call->rows = read_rows(reader, lens, fields, c);
  call->q = reader.tensor("q", {c->dtype}, "tokens H D");
  call->k = reader.tensor("k", {c->dtype}, "tokens H D");
  call->v = reader.tensor("v", {c->dtype}, "tokens H D");
  call->log_decay = read_decay(reader);
  c->gpu().out = reader.tensor("out", {c->dtype}, "tokens H D");
  c->reference.out = reader.reference("out_ref", "tokens H D");
  call->out = without_memory(c->gpu().out);
}

/// "heads_layers": [heads, layers] of each table.
std::vector<std::pair<int64_t, int64_t>> read_table_sizes(CaseReader& reader) {
  std::vector<std::pair<int64_t, int64_t>> sizes;
  const JsonValue* value = reader.field("heads_layers");
  if (value == nullptr) return sizes;
  const auto* pairs = value->as<JsonValue::Array>();
  const std::string expected = "pairs of heads and layers, 1 or more each";
  if (pairs == nullptr || pairs->empty())
    reader.bad_field("heads_layers", expected, value->describe());
  for (size_t i = 0; pairs != nullptr && i < pairs->size(); ++i) {
    const auto* pair = (*pairs)[i].as<JsonValue::Array>();
    const auto size = [&](size_t at) -> int64_t {
      const auto* n = pair == nullptr || pair->size() != 2 ? nullptr : (*pair)[at].as<uint64_t>();
      return n == nullptr || *n > INT16_MAX ? 0 : static_cast<int64_t>(*n);
    };
    sizes.emplace_back(size(0), size(1));
    if (sizes.back().first > 0 && sizes.back().second > 0) continue;
    reader.bad_field("heads_layers", expected,
                     (*pairs)[i].describe() + " at [" + std::to_string(i) + ']');
    break;
  }
  return sizes;
}

}  // namespace

/// A batch of one token a row on the average goes to the decode kernel, and so does, as far as
/// arithmetic goes, a verify step.
void read_lightning_seg(CaseReader& reader, RecordedCase* c) {
  Recurrence recurrence;
  LinearAttention& call = recurrence.call;
  const StateType state = read_lightning(reader, &call, c);
  const size_t mode = reader.one_of("mode", {"prefill", "decode", "verify"});
  const bool prefill = mode == 0, verify = mode == 2;
  const int32_t steps = reader.dim("steps");
  const PadRow pad = read_pad(reader, PadRow::kSkip);
  const std::vector<int32_t> lens = read_lens(reader);
  const auto other = std::ranges::find_if(lens, [&](int32_t n) { return n != steps; });
  if (!prefill && other != lens.end())
    reader.bad_field("lens", std::to_string(steps) + " everywhere, as steps says",
                     std::to_string(*other));
  if (!reader.ok()) return;
  if (prefill && reader.size("tokens") > reader.size("rows"))
    c->gpu().kernel = "lightning_seg_prefill";
  read_arrays(reader, state, lens,
              {.offsets = "cu_seqlens", .has_initial = "has_initial_state", .pad = pad}, &call, c);
  if (!prefill) call.rows.has_initial_state = {};  // the kernel does not look at it
  if (verify) {
    call.store = false;
    call.draft = read_draft(reader, state, "", "", c);
  } else {
    read_state_ref(reader, state, c);
  }
  c->call = recurrence;
}

/// One sequence a call.
void read_minimax_prefill(CaseReader& reader, RecordedCase* c) {
  Recurrence recurrence;
  const StateType state = read_lightning(reader, &recurrence.call, c);
  reader.known_text("mode", "prefill");
  const std::vector<int32_t> lens = read_lens(reader);
  if (reader.ok() && lens.size() != 1)
    reader.bad_field("lens", "one sequence", std::to_string(lens.size()));
  if (!reader.ok()) return;
  read_arrays(reader, state, lens, {}, &recurrence.call, c);
  read_state_ref(reader, state, c);
  if (!c->gpu().known_wrong.empty() || reader.has_tensor("out_ref_kernel"))
    reader.reference("out_ref_kernel", "tokens H D");
  c->call = recurrence;
}

void read_minimax_decode(CaseReader& reader, RecordedCase* c) {
  Recurrence recurrence;
  const StateType state = read_lightning(reader, &recurrence.call, c);
  reader.known_text("mode", "decode");
  const PadRow pad = read_pad(reader, PadRow::kSkip);
  const std::vector<int32_t> lens = read_equal_lens(reader, "state_indices", 1);
  if (!reader.ok()) return;
  read_arrays(reader, state, lens, {.pad = pad}, &recurrence.call, c);
  read_state_ref(reader, state, c);
  c->call = recurrence;
}

void read_slopes(CaseReader& reader, RecordedCase* c) {
  const auto sizes = read_table_sizes(reader);
  if (!reader.ok()) return;
  SlopeTables tables;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::string number = std::to_string(i);
    reader.bind("heads", sizes[i].first), reader.bind("layers", sizes[i].second);
    tables.recorded.push_back(reader.f32("slopes" + number, "layers heads"));
    tables.reference.push_back(reader.reference("slopes_ref" + number, "layers heads"));
  }
  c->call = tables;
}

}  // namespace shadowgraph
