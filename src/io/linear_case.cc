#include "io/linear_case.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "io/case_tensors.h"
#include "io/file.h"

namespace shadowgraph {
namespace {

struct PadText {
  std::string_view text;
  PadRow pad;
};
constexpr PadText kPadTexts[] = {
    {"zero", PadRow::kZeroOut},
    {"computed from a zero state", PadRow::kFromZero},
    {"computed from a zero state; nothing stored", PadRow::kFromZero},
    {"not written (stored as 0)", PadRow::kSkip},
    {"not written (stored as 0, out_valid=0)", PadRow::kSkip},
};

/// Slots of rows: -1 where, and only where, the row is a pad.
void check_slots(CaseReader& reader, std::string_view name, std::span<const int32_t> slots,
                 std::span<const uint8_t> is_pad, int64_t num_slots) {
  for (size_t r = 0; r < slots.size(); ++r) {
    if (is_pad[r] != 0 ? slots[r] == -1 : slots[r] >= 0 && slots[r] < num_slots) continue;
    reader.bad_tensor(name,
                      is_pad[r] != 0 ? "-1, as pad_rows says"
                                     : "a slot from 0 to " + std::to_string(num_slots - 1),
                      std::to_string(slots[r]), static_cast<int64_t>(r));
  }
}

void check_flags(CaseReader& reader, std::string_view name, std::span<const uint8_t> flags) {
  for (size_t r = 0; r < flags.size(); ++r) {
    if (flags[r] <= 1) continue;
    reader.bad_tensor(name, "0 or 1", std::to_string(flags[r]), static_cast<int64_t>(r));
  }
}

/// 1 at the rows of the list, 0 elsewhere.
std::vector<uint8_t> marked(std::span<const int32_t> list, int64_t rows) {
  std::vector<uint8_t> marks(static_cast<size_t>(rows), 0);
  for (const int32_t r : list) marks[static_cast<size_t>(r)] = 1;
  return marks;
}

/// Tokens of the rows that are no pads.
std::vector<uint8_t> valid_tokens(const RowLengths& lengths, std::span<const uint8_t> is_pad) {
  std::vector<uint8_t> valid;
  valid.reserve(static_cast<size_t>(lengths.tokens));
  for (size_t r = 0; r < is_pad.size(); ++r)
    valid.insert(valid.end(), static_cast<size_t>(lengths.lens[r]), is_pad[r] == 0);
  return valid;
}

std::span<const uint8_t> read_has_initial(CaseReader& reader, std::string_view name, int64_t rows) {
  if (!name.empty()) {
    const std::span<const uint8_t> flags = reader.bytes(name, rows);
    check_flags(reader, name, flags);
    return flags;
  }
  if (!reader.has("zero_init_rows")) return {};
  const std::vector<int32_t> zeroed = read_row_list(reader, "zero_init_rows", rows);
  if (zeroed.empty()) return {};
  std::vector<uint8_t> flags = marked(zeroed, rows);
  for (uint8_t& flag : flags) flag ^= 1U;
  return reader.own(std::move(flags));
}

}  // namespace

Shape joined(Shape leading, const Shape& trailing) {
  leading.insert(leading.end(), trailing.begin(), trailing.end());
  return leading;
}

int64_t read_dim(CaseReader& reader, std::string_view field) {
  return reader.integer(field, 1, INT16_MAX);
}

DType read_torch_dtype(CaseReader& reader, std::string_view field) {
  const std::string name = reader.text(field);
  if (name == "torch.bfloat16") return DType::kBF16;
  if (name == "torch.float16") return DType::kF16;
  if (name != "torch.float32" && reader.ok())
    reader.bad_field(field, "torch.bfloat16, torch.float16 or torch.float32", printable(name));
  return DType::kF32;
}

DType read_state_dtype(CaseReader& reader) {
  return reader.has("state_dtype") ? read_torch_dtype(reader, "state_dtype") : DType::kF32;
}

PadRow read_pad(CaseReader& reader, PadRow without) {
  if (!reader.has("pad_out")) return without;
  const std::string text = reader.text("pad_out");
  for (const PadText& known : kPadTexts)
    if (text == known.text) return known.pad;
  if (reader.ok()) reader.bad_field("pad_out", "what becomes of a padded row", printable(text));
  return without;
}

void known_flag(CaseReader& reader, std::string_view field, bool expected) {
  if (reader.flag(field) != expected && reader.ok())
    reader.bad_field(field, expected ? "true" : "false", expected ? "false" : "true");
}

std::vector<int32_t> read_row_list(CaseReader& reader, std::string_view field, int64_t rows) {
  const JsonValue* value = reader.field(field);
  if (value == nullptr) return {};
  std::vector<int32_t> list;
  const auto* items = value->as<JsonValue::Array>();
  const std::string expected = "ascending rows below " + std::to_string(rows);
  if (items == nullptr) reader.bad_field(field, expected, value->describe());
  for (size_t i = 0; items != nullptr && i < items->size(); ++i) {
    const auto* row = (*items)[i].as<uint64_t>();
    if (row == nullptr || *row >= static_cast<uint64_t>(rows) ||
        (!list.empty() && static_cast<int64_t>(*row) <= list.back())) {
      reader.bad_field(field, expected, (*items)[i].describe() + " at [" + std::to_string(i) + ']');
      return {};
    }
    list.push_back(static_cast<int32_t>(*row));
  }
  return list;
}

RowLengths read_lens(CaseReader& reader) {
  RowLengths lengths;
  lengths.lens = reader.lengths("lens", -1);
  lengths.tokens = std::accumulate(lengths.lens.begin(), lengths.lens.end(), int64_t{0});
  return lengths;
}

RowLengths same_lens(CaseReader& reader, std::string_view slots, int64_t steps) {
  const int32_t rows = reader.integer("B", 0, kMaxVectorTokens);
  if (!reader.ok()) return {};
  if (rows * steps > kMaxVectorTokens) {
    reader.bad_field("B", "at most " + std::to_string(kMaxVectorTokens) + " tokens",
                     std::to_string(rows * steps));
    return {};
  }
  reader.indices(slots, rows);
  if (!reader.ok()) return {};
  return {std::vector<int32_t>(static_cast<size_t>(rows), static_cast<int32_t>(steps)),
          rows * steps, steps};
}

StateRows read_rows(CaseReader& reader, const RowLengths& lengths, const RowFields& fields,
                    int64_t num_slots, LinearVector* vector) {
  StateRows rows;
  rows.pad = fields.pad;
  const int64_t count = lengths.rows();
  std::vector<int32_t> offsets = indptr_of(lengths.lens);
  rows.cu_seqlens_q = fields.offsets.empty() ? reader.own(std::move(offsets))
                                             : reader.indices(fields.offsets, offsets);
  std::vector<int32_t> pads;
  if (reader.has("pad_rows")) pads = read_row_list(reader, "pad_rows", count);
  rows.state_indices = reader.indices(fields.slots, count);
  rows.has_initial_state = read_has_initial(reader, fields.has_initial, count);
  if (!reader.ok()) return rows;
  const std::vector<uint8_t> is_pad = marked(pads, count);
  check_slots(reader, fields.slots, rows.state_indices, is_pad, num_slots);
  if (rows.pad == PadRow::kSkip && !pads.empty()) vector->out_valid = valid_tokens(lengths, is_pad);
  return rows;
}

TensorView read_pool(CaseReader& reader, const StateType& state, std::string_view before,
                     std::string_view after, LinearVector* vector) {
  const int64_t slots = reader.has("slots") ? reader.integer("slots", 1, kMaxVectorTokens) : -1;
  vector->states_before = reader.tensor(before, {state.dtype}, joined({slots}, state.shape));
  const int64_t found = vector->states_before.defined() ? vector->states_before.shape[0] : slots;
  vector->recorded.states = reader.tensor(after, {state.dtype}, joined({found}, state.shape));
  return without_memory(vector->states_before);
}

void read_state_ref(CaseReader& reader, const StateType& state, int64_t rows,
                    LinearVector* vector) {
  vector->reference.states = read_reference(reader, "state_ref", joined({rows}, state.shape));
}

ConstTensorView read_reference(CaseReader& reader, std::string_view name, const Shape& shape) {
  return reader.tensor(name, {DType::kF32, DType::kF64}, shape);
}

ConstTensorView read_e4m3(CaseReader& reader, std::string_view name, const Shape& shape) {
  ConstTensorView view = reader.tensor(name, {DType::kU8, DType::kE4M3}, shape);
  view.dtype = DType::kE4M3;
  return view;
}

DraftSteps read_draft(CaseReader& reader, const StateType& state, const RowLengths& lengths,
                      std::string_view indices, std::string_view parents, LinearVector* vector) {
  const bool says_steps = reader.has("cache_steps_allocated");
  const int64_t allocated =
      says_steps ? reader.integer("cache_steps_allocated", 1, kMaxVectorTokens) : -1;
  LinearArrays& recorded = vector->recorded;
  const int64_t places = indices.empty() ? lengths.rows() : -1;
  recorded.draft_states =
      reader.tensor("inter_after", {state.dtype}, joined({places, allocated}, state.shape));
  vector->reference.draft_states =
      read_reference(reader, "inter_ref", joined({lengths.rows(), lengths.steps}, state.shape));
  if (recorded.draft_states.defined() && recorded.draft_states.shape[1] < lengths.steps) {
    reader.bad_tensor("inter_after", std::to_string(lengths.steps) + " steps, or more",
                      std::to_string(recorded.draft_states.shape[1]));
  }
  DraftSteps draft;
  draft.states = without_memory(recorded.draft_states);
  if (!indices.empty()) draft.indices = reader.indices(indices, lengths.rows());
  if (!parents.empty()) draft.parents = read_steps(reader, parents, lengths, 0, true);
  for (size_t r = 0; reader.ok() && r < draft.indices.size(); ++r) {
    const int64_t place = draft.indices[r], count = draft.states.shape[0];
    if (place >= 0 && place < count) continue;
    reader.bad_tensor(indices, "a place from 0 to " + std::to_string(count - 1),
                      std::to_string(place), static_cast<int64_t>(r));
    break;
  }
  return draft;
}

std::span<const int32_t> read_steps(CaseReader& reader, std::string_view name,
                                    const RowLengths& lengths, int64_t low, bool earlier) {
  const int64_t rows = lengths.rows(), steps = lengths.steps;
  const ConstTensorView view = reader.tensor(name, {DType::kI64}, {rows, steps});
  if (!view.defined()) return {};
  std::vector<int32_t> values;
  for (int64_t i = 0; i < rows * steps; ++i) {
    const int64_t value = reinterpret_cast<const int64_t*>(view.data)[i];
    const int64_t token = i % steps, high = earlier && token > 0 ? token - 1 : steps - 1;
    if (value < low || value > high) {
      reader.bad_tensor(name,
                        "a token from " + std::to_string(low) + " to " + std::to_string(high) +
                            " at [" + std::to_string(token) + ']',
                        std::to_string(value), i / steps);
      return {};
    }
    values.push_back(static_cast<int32_t>(value));
  }
  return reader.own(std::move(values));
}

ConstTensorView read_tokens(CaseReader& reader, std::string_view name, DTypes dtypes,
                            const RowLengths& lengths, const Shape& rest, bool split) {
  if (!split) return reader.tensor(name, dtypes, joined({lengths.tokens}, rest));
  return merge_leading(reader.tensor(name, dtypes, joined({lengths.rows(), lengths.steps}, rest)));
}

TensorView without_memory(const ConstTensorView& view) {
  TensorView t = cache_view(view);
  t.data = nullptr;
  return t;
}

TensorView without_memory(DType dtype, const Shape& shape) {
  TensorView t;
  t.dtype = dtype;
  t.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), t.shape.begin());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0; step *= shape[i]) t.stride[i] = step;
  return t;
}

}  // namespace shadowgraph
