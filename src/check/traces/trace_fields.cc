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
  if (!is_there())
    return {kAbsent,
            step_.backend.name == "laws" ? "in this mode nothing says what it should be"
                                         : "the twin has no such buffer in this mode",
            LawId("left_out.no_buffer").law().id};
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
    fail("trace.shape", {}, {}, "one number", number(static_cast<int64_t>(recorded_.data.size())));
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
int64_t FieldJudge::bucket_rows() const {
  const int64_t requests = step_.rebuilt.batch.size(), bucket = step_.rebuilt.rows;
  const bool exact = step_.twin.limits.rows == requests && !capture();
  if (!exact || requests == 0 || bucket <= requests || field_.of_virtual) return 0;
  const int64_t ends = field_.shape == FieldShape::kIndptr ? 1 : 0;
  return (rows_ - ends) % requests == 0 ? (rows_ - ends) / requests * bucket + ends : 0;
}

/// As many rows as the twin's; a bucket may have more.
bool FieldJudge::judge_shape() {
  judged("trace.shape");
  const size_t rank = field_.shape == FieldShape::kTable ? 2 : 1;
  if (recorded_.shape.size() != rank) {
    fail("trace.shape", {}, {}, number(static_cast<int64_t>(rank)) + " axes",
         number(static_cast<int64_t>(recorded_.shape.size())));
    return false;
  }
  if (field_.shape == FieldShape::kList || field_.shape == FieldShape::kMask) return true;
  const int64_t have = recorded_.rows();
  rows_ = buffer().shape[0] - (field_.shape == FieldShape::kSteps ? 1 : 0);
  // A capture's twin holds nothing yet.
  while (!capture() && rows_ > std::max<int64_t>(have, 0) && is_unused(rows_ - 1)) --rows_;
  const int64_t want = std::max(rows_, bucket_rows());
  if (have < want || (have > want && !step_.rebuilt.padded)) {
    fail("trace.shape", {}, {}, (step_.rebuilt.padded ? "at least " : "") + number(want) + " rows",
         number(have));
    return false;
  }
  if (rank == 1 && stored() < rows_) return leave_out("left_out.not_stored", "not stored whole");
  return true;
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

bool FieldJudge::judge_slots() {
  if (step_.rebuilt.batch.out_cache_loc.empty() && !capture())
    return leave_out("left_out.no_stores", "the line does not say where its tokens are stored");
  judged("slot.write", stored());
  Rows rows;
  if (const int64_t r = first_wrong(&rows); r >= 0)
    fail("slot.write", r, {}, number(expected(r)), number(got(r)) + rows.more());
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

/// A graph of draft extends may have its width of queries for each row: those behind a row's own
/// are padding, which nobody reads.
bool FieldJudge::has_queries_of_width() const {
  const TraceBatch& b = step_.rebuilt;
  if (!field_.of_queries || !b.graph || !is_draft_extend(b.batch.mode, DraftExtendV2::kIncluded))
    return false;
  for (int64_t r = 0; r < stored(); ++r) {
    if (got(r) != r * b.width) return false;
  }
  return true;
}

/// Queries stand at the end of lists that hold the step's own keys, and behind all others.
bool FieldJudge::lists_own_keys() const {
  const ForwardBatch& batch = step_.rebuilt.batch;
  bool any = false, own = false;
  for (const BufferInfo& field : step_.backend.buffers) {
    if (field.shape != FieldShape::kList || !step_.twin.has(static_cast<size_t>(field.buffer)))
      continue;
    any = true;
    for (int64_t i = 0; i < batch.size(); ++i)
      own = own || part_of(twin(field.lens), i).size() > batch.extent(i).prefix_len;
  }
  return own || !any;
}

/// Keys of a row, as the offsets count them, and of all rows as they should.
CountPlace FieldJudge::counted(int64_t row) const {
  CountPlace place{row, rows_ - 1, paged_.keys, got(row + 1) - got(row)};
  if (paged_.is_paged()) place.got = paged_.keys_read(row, place.got);
  for (int64_t r = 0; !paged_.is_paged() && r + 1 < real_rows(); ++r)
    place.expected.push_back(expected(r + 1) - expected(r));
  return place;
}

void FieldJudge::report_count(int64_t end, bool of_width) {
  const int64_t want = expected(end) - expected(end - 1), begin = got(end - 1);
  SlipWords why;
  if (of_width)
    why = slip("queries.of_width");
  else if (!field_.of_queries)
    why = explain_count(step_, counted(end - 1));
  std::string more = number(want) + " more";
  if (paged_.is_paged()) {
    more += ": pages of " + number(paged_.keys[static_cast<size_t>(end - 1)]) + " keys";
    std::string read = paged_.reading(end - 1, got(end) - begin);
    if (!read.empty() && !why.words.empty()) read += ": ";
    why.words.insert(0, read);
  }
  fail("len.q_extent", end, {}, number(expected(end)) + " (" + more + ")",
       number(got(end)) + " after " + explained(begin, why), why.refs);
}

bool FieldJudge::judge_indptr() {
  const bool constant = field_.rule == FieldRule::kConstant;
  const int64_t real = capture() ? (constant ? rows_ : 1) : real_rows();
  const bool of_width = has_queries_of_width();
  if (of_width && !capture() && !lists_own_keys()) return true;
  judged("len.indptr_first");
  judged("len.q_extent", std::min(real, stored()) - 1);
  judged("len.indptr_monotone", std::max<int64_t>(0, stored() - real));
  if (got(0) != 0) {
    fail("len.indptr_first", 0, {}, "0", number(got(0)));
    return true;
  }
  for (int64_t r = 1; r < stored(); ++r) {
    if (r < real && expected(r) != got(r)) {
      report_count(r, of_width);
      return true;
    }
    if (r >= real && got(r) < got(r - 1)) {
      fail("len.indptr_monotone", r, {}, ">= " + number(got(r - 1)), number(got(r)));
      return true;
    }
  }
  judge_total();
  judge_copy();
  return true;
}

/// The first is 0, and not there.
bool FieldJudge::judge_ends() {
  judged("len.q_extent", real_rows());
  judged("len.indptr_monotone", stored() - real_rows());
  for (int64_t r = 0, want = 0, end = 0; r < stored(); end = got(r++)) {
    if (r < real_rows() && got(r) != expected(r)) {
      fail("len.q_extent", r, {},
           number(expected(r)) + " (" + number(expected(r) - want) + " more)",
           number(got(r)) + " after " + number(end));
      return true;
    }
    if (r < real_rows()) want = expected(r);
    if (got(r) >= end) continue;
    fail("len.indptr_monotone", r, {}, ">= " + number(end), number(got(r)));
    return true;
  }
  judge_total();
  return true;
}

/// Padding ends inside a graph's query tokens.
void FieldJudge::judge_total() {
  const int64_t tokens = step_.rebuilt.tokens(), last = stored() - 1;
  if (!field_.of_queries || tokens == 0) return;
  judged("len.total");
  if (last >= 0 && got(last) > tokens)
    fail("len.total", last, {}, "<= " + number(tokens) + " query tokens of the graph",
         number(got(last)) + ": the kernel reads and writes behind them");
}

/// The host plans what the device reads: copies of one array are equal, padding too.
void FieldJudge::judge_copy() {
  const RecordedField* told = step_.recorded_indptr(field_.buffer, rows_);
  if (told == nullptr) return;
  for (int64_t r = real_rows(); r < std::min(stored(), told->cols); ++r) {
    const int64_t want = told->data[static_cast<size_t>(r)];
    if (got(r) == want) continue;
    fail("len.q_extent", r, {}, number(want) + ", as the other copy of these offsets",
         number(got(r)));
    return;
  }
}

/// The steps of padding are those of the recorded offsets.
bool FieldJudge::judge_steps() {
  const RecordedField* told = step_.recorded_indptr(field_.buffer, rows_ + 1);
  const int64_t rows = told == nullptr ? real_rows() : std::min(stored(), told->cols - 1);
  judged("plan.argument", rows);
  for (int64_t r = 0; r < rows; ++r) {
    const Part part = r < real_rows() ? part_of(buffer(), r) : keys_of(*told, r);
    if (part.size() < 0 || got(r) == part.size()) continue;  // below 0: the offsets' finding
    fail("plan.argument", r, {}, number(part.size()) + ", as the offsets step", number(got(r)));
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
