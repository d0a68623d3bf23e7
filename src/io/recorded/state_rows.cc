#include "io/recorded/state_rows.h"

#include <algorithm>
#include <numeric>

#include "io/file.h"

namespace shadowgraph {
namespace {

/// Numbers of rows below `rows`, ascending: a flag for each row, `listed` at those of the list.
std::vector<uint8_t> read_row_flags(CaseReader& reader, std::string_view field, uint8_t listed) {
  const int64_t rows = reader.size("rows");
  std::vector<uint8_t> flags(static_cast<size_t>(rows), listed == 0);
  const JsonValue* value = reader.has(field) ? reader.field(field) : nullptr;
  if (value == nullptr) return flags;
  const auto* items = value->as<JsonValue::Array>();
  const std::string expected = "ascending rows below " + std::to_string(rows);
  if (items == nullptr) reader.bad_field(field, expected, value->describe());
  int64_t last = -1;
  for (size_t i = 0; items != nullptr && i < items->size(); ++i) {
    const auto* row = (*items)[i].as<uint64_t>();
    if (row == nullptr || *row >= static_cast<uint64_t>(rows) ||
        static_cast<int64_t>(*row) <= last) {
      reader.bad_field(field, expected, (*items)[i].describe() + " at [" + std::to_string(i) + ']');
      break;
    }
    last = static_cast<int64_t>(*row);
    flags[*row] = listed;
  }
  return flags;
}

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

std::span<const uint8_t> read_has_initial(CaseReader& reader, std::string_view name) {
  if (!name.empty()) {
    const std::span<const uint8_t> flags = reader.bytes(name, "rows");
    reader.in_range(name, flags, 0, 1);
    return flags;
  }
  const std::vector<uint8_t> flags = read_row_flags(reader, "zero_init_rows", 0);
  if (std::ranges::count(flags, 0) == 0) return {};
  return reader.own(flags);
}

std::string with(std::string_view leading, const StateType& state) {
  return std::string(leading) + ' ' + std::string(state.shape);
}

}  // namespace

std::vector<int32_t> read_lens(CaseReader& reader) {
  std::vector<int32_t> lens = reader.lengths("lens", -1);
  reader.bind("rows", std::ssize(lens));
  reader.bind("tokens", std::accumulate(lens.begin(), lens.end(), int64_t{0}));
  return lens;
}

std::vector<int32_t> read_equal_lens(CaseReader& reader, std::string_view slots, int64_t steps) {
  const int64_t rows = reader.count("B");
  if (!reader.ok()) return {};
  if (rows * steps > kMaxVectorTokens)
    reader.bad_field("B", "at most " + std::to_string(kMaxVectorTokens) + " tokens",
                     std::to_string(rows * steps));
  reader.bind("rows", rows), reader.bind("steps", steps), reader.bind("tokens", rows * steps);
  reader.i32(slots, "rows");
  if (!reader.ok()) return {};
  return std::vector<int32_t>(static_cast<size_t>(rows), static_cast<int32_t>(steps));
}

DType read_state_dtype(CaseReader& reader) {
  return reader.has("state_dtype") ? reader.torch_dtype("state_dtype") : DType::kF32;
}

PadRow read_pad(CaseReader& reader, PadRow without) {
  if (!reader.has("pad_out")) return without;
  constexpr PadRow kPads[] = {PadRow::kZeroOut, PadRow::kFromZero, PadRow::kFromZero, PadRow::kSkip,
                              PadRow::kSkip};
  return kPads[reader.one_of(
      "pad_out",
      {"zero", "computed from a zero state", "computed from a zero state; nothing stored",
       "not written (stored as 0)", "not written (stored as 0, out_valid=0)"})];
}

TensorView read_pool(CaseReader& reader, const StateType& state, std::string_view before,
                     std::string_view after, RecordedCase* c) {
  if (reader.has("slots")) reader.integer("slots", 1, kMaxVectorTokens);
  c->states_before = reader.tensor(before, {state.dtype}, with("slots", state));
  c->gpu().states = reader.tensor(after, {state.dtype}, with("slots", state));
  return without_memory(c->states_before);
}

StateRows read_rows(CaseReader& reader, std::span<const int32_t> lens, const RowFields& fields,
                    RecordedCase* c) {
  StateRows rows;
  rows.pad = fields.pad;
  std::vector<int32_t> offsets = indptr_of(lens);
  rows.cu_seqlens_q = fields.offsets.empty() ? reader.own(std::move(offsets))
                                             : reader.indices(fields.offsets, offsets);
  const std::vector<uint8_t> is_pad = read_row_flags(reader, "pad_rows", 1);
  rows.state_indices = reader.i32(fields.slots, "rows");
  rows.has_initial_state = read_has_initial(reader, fields.has_initial);
  if (!reader.ok()) return rows;
  check_slots(reader, fields.slots, rows.state_indices, is_pad, c->states_before.shape[0]);
  if (rows.pad != PadRow::kSkip || std::ranges::count(is_pad, 1) == 0) return rows;
  for (size_t r = 0; r < lens.size(); ++r)
    c->out_valid.insert(c->out_valid.end(), static_cast<size_t>(lens[r]), is_pad[r] == 0);
  return rows;
}

void read_state_ref(CaseReader& reader, const StateType& state, RecordedCase* c) {
  c->reference.states = reader.reference("state_ref", with("rows", state));
}

DraftSteps read_draft(CaseReader& reader, const StateType& state, std::string_view indices,
                      std::string_view parents, RecordedCase* c) {
  if (reader.has("cache_steps_allocated"))
    reader.integer("cache_steps_allocated", 1, kMaxVectorTokens);
  const char* const places = indices.empty() ? "rows" : "places";
  ConstTensorView& kept = c->gpu().draft_states;
  kept = reader.tensor("inter_after", {state.dtype},
                       with(std::string(places) + " cache_steps_allocated", state));
  c->reference.draft_states = reader.reference("inter_ref", with("rows steps", state));
  const int64_t steps = reader.size("steps");
  if (kept.defined() && kept.shape[1] < steps)
    reader.bad_tensor("inter_after", std::to_string(steps) + " steps, or more",
                      std::to_string(kept.shape[1]));
  DraftSteps draft;
  draft.states = without_memory(kept);
  if (!indices.empty()) draft.indices = reader.i32(indices, "rows");
  if (!parents.empty()) draft.parents = read_steps(reader, parents, 0, true);
  if (reader.ok()) reader.in_range(indices, draft.indices, 0, kept.shape[0] - 1);
  return draft;
}

std::span<const int32_t> read_steps(CaseReader& reader, std::string_view name, int64_t low,
                                    bool earlier) {
  const std::span<const int64_t> values = reader.i64(name, "rows steps");
  const int64_t steps = reader.size("steps");
  std::vector<int32_t> narrow;
  for (int64_t i = 0; i < std::ssize(values); ++i) {
    const int64_t value = values[static_cast<size_t>(i)], token = i % steps;
    const int64_t high = earlier && token > 0 ? token - 1 : steps - 1;
    if (value < low || value > high) {
      reader.bad_tensor(name,
                        "a token from " + std::to_string(low) + " to " + std::to_string(high) +
                            " at [" + std::to_string(token) + ']',
                        std::to_string(value), i / steps);
      return {};
    }
    narrow.push_back(static_cast<int32_t>(value));
  }
  return reader.own(std::move(narrow));
}

}  // namespace shadowgraph
