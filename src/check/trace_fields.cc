#include "check/trace_fields.h"

#include <algorithm>
#include <utility>

#include "backends/rows.h"
#include "check/trace_words.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

std::string number(int64_t n) { return std::to_string(n); }

/// Of any recorded number: pages_for() is for lengths.
int64_t pages(int64_t tokens, int64_t unit) { return tokens / unit + (tokens % unit != 0); }

class FieldJudge {
 public:
  FieldJudge(const TraceStep& step, const Field& field, const RecordedField& recorded,
             Status* findings)
      : step_(step), field_(field), recorded_(recorded), findings_(findings) {}

  FieldVerdict run() {
    using enum FieldVerdict::Kind;
    if (is_unread()) return {kUnread};
    if (!is_there()) return {kAbsent, "the twin has no such buffer in this mode"};
    if (judge() || left_out_.empty()) return {kJudged};
    return {kLeftOut, left_out_};
  }

 private:
  /// A scalar of a replay is what its capture froze, and that what is baked alone.
  bool is_unread() const {
    if (field_.rule == FieldRule::kDead) return true;
    if (field_.shape != FieldShape::kScalar || !step_.rebuilt.graph) return false;
    return !capture() || field_.rule != FieldRule::kBaked;
  }
  bool is_there() const {
    if (field_.buffer < 0) return false;
    const auto i = static_cast<size_t>(field_.buffer);
    return field_.shape == FieldShape::kScalar ? i < step_.twin.scalars.size() : step_.twin.has(i);
  }

  bool judge() {
    if (field_.shape == FieldShape::kScalar) return judge_scalar();
    judge_dtype();
    if (!judge_shape()) return left_out_.empty();
    switch (field_.shape) {
      case FieldShape::kRows: return judge_rows();
      case FieldShape::kSlots: return judge_slots();
      case FieldShape::kIndptr: return judge_indptr();
      default: return judge_table();
    }
  }

  bool capture() const { return step_.rebuilt.capture; }
  const Buffer& buffer() const { return step_.twin[static_cast<size_t>(field_.buffer)]; }
  /// What the twin has filled; everything behind is padding.
  int64_t real_rows() const { return capture() ? 0 : rows_; }
  int64_t expected(int64_t i) const { return value_of(buffer(), i); }
  int64_t got(int64_t i) const { return recorded_.data[static_cast<size_t>(i)]; }

  int64_t least_padding(const Field& field) const {
    const Limits& limits = step_.twin.limits;
    const bool tree = is_draft_tree(limits) || is_verify_tree(limits);
    return tree ? 0 : field.least;
  }

  bool leave_out(const std::string& why) {
    left_out_ = why;
    return false;
  }

  void fail(LawId law, std::optional<int64_t> row, std::optional<int64_t> col, std::string expected,
            std::string got, std::string_view more_refs = {}) {
    Finding f = make_finding(law, at(std::string(field_.recorded), row, col), std::move(expected),
                             std::move(got));
    for (std::string_view refs : {field_.refs, more_refs}) add_refs(refs, &f.refs);
    findings_->add(std::move(f));
  }

  static void add_refs(std::string_view refs, std::vector<std::string>* to) {
    while (!refs.empty()) {
      const size_t end = std::min(refs.find(' '), refs.size());
      std::string ref(refs.substr(0, end));
      if (std::ranges::find(*to, ref) == to->end()) to->push_back(std::move(ref));
      refs.remove_prefix(std::min(end + 1, refs.size()));
    }
  }

  /// One finding a field: the first row that is wrong, and how many more.
  struct Rows {
    int64_t wrong = 0;
    std::string more() const {
      if (wrong < 2) return "";
      return " (and " + number(wrong - 1) + " more row" + (wrong > 2 ? "s)" : ")");
    }
  };

  bool judge_scalar() {
    const auto i = static_cast<size_t>(field_.buffer);
    const int64_t want = step_.twin.scalars[i];
    if (recorded_.data.size() != 1) {
      fail("trace.shape", {}, {}, "one number",
           number(static_cast<int64_t>(recorded_.data.size())));
      return true;
    }
    if (field_.rule == FieldRule::kExact || field_.rule == FieldRule::kConstant) {
      if (got(0) != want) fail("len.kv_extent", {}, {}, number(want), number(got(0)));
      return true;
    }
    if (got(0) >= want) return true;
    capture() ? fail("len.baked_q", {}, {}, ">= " + number(want), number(got(0)))
              : fail("len.bound", {}, {}, ">= " + number(want), number(got(0)));
    return true;
  }

  /// Plain JSON says none.
  void judge_dtype() {
    const std::string& dtype = recorded_.dtype;
    if (field_.any_integers || field_.shape == FieldShape::kSlots || dtype == "int32" ||
        dtype.starts_with("py"))
      return;
    fail("trace.dtype", {}, {}, "int32", dtype);
  }

  /// A twin may have bound more rows than a step needs (virtual batches): they hold nothing.
  bool is_unused(int64_t row) const {
    if (field_.shape == FieldShape::kIndptr) return row > 0 && expected(row) == expected(row - 1);
    const int lens = field_.shape == FieldShape::kTable ? field_.lens : field_.buffer;
    return value_of(step_.twin[static_cast<size_t>(lens)], row) == 0;
  }

  /// As many rows as the twin's; a bucket may have more.
  bool judge_shape() {
    const size_t rank = field_.shape == FieldShape::kTable ? 2 : 1;
    if (recorded_.shape.size() != rank) {
      fail("trace.shape", {}, {}, number(static_cast<int64_t>(rank)) + " axes",
           number(static_cast<int64_t>(recorded_.shape.size())));
      return false;
    }
    const int64_t have = recorded_.rows();
    rows_ = buffer().shape[0];
    // A capture's twin holds nothing yet.
    while (!capture() && rows_ > std::max<int64_t>(have, 0) && is_unused(rows_ - 1)) --rows_;
    const int64_t want = rows_;
    if (have < want || (have > want && !step_.rebuilt.graph)) {
      fail("trace.shape", {}, {}, (step_.rebuilt.graph ? "at least " : "") + number(want) + " rows",
           number(have));
      return false;
    }
    if (rank == 1 && recorded_.cols < recorded_.rows()) return leave_out("not stored whole");
    return true;
  }

  /// The first row that differs from the twin's; -1: none.
  int64_t first_wrong(Rows* rows) const {
    int64_t first = -1;
    for (int64_t r = 0; r < real_rows(); ++r) {
      if (expected(r) != got(r) && rows->wrong++ == 0) first = r;
    }
    return first;
  }

  bool judge_rows() {
    Rows rows;
    if (const int64_t r = first_wrong(&rows); r >= 0) {
      const Explanation why = explain_length(step_, buffer(), r, got(r));
      fail("len.kv_extent", r, {}, number(expected(r)),
           number(got(r)) + (why.words.empty() ? "" : ": " + why.words) + rows.more(), why.refs);
    }
    for (int64_t r = real_rows(); r < recorded_.rows(); ++r) {
      if (got(r) >= least_padding(field_)) continue;
      fail("len.padding", r, {}, ">= " + number(least_padding(field_)), number(got(r)));
      break;
    }
    return true;
  }

  bool judge_slots() {
    if (step_.rebuilt.batch.out_cache_loc.empty() && !capture())
      return leave_out("the line does not say where its tokens are stored");
    Rows rows;
    if (const int64_t r = first_wrong(&rows); r >= 0)
      fail("slot.write", r, {}, number(expected(r)), number(got(r)) + rows.more());
    for (int64_t r = real_rows(); r < recorded_.rows(); ++r) {
      if (got(r) == 0) continue;
      fail("slot.write", r, {}, "0 for padding", number(got(r)));
      break;
    }
    return true;
  }

  bool judge_indptr() {
    const bool constant = field_.rule == FieldRule::kConstant;
    const int64_t real = capture() ? (constant ? rows_ : 1) : real_rows();
    if (got(0) != 0) {
      fail("len.indptr_first", 0, {}, "0", number(got(0)));
      return true;
    }
    for (int64_t r = 1; r < recorded_.rows(); ++r) {
      if (r < real && expected(r) != got(r)) {
        const int64_t want = expected(r) - expected(r - 1);
        fail("len.q_extent", r, {}, number(expected(r)) + " (" + number(want) + " more)",
             number(got(r)) + " after " + number(got(r - 1)));
        return true;
      }
      if (r >= real && got(r) < got(r - 1)) {
        fail("len.indptr_monotone", r, {}, ">= " + number(got(r - 1)), number(got(r)));
        return true;
      }
    }
    const int64_t tokens = step_.rebuilt.tokens(), last = recorded_.rows() - 1;
    if (field_.of_queries && tokens > 0 && last >= real && got(last) > tokens)
      fail("len.total", last, {}, "<= " + number(tokens) + " query tokens of the graph",
           number(got(last)) + ": the kernel reads and writes behind them");
    return true;
  }

  bool judge_table() {
    const int64_t unit = field_.pages ? step_.rebuilt.model.page_size : 1;
    const RecordedField* lens = step_.recorded_lens(field_.lens);
    judge_live_rows(unit, lens);
    judge_padded_rows(unit, lens);
    return left_out_.empty();
  }

  int64_t least_len() const {
    const auto lens = std::ranges::find_if(step_.backend.fields, [&](const Field& f) {
      return f.shape == FieldShape::kRows && f.buffer == field_.lens;
    });
    return lens == step_.backend.fields.end() ? 0 : least_padding(*lens);
  }

  int64_t recorded_len(const RecordedField* lens, int64_t row) const {
    if (lens == nullptr || row >= static_cast<int64_t>(lens->data.size())) return 0;
    return lens->data[static_cast<size_t>(row)];
  }

  bool has_columns(int64_t row, int64_t len, int64_t unit) {
    if (len <= 0 || pages(len, unit) <= recorded_.width()) return true;
    fail("table.capacity", row, recorded_.width(),
         ">= " + number(pages(len, unit)) + " columns for " + number(len) + " keys",
         number(recorded_.width()) + " columns: the kernel reads on into the next row");
    return false;
  }

  void judge_live_rows(int64_t unit, const RecordedField* lens) {
    Rows rows;
    bool room = true;
    TablePlace first;
    const Buffer& twin_lens = step_.twin[static_cast<size_t>(field_.lens)];
    for (int64_t r = 0; r < real_rows(); ++r) {
      const int64_t len = value_of(twin_lens, r);
      room = room && has_columns(r, std::max(len, recorded_len(lens, r)), unit);
      TablePlace place;
      if (find_wrong(unit, r, len, &place) && rows.wrong++ == 0) first = place;
    }
    if (rows.wrong > 0) report(first, rows.more(), recorded_len(lens, first.row));
  }

  /// Both tables are followed to slots, token by token.
  bool find_wrong(int64_t unit, int64_t row, int64_t len, TablePlace* place) {
    const int64_t twin_unit = step_.twin.units[static_cast<size_t>(field_.buffer)];
    const int64_t columns = buffer().shape[1];
    for (int64_t t = 0; t < len; ++t) {
      const int64_t c = t / unit;
      if (c >= recorded_.width()) return false;  // table.capacity
      if (c >= recorded_.cols) return leave_out("live columns are not stored");
      const int64_t got = recorded_.data[static_cast<size_t>(row * recorded_.cols + c)];
      const int64_t slot = expected(row * columns + t / twin_unit) * twin_unit + t % twin_unit;
      if (slot >= 0 && got == slot / unit && t % unit == slot % unit) continue;
      *place = {field_.buffer, unit, row, t, slot, got};
      return true;
    }
    return false;
  }

  void report(const TablePlace& p, const std::string& more, int64_t recorded_len) {
    Explanation why = explain_table(step_, p);
    if (recorded_len > 0 && p.token >= recorded_len) {
      why = {"behind the recorded length " + number(recorded_len) + ", so not written in this step",
             "fa.I-66"};
    }
    std::string want = p.unit > 1 ? "page " + number(p.expected / p.unit) + ", slot " : "slot ";
    want += number(p.expected) + " of token " + number(p.token);
    const std::string got = number(p.got) + ": " + why.words + more;
    why.wrong_unit ? fail("table.unit", p.row, p.token / p.unit, want, got, why.refs)
                   : fail("table.slot", p.row, p.token / p.unit, want, got, why.refs);
  }

  /// Safe to run: columns are there, and lead into the pool as far as it is known.
  /// Where lengths are not recorded, a row has the fewest keys that it may have.
  void judge_padded_rows(int64_t unit, const RecordedField* lens) {
    const auto slots = static_cast<int64_t>(step_.rebuilt.batch.full_to_swa.size());
    for (int64_t r = real_rows(); r < recorded_.rows(); ++r) {
      const int64_t len = lens != nullptr ? recorded_len(lens, r) : least_len();
      if (!has_columns(r, len, unit)) return;
      const int64_t live = std::min(pages(std::max<int64_t>(0, len), unit), recorded_.cols);
      for (int64_t c = 0; c < live; ++c) {
        const int64_t page = recorded_.data[static_cast<size_t>(r * recorded_.cols + c)];
        if (page >= 0 && (slots == 0 || page <= (slots - 2) / unit)) continue;
        fail("table.page_id", r, c, "a page of the pool in padding, too", number(page));
        return;
      }
    }
  }

  const TraceStep& step_;
  const Field& field_;
  const RecordedField& recorded_;
  Status* findings_;
  std::string left_out_;
  int64_t rows_ = 0;  // of the twin
};

}  // namespace

int64_t value_of(const Buffer& buffer, int64_t i) {
  if (buffer.dtype == DType::kI64) return reinterpret_cast<const int64_t*>(buffer.data)[i];
  return reinterpret_cast<const int32_t*>(buffer.data)[i];
}

const RecordedField* TraceStep::recorded(std::string_view name) const {
  const auto at = line.expect.find(name);
  return at == line.expect.end() ? nullptr : &at->second;
}

const RecordedField* TraceStep::recorded_lens(int buffer) const {
  for (const Field& field : backend.fields) {
    if (field.buffer != buffer || field.shape != FieldShape::kRows) continue;
    if (const RecordedField* f = recorded(field.recorded)) return f;
  }
  return nullptr;
}

std::optional<int64_t> TraceStep::request(int64_t row, int64_t rows) const {
  const int64_t requests = rebuilt.batch.size();
  if (requests == 0 || rows % requests != 0) return {};
  return row / (rows / requests);
}

FieldVerdict judge_field(const TraceStep& step, const Field& field, const RecordedField& recorded,
                         Status* findings) {
  return FieldJudge(step, field, recorded, findings).run();
}

}  // namespace shadowgraph
