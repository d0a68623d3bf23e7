// A step in memory, as a line of backend `laws`: arrays become recorded fields.
#include "shadowgraph/judge.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "check/traces/trace_names.h"
#include "check/traces/traces.h"
#include "core/laws.h"
#include "core/nearest.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph::testing {
namespace {

/// Roles that `list fields laws` names otherwise; and what entries of one token are.
struct RoleName {
  std::string_view role, field;
};
constexpr RoleName kRoleNames[] = {{"last_page_len", "kv_last_page_len"},
                                   {"slots", "out_cache_loc"}};
constexpr RoleName kOfOneToken[] = {{"page_table", "slot_table"},
                                    {"kv_indices", "slot_indices"},
                                    {"swa_page_table", "swa_slot_table"}};

std::string_view renamed(std::span<const RoleName> names, std::string_view role) {
  const auto it = std::ranges::find(names, role, &RoleName::role);
  return it == names.end() ? role : it->field;
}

/// Elements in row-major order.
template <class T>
void append(const ConstTensorView& view, std::vector<int64_t>* to) {
  const int last = view.rank - 1;
  const int64_t width = last < 0 ? 1 : view.shape[last], step = last < 0 ? 0 : view.stride[last];
  std::array<int64_t, ConstTensorView::kMaxRank> index{};
  int64_t offset = 0;
  for (int64_t left = view.numel(); left > 0; left -= width) {
    for (int64_t i = 0; i < width; ++i) {
      T value;
      std::memcpy(&value, view.data + (offset + i * step) * int64_t{sizeof value}, sizeof value);
      to->push_back(value);
    }
    for (int axis = last - 1; axis >= 0; --axis) {
      offset += view.stride[axis];
      if (++index[axis] < view.shape[axis]) break;
      offset -= view.stride[axis] * view.shape[axis];
      index[axis] = 0;
    }
  }
}

/// flat: as one axis.
RecordedField field_of(const ConstTensorView& view, bool flat) {
  RecordedField field;
  const int64_t count = view.numel();
  field.data.reserve(static_cast<size_t>(count));
  switch (view.dtype) {
    case DType::kI64: field.dtype = "int64", append<int64_t>(view, &field.data); break;
    case DType::kI32: field.dtype = "int32", append<int32_t>(view, &field.data); break;
    default: field.dtype = "uint8", append<uint8_t>(view, &field.data); break;
  }
  if (flat)
    field.shape = {count};
  else
    field.shape.assign(view.shape.begin(), view.shape.begin() + view.rank);
  field.cols = field.width();
  return field;
}

RecordedField tokens(std::span<const int64_t> values) {
  const int64_t size = std::ssize(values);
  return {"int64", {size}, size, {values.begin(), values.end()}};
}

/// The line of a step.
class StepLine {
 public:
  explicit StepLine(const JudgeOptions& options) : options_(options), laws_(*find_backend("laws")) {
    line_.backend = laws_.info().name, line_.phase = "eager";
    check_options();
    TraceConfig& config = line_.config;
    config.page_size = options.page_size;
    if (options.pool_pages > 0) config.pool_pages = options.pool_pages;
    config.max_context_len = options.max_context_len;
    config.window = options.window_left;
    const Engine& engine = *options.engine;
    const auto slot = engine.padding_slot;
    config.conventions = {
        {"padding_len", options.pad_kv_lens.least},
        {"max_padding_len", options.pad_kv_lens.most},
        {"padding_page", engine.padding_page},
        {"padding_slot", slot ? std::optional(static_cast<int32_t>(*slot)) : std::nullopt},
        {"reserved_page", engine.reserved_page},
        {"window_columns", engine.window_columns ? 1 : 0},
        {"inclusive_ends", engine.inclusive_ends ? 1 : 0}};
  }

  void add(const ForwardBatch& batch) {
    for (const TraceMode& mode : kTraceModes)
      if (mode.mode == batch.mode && line_.mode.empty()) line_.mode = mode.name;
    TraceConfig& config = line_.config;
    config.topk = batch.spec.topk, config.num_steps = batch.spec.num_steps;
    config.num_draft_tokens = batch.spec.num_draft_tokens, config.step_id = batch.spec.step;
    if (!batch.out_cache_loc.empty()) line_.input["out_cache_loc"] = tokens(batch.out_cache_loc);
    if (!batch.positions.empty()) line_.input["positions"] = tokens(batch.positions);
  }

  void add(const RoleValue& value) {
    std::string name(value.name.empty() ? value.role : value.name);
    if (!is_readable(value, name)) return;
    const std::string role = role_of(value);
    const bool flat = role == "out_cache_loc" || role == "positions" || role == "custom_mask";
    RecordedField field = value.number ? RecordedField{"pyint", {}, 1, {*value.number}}
                                       : field_of(value.values, flat);
    while (line_.expect.contains(name)) name += '\'';
    line_.roles[name] = role;
    line_.expect.emplace(std::move(name), std::move(field));
  }

  const std::string& mode() const { return line_.mode; }
  TraceLine take() { return std::move(line_); }
  Status& refused() { return refused_; }

 private:
  void refuse(LawId law, std::string field, std::string expected, std::string got) {
    refused_.add(make_finding(law, at(std::move(field)), std::move(expected), std::move(got)));
  }

  void check_options() {
    const auto least = [&](const char* field, int32_t least, int32_t value) {
      if (value < least)
        refuse("test.options", field, ">= " + std::to_string(least), std::to_string(value));
    };
    if (options_.page_size < 1 || !std::has_single_bit(static_cast<uint32_t>(options_.page_size)))
      refuse("test.options", "page_size", "a power of two", std::to_string(options_.page_size));
    least("pool_pages", 0, options_.pool_pages);
    least("max_context_len", 0, options_.max_context_len);
    least("window_left", -1, options_.window_left);
    least("pad_kv_lens.least", 0, options_.pad_kv_lens.least);
    least("pad_kv_lens.most", options_.pad_kv_lens.least, options_.pad_kv_lens.most);
  }

  /// The name of `list fields laws`.
  std::string role_of(const RoleValue& value) const {
    const std::string_view role = renamed(kRoleNames, value.role);
    return std::string(value.unit == 1 ? renamed(kOfOneToken, role) : role);
  }

  bool is_readable(const RoleValue& value, const std::string& name) {
    const size_t before = refused_.findings().size();
    const std::string role = role_of(value);
    if (role != "positions" && !has_field(laws_.info(), role)) {
      refuse("test.options", name, one_of(roles()),
             (name == value.role ? "" : std::string(value.role) + ", ") + "no role" +
                 meant_by(value.role, roles()));
      return false;
    }
    check_unit(value, name, role);
    if (!value.number) check_view(value.values, name);
    return refused_.findings().size() == before;
  }

  /// Those that callers name: units choose among slots and pages.
  std::vector<std::string> roles() const {
    std::vector<std::string> names = {"positions"};
    for (const std::string& field : names_of_fields(laws_.info())) {
      const auto other = std::ranges::find(kRoleNames, field, &RoleName::field);
      const bool by_unit =
          std::ranges::find(kOfOneToken, field, &RoleName::field) != std::end(kOfOneToken);
      if (!by_unit)
        names.emplace_back(other == std::end(kRoleNames) ? field : std::string(other->role));
    }
    return names;
  }

  void check_unit(const RoleValue& value, const std::string& name, const std::string& role) {
    const bool has_unit =
        role != renamed(kRoleNames, value.role) || renamed(kOfOneToken, role) != role;
    const std::string page = std::to_string(options_.page_size);
    if (value.unit == 0 || value.unit == options_.page_size || (value.unit == 1 && has_unit))
      return;
    refuse("test.options", name + ".unit",
           has_unit ? "1 (its elements are slots) or " + page + " (they are pages)"
                    : "none: its elements are neither slots nor pages",
           std::to_string(value.unit));
  }

  void check_view(const ConstTensorView& view, const std::string& name) {
    const DType d = view.dtype;
    bool empty = false;
    for (int axis = 0; axis < view.rank; ++axis) {
      empty = empty || view.shape[axis] == 0;
      if (view.shape[axis] < 0)
        refuse("input.shape", name, "a shape without negative sizes",
               "of a size " + std::to_string(view.shape[axis]));
    }
    if (!view.defined() || (view.data == nullptr && !empty))
      refuse("input.null", name, "an array or a number", "NULL");
    else if (d != DType::kI32 && d != DType::kI64 && d != DType::kU8 && d != DType::kBool)
      refuse("input.dtype", name, "int32, int64, uint8 or bool", std::string(name_of(d)));
  }

  const JudgeOptions& options_;
  const Backend& laws_;
  TraceLine line_;
  Status refused_;
};

/// The verdict's findings, in the words of a step in memory.
Status findings_of(const std::string& mode, TraceVerdict verdict, bool has_values) {
  // The batch may be judged alone.
  if (!has_values && verdict.skip == LawId("skip.no_field").law().id) verdict.why = {};
  Status status = std::move(verdict.findings);
  for (Finding& f : passed_over({}, verdict)) status.add(std::move(f));
  for (Finding& f : status.findings()) {
    f.where.backend.clear(), f.where.phase.clear();
    f.where.mode = mode;
    if (f.where.field.starts_with("input.")) f.where.field.replace(0, 5, "batch");
    if (f.where.field.starts_with("config.")) f.where.field.erase(0, 7);
  }
  return status;
}

}  // namespace

Status judge(const ForwardBatch& batch, std::span<const RoleValue> values,
             const JudgeOptions& options) {
  try {
    StepLine step(options);
    step.add(batch);
    for (const RoleValue& value : values) step.add(value);
    if (!step.refused().ok()) return std::move(step.refused());
    const std::string mode = step.mode();
    return findings_of(mode, judge_fields(step.take(), &batch), !values.empty());
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  }
}

}  // namespace shadowgraph::testing
