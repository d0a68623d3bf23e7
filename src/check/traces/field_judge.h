// The judgement of one recorded field, by its shape. Lengths and slots are in trace_fields.cc,
// offsets, tables, lists and masks in files of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "check/traces/trace_fields.h"
#include "check/traces/trace_pages.h"
#include "check/traces/trace_words.h"
#include "core/laws.h"

namespace shadowgraph {

class FieldJudge {
 public:
  FieldJudge(const TraceStep& step, const BufferInfo& field, const RecordedField& recorded,
             Status* findings)
      : step_(step), field_(field), recorded_(recorded), findings_(findings) {}

  FieldVerdict run();

 private:
  static std::string number(int64_t n) { return std::to_string(n); }

  /// Empty: something reads it.
  std::string why_unread() const;
  bool is_there() const;
  bool judge();

  bool capture() const { return step_.rebuilt.capture; }
  const Buffer& twin(int buffer) const { return step_.twin[static_cast<size_t>(buffer)]; }
  bool is_of_window() const { return field_.of_window || field_.role == Role::kStoredInWindow; }
  const Buffer& buffer() const { return twin(field_.buffer); }
  /// What the twin has filled; everything behind is padding.
  int64_t real_rows() const;
  /// Elements of a vector that are stored.
  int64_t stored() const { return std::min(recorded_.rows(), recorded_.cols); }
  int64_t expected(int64_t i) const {
    const bool listed = paged_.is_paged() && field_.shape != FieldShape::kMask;
    return listed ? paged_.at(field_.shape, i) : value_of(buffer(), i);
  }
  int64_t got(int64_t i) const { return recorded_.data[static_cast<size_t>(i)]; }
  int64_t least_padding(const BufferInfo& field) const;
  int64_t most_padding() const;

  bool leave_out(LawId law, const std::string& why) {
    left_out_ = why;
    left_out_by_ = law.law().id;
    return false;
  }
  void fail(LawId law, std::optional<int64_t> row, std::optional<int64_t> col, std::string expected,
            std::string got, std::string_view more_refs = {});

  /// One finding a field: the first row that is wrong, and how many more.
  struct Rows {
    int64_t wrong = 0;
    std::string more() const {
      if (wrong < 2) return "";
      return " (and " + number(wrong - 1) + " more row" + (wrong > 2 ? "s)" : ")");
    }
  };

  bool is_planned_page() const;
  bool judge_scalar();
  void judge_window(int64_t want);
  void judge_dtype();
  bool is_unused(int64_t row) const;
  int64_t bucket_rows() const;
  bool judge_shape();
  std::string counted_rows(int64_t rows) const;
  std::string of_kernel() const;
  int64_t first_wrong(Rows* rows) const;
  bool judge_rows();
  std::string holder_of(int64_t slot) const;
  std::string whose_slot(int64_t slot) const;
  bool judge_slots();
  bool has_queries_of_width() const;
  bool lists_own_keys() const;
  CountPlace counted(int64_t row) const;
  std::string as_pages(const RecordedField& told, const Buffer& indptr) const;
  void report_count(int64_t end, bool of_width);
  bool judge_indptr();
  bool judge_ends();
  void judge_total();
  void judge_copy();
  bool judge_steps();
  bool judge_sizes();
  bool judge_last_pages();

  bool judge_table();
  int64_t least_len() const;
  int64_t recorded_len(const RecordedField* lens, int64_t row) const;
  bool has_columns(int64_t row, int64_t len, int64_t unit);
  int64_t first_live(int64_t row) const;
  void judge_live_rows(int64_t unit, const RecordedField* lens);
  bool is_never_allocated(int64_t slot) const;
  bool find_wrong(int64_t unit, int64_t row, int64_t len, TablePlace* place);
  int64_t unsaid_page_size() const;
  void report(TablePlace p, const std::string& more, int64_t recorded_len, int64_t unsaid_page);
  std::string before_window(const TablePlace& p) const;
  int64_t last_slot() const;
  std::string end_of_pool(int64_t page, int64_t unit) const;
  bool is_of_padding(int64_t page, int64_t unit) const;
  std::string padding_page(const std::string& what) const;
  void judge_padded_rows(int64_t unit, const RecordedField* lens);

  /// Elements [begin, end) of a list or a mask are a row's.
  struct Part {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };
  Part part_of(const Buffer& indptr, int64_t row) const;
  Part part_of(const RecordedField& indptr, int64_t row) const;
  Part listed_part(int64_t row) const;
  Part keys_of(const RecordedField& indptr, int64_t row) const;
  bool judge_list();
  bool find_wrong_slot(int64_t row, Part here, TablePlace* place);
  bool judge_padded_list(int64_t row, Part here);
  void report_slot(const TablePlace& p, const std::string& more, const std::string& pages);

  /// The pairs of one request in a mask.
  struct Pairs {
    int64_t begin = 0, queries = 0, keys = 0;
    int64_t size() const { return queries * keys; }
  };
  Pairs pairs_of(int64_t row, Part part, int64_t before) const;
  int64_t expected_bit(int64_t row, int64_t pair) const;
  bool is_mask_of_batch() const { return field_.shape == FieldShape::kMask && field_.buffer < 0; }
  bool judge_mask_of_batch();
  bool judge_mask();
  bool judge_mask_size(int64_t pairs);
  /// A pair that is wrong, of a row with so many keys; whether its query sees its key.
  struct PairPlace {
    int64_t row = 0, pair = 0, keys = 1;
    bool sees = false;
  };
  void report_pair(const PairPlace& p, const std::string& more);

  const TraceStep& step_;
  const BufferInfo& field_;
  const RecordedField& recorded_;
  Status* findings_;
  std::string left_out_;
  std::string_view left_out_by_;
  int64_t rows_ = 0;  // of the twin
  PagedList paged_;
};

}  // namespace shadowgraph
