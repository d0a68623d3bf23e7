#include "check/traces/trace_fields.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "backends/fill/rows.h"
#include "check/traces/field_judge.h"
#include "check/traces/trace_input.h"
#include "check/traces/trace_words.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

void add_refs(std::string_view refs, std::vector<std::string>* to) {
  while (!refs.empty()) {
    const size_t end = std::min(refs.find(' '), refs.size());
    std::string ref(refs.substr(0, end));
    if (std::ranges::find(*to, ref) == to->end()) to->push_back(std::move(ref));
    refs.remove_prefix(std::min(end + 1, refs.size()));
  }
}

}  // namespace

FieldVerdict FieldJudge::run() {
  using enum FieldVerdict::Kind;
  if (std::string why = why_unread(); !why.empty()) return {kUnread, std::move(why)};
  if (!is_there()) {
    const char* why = "the twin has no such buffer in this mode";
    if (step_.backend.name == "laws")
      why = is_of_window() || field_.recorded.starts_with("swa_")
                ? "not judged: the batch has no full_to_swa, the map to the window's pool"
                : "not judged: in this mode nothing says what it should be";
    return {kAbsent, why, LawId("left_out.no_buffer").law().id};
  }
  if (judge()) return {kJudged};
  return {kLeftOut, left_out_, left_out_by_};
}

/// A scalar of a replay is what its capture froze, if it is baked; a choice is a
/// plan's, and every step plans.
std::string FieldJudge::why_unread() const {
  if (field_.rule == FieldRule::kDead) return std::string(field_.dead);
  if (field_.shape != FieldShape::kScalar || !step_.rebuilt.graph) return "";
  if (field_.rule == FieldRule::kConstant) return "";
  if (field_.rule != FieldRule::kBaked) return "only launches of eager steps take this number";
  return capture() ? "" : "a graph runs with the number of its capture; record that to judge it";
}

bool FieldJudge::is_there() const {
  const auto i = static_cast<size_t>(field_.buffer);
  if (is_mask_of_batch()) return !capture();
  return field_.shape == FieldShape::kScalar ? i < step_.twin.scalars.size() : step_.twin.has(i);
}

bool FieldJudge::judge() {
  if (field_.shape == FieldShape::kScalar) return judge_scalar();
  if (field_.shape == FieldShape::kSizes) return judge_sizes();
  if (is_mask_of_batch()) return judge_mask_of_batch();
  paged_ = paged_list_of(step_, field_);
  if (field_.shape == FieldShape::kList || field_.shape == FieldShape::kMask)
    rows_ = twin(field_.lens).shape[0] - 1;
  // A mask of one number is of that number throughout.
  const bool uniform =
      field_.shape == FieldShape::kMask && recorded_.data.size() == 1 && recorded_.shape.empty();
  if (!uniform) {
    judge_dtype();
    if (!judge_shape()) return left_out_.empty();
  }
  switch (field_.shape) {
    case FieldShape::kRows:
      return field_.of_last_page && paged_.is_paged() ? judge_last_pages() : judge_rows();
    case FieldShape::kSlots: return judge_slots();
    case FieldShape::kIndptr: return judge_indptr();
    case FieldShape::kEnds: return judge_ends();
    case FieldShape::kSteps: return judge_steps();
    case FieldShape::kList: return judge_list();
    case FieldShape::kMask: return judge_mask();
    default: return judge_table();
  }
}

/// A twin of the batch alone has no padding; one of a bucket has each request's rows first.
int64_t FieldJudge::real_rows() const {
  const ForwardBatch& batch = step_.rebuilt.batch;
  const int64_t rows = step_.twin.limits.rows;
  if (capture()) return 0;
  if (batch.size() == rows) return rows_;
  if (field_.shape == FieldShape::kIndptr) return (rows_ - 1) / rows * batch.size() + 1;
  if (field_.shape != FieldShape::kSlots) return rows_ / rows * batch.size();
  int64_t tokens = 0;
  for (int64_t i = 0; i < batch.size(); ++i) tokens += batch.q_len(i);
  return tokens * (batch.mode == ForwardMode::kDraftDecode ? batch.spec.topk : 1);
}

int64_t FieldJudge::least_padding(const BufferInfo& field) const {
  const Limits& limits = step_.twin.limits;
  if (field.most || field.most_of >= 0) return field.least;
  const bool tree = is_draft_tree(limits) || is_verify_tree(limits);
  if (tree) return 0;
  return field.of_padding ? step_.rebuilt.engine.padding_len : field.least;
}

int64_t FieldJudge::most_padding() const {
  const auto& said = step_.rebuilt.engine.max_padding_len;
  if (field_.of_padding && said) return *said;
  if (field_.most_of >= 0) return twin(field_.most_of).shape[2];
  const ModelConfig& model = step_.rebuilt.model;
  const bool of_keys = field_.of_padding && model.max_context_len > 0;
  const int64_t longest =
      int64_t{model.max_context_len} + std::max(model.num_draft_tokens, model.num_steps);
  return field_.most.value_or(of_keys ? longest : INT32_MAX);
}

void FieldJudge::fail(LawId law, std::optional<int64_t> row, std::optional<int64_t> col,
                      std::string expected, std::string got, std::string_view more_refs) {
  Finding f = make_finding(law, at(std::string(field_.recorded), row, col), std::move(expected),
                           std::move(got));
  for (std::string_view refs : {field_.refs, more_refs}) add_refs(refs, &f.refs);
  findings_->add(std::move(f));
}

/// A plan's page size in which its list is judged.
bool FieldJudge::is_planned_page() const {
  return field_.recorded.ends_with(".page_size") && paged_list_of(step_, field_).page == got(0);
}

bool FieldJudge::judge_scalar() {
  const auto i = static_cast<size_t>(field_.buffer);
  const int64_t want = step_.twin.scalars[i];
  judged("trace.shape");
  if (recorded_.data.size() != 1) {
    fail("trace.shape", {}, {}, "one number",
         "a list of " + number(static_cast<int64_t>(recorded_.data.size())));
    return true;
  }
  if (field_.unsaid) {
    judge_window(want);
    return true;
  }
  const LawId of_bound = capture() ? LawId("len.baked_q") : LawId("len.bound");
  judged(field_.rule == FieldRule::kConstant ? LawId("plan.argument")
         : field_.rule == FieldRule::kExact  ? LawId("len.kv_extent")
                                             : of_bound);
  if (field_.rule == FieldRule::kConstant && got(0) != want && !is_planned_page())
    fail("plan.argument", {}, {}, number(want), number(got(0)));
  if (field_.rule == FieldRule::kExact && got(0) != want)
    fail("len.kv_extent", {}, {}, number(want), number(got(0)));
  if (field_.rule == FieldRule::kExact || field_.rule == FieldRule::kConstant) return true;
  if (got(0) >= want) return true;
  fail(of_bound, {}, {}, ">= " + number(want), number(got(0)));
  return true;
}

/// Judges the wrapper of window layers. The twin has one where the keys of a list do not imply the
/// window; any other wrapper may hide no key.
void FieldJudge::judge_window(int64_t want) {
  judged("mask.window");
  // A graph's plan is that of any batch.
  const int64_t window = step_.rebuilt.window();
  int64_t longest = step_.rebuilt.graph ? INT32_MAX : 0;
  for (int64_t i = 0; i < step_.rebuilt.batch.size(); ++i)
    longest = std::max<int64_t>(longest, step_.rebuilt.batch.extent(i).kv_len);
  const bool hides_nothing =
      got(0) < 0 || got(0) + 1 >= longest || (window >= 0 && got(0) >= window);
  if (want >= 0 ? got(0) == want : hides_nothing) return;
  std::string right = number(want);  // -1: none
  if (want < 0 && window >= 0) right += ", or " + number(window);
  SlipWords why{"not the window"};
  if (got(0) < 0) why = slip("window.ignored");
  fail("mask.window", {}, {}, right, explained(got(0), why), why.refs);
}

/// Plain JSON says none.
void FieldJudge::judge_dtype() {
  const std::string& dtype = recorded_.dtype;
  const bool mask = field_.shape == FieldShape::kMask;
  if (field_.any_integers || field_.shape == FieldShape::kSlots || dtype.starts_with("py")) return;
  if (mask && (dtype == "bool" || dtype == "uint8")) return;
  const bool wide = field_.shape == FieldShape::kList && buffer().dtype == DType::kI64;
  judged("trace.dtype");
  const std::string want = mask ? "bool or uint8" : wide ? "int64" : "int32";
  if (dtype != want) fail("trace.dtype", {}, {}, want, dtype);
}

/// A twin may have bound more virtual requests than a step needs; the unused ones hold nothing.
bool FieldJudge::is_unused(int64_t row) const {
  if (!field_.of_virtual) return false;
  if (field_.shape == FieldShape::kIndptr) return row > 0 && expected(row) == expected(row - 1);
  const int lens = field_.shape == FieldShape::kTable ? field_.lens : field_.buffer;
  return value_of(step_.twin[static_cast<size_t>(lens)], row) == 0;
}

/// A replay runs all rows of its bucket. A twin of the batch alone has those of its requests.
/// Kernels that store take as many tokens as they have slots for.
int64_t FieldJudge::bucket_rows() const {
  const int64_t requests = step_.rebuilt.batch.size(), bucket = step_.rebuilt.rows;
  const bool slots = step_.rebuilt.open && field_.shape == FieldShape::kSlots;
  const bool exact = step_.twin.limits.rows == requests && !capture() && !slots;
  if (!exact || requests == 0 || bucket <= requests || field_.of_virtual) return 0;
  const int64_t ends = field_.shape == FieldShape::kIndptr ? 1 : 0;
  return (rows_ - ends) % requests == 0 ? (rows_ - ends) / requests * bucket + ends : 0;
}

/// As many rows as the twin's; a bucket may have more.
bool FieldJudge::judge_shape() {
  judged("trace.shape");
  const bool table = field_.shape == FieldShape::kTable;
  if (recorded_.shape.size() != (table ? 2 : 1)) {
    fail("trace.shape", {}, {}, table ? "a table [rows, columns]" : "a list",
         shape_text(recorded_.shape));
    return false;
  }
  if (field_.shape == FieldShape::kList || field_.shape == FieldShape::kMask) return true;
  const int64_t have = recorded_.rows();
  rows_ = buffer().shape[0] - (field_.shape == FieldShape::kSteps ? 1 : 0);
  // A capture's twin holds nothing yet.
  while (!capture() && rows_ > std::max<int64_t>(have, 0) && is_unused(rows_ - 1)) --rows_;
  const int64_t want = std::max(rows_, bucket_rows());
  if (have < want || (have > want && !step_.rebuilt.padded)) {
    const std::string least = step_.rebuilt.padded ? "at least " : "";
    fail("trace.shape", {}, {}, least + number(want) + (want > rows_ ? of_kernel() : ""),
         counted_rows(have) + " long");
    return false;
  }
  if (!table && stored() < rows_) return leave_out("left_out.not_stored", "not stored whole");
  return true;
}

std::string FieldJudge::counted_rows(int64_t rows) const {
  std::string what = "element";
  if (field_.shape == FieldShape::kTable) what = "row";
  if (field_.shape == FieldShape::kIndptr) what = "offset";
  return number(rows) + ' ' + what + (rows == 1 ? "" : "s");
}

/// ": the kernel runs 3 rows, as cu_seqlens_q has"
std::string FieldJudge::of_kernel() const {
  const TraceBatch& b = step_.rebuilt;
  const auto own = std::ranges::find_if(
      step_.line.roles, [&](const auto& role) { return role.second == b.rows_said_by; });
  const std::string by = own == step_.line.roles.end() ? b.rows_said_by : own->first;
  return ": the kernel runs " + number(b.rows) + " rows, as many as " +
         (by.empty() ? "the bucket" : by) + " has";
}

/// The first row that differs from the twin's; -1: none.
int64_t FieldJudge::first_wrong(Rows* rows) const {
  int64_t first = -1;
  for (int64_t r = 0; r < real_rows(); ++r) {
    if (expected(r) != got(r) && rows->wrong++ == 0) first = r;
  }
  return first;
}

bool FieldJudge::judge_rows() {
  const LawId of_row =
      field_.role == Role::kQueryLens ? LawId("len.q_extent") : LawId("len.kv_extent");
  judged(of_row, real_rows());
  judged("len.padding", std::max<int64_t>(0, stored() - real_rows()));
  Rows rows;
  if (const int64_t r = first_wrong(&rows); r >= 0) {
    int64_t live = real_rows();
    while (live > 0 && is_unused(live - 1)) --live;
    const SlipWords why = explain_length(step_, field_, recorded_, r, live);
    fail(of_row, r, {}, number(expected(r)), explained(got(r), why) + rows.more(), why.refs);
  }
  const int64_t least = least_padding(field_), most = most_padding();
  for (int64_t r = real_rows(); r < stored(); ++r) {
    if (got(r) >= least && got(r) <= most) continue;
    const std::string more = most == INT32_MAX ? "" : " and <= " + number(most);
    fail("len.padding", r, {}, ">= " + number(least) + more, number(got(r)));
    break;
  }
  return true;
}

/// The token whose live key lies in this slot of the pool; empty: none.
std::string FieldJudge::holder_of(int64_t slot) const {
  const ForwardBatch& batch = step_.rebuilt.batch;
  if (is_of_window() || step_.rebuilt.is_nobodys(slot)) return "";
  for (int64_t i = 0; i < batch.size(); ++i) {
    const auto columns = live_columns(batch, i);
    const auto at = std::ranges::find(columns, slot);
    if (at != columns.end()) return token_words(batch, i, at - columns.begin());
  }
  return "";
}

/// ", the slot of token 2 of request 0", or of no request of the step.
std::string FieldJudge::whose_slot(int64_t slot) const {
  if (is_of_window() || capture()) return "";
  if (const std::string whose = holder_of(slot); !whose.empty()) return ", the slot of " + whose;
  return slot < 0 ? ", no slot" : ", a slot of no request" + step_.rebuilt.end_of_pool(slot);
}

bool FieldJudge::judge_slots() {
  if (step_.rebuilt.batch.out_cache_loc.empty() && !capture())
    return leave_out("left_out.no_stores", "the line does not say where its tokens are stored");
  judged("slot.write", stored());
  Rows rows;
  if (const int64_t r = first_wrong(&rows); r >= 0)
    fail("slot.write", r, {}, number(expected(r)) + whose_slot(expected(r)),
         number(got(r)) + whose_slot(got(r)) + rows.more());
  for (int64_t r = real_rows(); r < stored(); ++r) {
    const auto slot = step_.rebuilt.engine.padding_slot;
    const bool fits = slot ? got(r) == *slot : got(r) >= -1 && got(r) <= last_slot();
    const std::string whose = fits ? holder_of(got(r)) : "";
    if (fits && whose.empty()) continue;
    const std::string want = slot            ? number(*slot)
                             : whose.empty() ? "a slot of the pool, or -1,"
                                             : "a slot of no live key,";
    fail("slot.write", r, {}, want + " for padding",
         number(got(r)) + (whose.empty() ? "" : ": the slot of " + whose));
    break;
  }
  return true;
}

/// Partial results have room for every row, and each row is as long as its kernel takes it for.
bool FieldJudge::judge_sizes() {
  const std::vector<int64_t>& sizes = recorded_.data;
  const size_t rank = buffer().shape.size();
  judged("trace.shape");
  if (recorded_.shape.size() != 1 || sizes.size() != rank) {
    fail("trace.shape", {}, {}, number(static_cast<int64_t>(rank)) + " sizes",
         number(static_cast<int64_t>(sizes.size())));
    return true;
  }
  if (sizes[0] < buffer().shape[0])
    fail("trace.shape", 0, {}, "at least " + number(buffer().shape[0]) + " rows", number(sizes[0]));
  for (size_t axis = 1; axis < rank; ++axis) {
    if (sizes[axis] != buffer().shape[axis])
      fail("trace.shape", static_cast<int64_t>(axis), {}, number(buffer().shape[axis]),
           number(sizes[axis]));
  }
  return true;
}

int64_t value_of(const Buffer& buffer, int64_t i) {
  if (buffer.dtype == DType::kU8) return reinterpret_cast<const uint8_t*>(buffer.data)[i];
  if (buffer.dtype == DType::kI64) return reinterpret_cast<const int64_t*>(buffer.data)[i];
  return reinterpret_cast<const int32_t*>(buffer.data)[i];
}

const RecordedField* TraceStep::recorded(std::string_view name) const {
  const auto at = line.expect.find(name);
  return at == line.expect.end() ? nullptr : &at->second;
}

const RecordedField* TraceStep::recorded_lens(int buffer) const {
  for (const BufferInfo& field : backend.buffers) {
    if (field.buffer != buffer || field.shape != FieldShape::kRows) continue;
    if (const RecordedField* f = recorded(field.recorded)) return f;
  }
  return nullptr;
}

const RecordedField* TraceStep::recorded_indptr(int buffer, int64_t count) const {
  for (const BufferInfo& field : backend.buffers) {
    if (field.buffer != buffer || field.shape != FieldShape::kIndptr) continue;
    const RecordedField* f = recorded(field.recorded);
    if (f != nullptr && f->shape.size() == 1 && f->rows() >= count && f->cols == f->rows())
      return f;
  }
  return nullptr;
}

std::optional<int64_t> TraceStep::request(int64_t row, int64_t rows) const {
  const int64_t requests = twin.limits.rows;
  if (requests == 0 || rows % requests != 0) return {};
  return row / (rows / requests);
}

FieldVerdict judge_field(const TraceStep& step, const BufferInfo& field,
                         const RecordedField& recorded, Status* findings) {
  return FieldJudge(step, field, recorded, findings).run();
}

}  // namespace shadowgraph
