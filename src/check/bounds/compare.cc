#include "check/bounds/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>

#include "check/bounds/error_bound.h"
#include "check/bounds/rounding.h"
#include "core/float_formats.h"
#include "oracle/oracle.h"
#include "oracle/sparse_oracle.h"

namespace shadowgraph {
namespace {

/// Every key has a bias that is no number of f32 to base 2.
bool is_beyond_base_2(const OracleRow& row) {
  const double most = largest_finite(DType::kF32) / kLog2E;
  return row.added.size() > 0 && (row.logits < -most).all();
}

std::string decimal(double value, const char* format = "%.9g") {
  char text[40];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

double load_double(const ConstTensorView& t, int64_t offset) {
  if (t.dtype != DType::kF64) return load_float(t.data, t.dtype, offset);
  double value;
  std::memcpy(&value, t.data + offset * 8, 8);
  return value;
}

/// Error over bound. What is not finite must agree exactly, an infinite bound asks for a number;
/// and an infinite result stands for everything past `largest`, the largest finite of its type.
double ratio_of(double got, double expected, double bound, double largest) {
  if (!std::isfinite(expected)) {
    const bool same = std::isnan(expected) ? std::isnan(got) : got == expected;
    return same ? 0 : kInfinity;
  }
  if (got == expected) return 0;
  if (!std::isfinite(bound)) return std::isfinite(got) ? 0 : kInfinity;
  if (std::isinf(got) && std::signbit(got) == std::signbit(expected))
    got = std::copysign(std::max(largest, std::abs(expected)), got);
  return std::isfinite(got) ? std::abs(got - expected) / bound : kInfinity;
}

/// The worst element under one law, and how many violate it.
struct Worst {
  double ratio = 0, got = 0, expected = 0, bound = 0;
  const char* field = "";
  int64_t row = 0, head = 0, dim = 0, violations = 0, seen = 0;  // dim: of out

  void see(const Worst& one) {
    ++seen;
    if (one.ratio > 1) ++violations;
    if (!(one.ratio > ratio)) return;
    const int64_t all = seen, bad = violations;
    *this = one;
    seen = all, violations = bad;
  }

  void report(LawId law, const std::string& prefix, const ResultAxes& axes, Status& findings,
              const char* why = "") const {
    judged(law, seen);
    if (violations == 0) return;
    std::string expected_text = decimal(expected);
    if (bound > 0) expected_text += " +- " + decimal(bound, "%.3g");
    if (std::isnan(expected)) expected_text += ", as q, keys or values of the row hold a NaN";
    expected_text += why;
    std::string got_text = decimal(got) + " (";
    if (std::isfinite(ratio)) got_text += decimal(ratio, "%.3g") + " times the bound; ";
    // Rows without keys are judged by out and LSE together.
    got_text += std::to_string(violations) + " of " + std::to_string(seen) + " judged values of " +
                (*why == 0 ? field : "such rows") + ")";
    const std::vector<int64_t> index =
        field == std::string_view("out") ? axes.out(row, head, dim) : axes.lse(row, head);
    findings.add(make_finding(law, at(prefix + field, index), expected_text, got_text));
  }
};

class Judge {
 public:
  Judge(DType q_type, const Result& result, const Arithmetic& arithmetic,
        const JudgeOptions& options)
      : q_type_(q_type), result_(result), arithmetic_(arithmetic), options_(options) {}

  void see(const OracleRow& row) {
    ++judgement_.rows;
    if (row.empty()) {
      ++judgement_.empty_rows;
      see_empty(row);
      return;
    }
    nan_rows_ += row.out.isNaN().any();
    if (options_.any_for_nan && row.out.hasNaN()) return;
    if (options_.exact) return see_exact(row);
    const DType out_type = result_.out.defined() ? result_.out.dtype : DType::kF32;
    const ErrorBound bound = error_bound(row, of_row(row), q_type_, out_type, result_.lse_sink);
    for (Eigen::Index i = 0; result_.out.defined() && i < row.out.size(); ++i) {
      out_.see(out_at(row, i, row.out[i], bound.out[i]));
    }
    if (result_.lse.defined()) lse_.see(lse_at(row, bound.lse));
    if (result_.max_logits.defined()) top_.see(top_at(row, row.logits.maxCoeff(), bound.top));
    if (!unbounded(row, bound)) return;
    ++judgement_.unbounded_rows;
    if (!is_beyond_base_2(row)) ++boundable_rows_;
  }

  Judgement finish() {
    const LawId empty_law = options_.recorded ? options_.bound : LawId("num.empty_row");
    if (options_.bounded && boundable_rows_ > 0) {
      judgement_.findings.add(
          make_finding(options_.bound, at(options_.prefix + "out"), "a finite bound for every row",
                       "an infinite one for " + std::to_string(boundable_rows_) + " rows"));
    }
    const auto report = [&](const Worst& worst, LawId law, const char* why = "") {
      worst.report(law, options_.prefix, result_.axes, judgement_.findings, why);
    };
    report(out_, options_.bound);
    report(lse_, options_.lse_bound);
    report(top_, options_.lse_bound);
    report(empty_, empty_law, ", as the row sees no key");
    for (const auto& [mark, count] : marks_) {
      judgement_.notes.push_back(std::to_string(count) + " rows that see no key have " + mark);
    }
    if (options_.recorded && nan_rows_ > 0)
      judgement_.notes.push_back(std::to_string(nan_rows_) +
                                 (nan_rows_ == 1 ? " row is" : " rows are") +
                                 " NaN in float64, too: q, keys or values hold a NaN");
    judgement_.error_over_bound = out_.ratio;
    judgement_.lse_error_over_bound = std::max(lse_.ratio, top_.ratio);
    return std::move(judgement_);
  }

 private:
  /// Keys that win together (copies of one) weigh 1 / n each, less a trace of the others: of two
  /// the mean is rounded once, as the oracle's; of more it is not.
  void see_exact(const OracleRow& row) {
    if (row.weights.maxCoeff() < 0.4) return;
    for (Eigen::Index i = 0; result_.out.defined() && i < row.out.size(); ++i)
      out_.see(out_at(row, i, double{static_cast<float>(row.out[i])}, 0));
  }
  Arithmetic of_row(const OracleRow& row) const {
    Arithmetic a = arithmetic_;
    if (!options_.parts.empty()) a.parts = options_.parts[static_cast<size_t>(row.row)];
    return a;
  }
  bool unbounded(const OracleRow& row, const ErrorBound& bound) const {
    if (result_.out.defined() && (row.out.isFinite() && !bound.out.isFinite()).any()) return true;
    return result_.lse.defined() && std::isfinite(row.lse) && !std::isfinite(bound.lse);
  }
  Worst out_at(const OracleRow& row, int64_t i, double expected, double bound) const {
    const double got = load_double(result_.out, result_.out.offset(row.row, row.head, i));
    const double largest = largest_finite(result_.out.dtype);
    return {
        ratio_of(got, expected, bound, largest), got, expected, bound, "out", row.row, row.head, i};
  }
  Worst lse_at(const OracleRow& row, double bound) const {
    const double to_natural = result_.lse_base == LseBase::kLog2 ? kLn2 : 1;
    const double got = stored_lse(row) * to_natural, expected = row.lse_as(result_.lse_sink);
    const double largest = largest_finite(result_.lse.dtype);
    return {
        ratio_of(got, expected, bound, largest), got, expected, bound, "lse", row.row, row.head};
  }
  Worst top_at(const OracleRow& row, double expected, double bound) const {
    const ConstTensorView& t = result_.max_logits;
    const double got = load_double(t, t.offset(row.row, row.head));
    return {ratio_of(got, expected, bound, largest_finite(t.dtype)),
            got,
            expected,
            bound,
            "max_logits",
            row.row,
            row.head};
  }
  double stored_lse(const OracleRow& row) const {
    return load_double(result_.lse, result_.lse.offset(row.row, row.head));
  }

  /// out 0; LSE -inf, or the sink's logit where the LSE counts it. A recorded kernel may have its
  /// own mark for "no key": an LSE that is NaN, or has no mass in f32.
  void see_empty(const OracleRow& row) {
    const EmptyRowMark& mark = options_.empty_mark;
    for (Eigen::Index i = 0; result_.out.defined() && i < row.out.size(); ++i) {
      const Worst element = out_at(row, i, 0, 0);
      if (mark.nan_out && std::isnan(element.got)) {
        note_mark("out nan");
        break;
      }
      empty_.see(element);
    }
    if (result_.max_logits.defined()) empty_.see(top_at(row, -kInfinity, 0));
    if (!result_.lse.defined()) return;
    const double sink = row.lse_as(result_.lse_sink);
    const int roundings = arithmetic_.scale_roundings + arithmetic_.lse_roundings;
    const double bound = std::isinf(sink) ? 0 : roundings * arithmetic_.u_scale * std::abs(sink);
    Worst lse = lse_at(row, bound);
    const bool no_mass = !std::isfinite(lse.got) || std::exp(static_cast<float>(lse.got)) == 0;
    const bool exact = mark.lse == -kInfinity;  // with a sink that counts, its logit
    if (options_.recorded && mark.lse && (!exact || std::isinf(sink))) {
      lse.got = stored_lse(row), lse.expected = static_cast<float>(*mark.lse);
      const bool both_nan = std::isnan(lse.got) && std::isnan(lse.expected);
      lse.ratio = both_nan || lse.got == lse.expected ? 0 : kInfinity;
    } else if (options_.recorded && !mark.lse && lse.ratio > 1 && no_mass) {
      note_mark("lse " + decimal(stored_lse(row), "%.2g"));
      return;
    }
    empty_.see(lse);
  }
  void note_mark(const std::string& mark) {
    ++judgement_.marked_rows;
    ++marks_[mark];
  }

  DType q_type_;
  const Result& result_;
  const Arithmetic& arithmetic_;
  const JudgeOptions& options_;
  Judgement judgement_;
  Worst out_, lse_, top_, empty_;
  std::map<std::string, int64_t> marks_;
  int64_t nan_rows_ = 0;        // whose right result is NaN
  int64_t boundable_rows_ = 0;  // without a bound, though some logit is a number to base 2
};

/// What of the arithmetic a call uses (Arithmetic::in_order).
void specialise(const PagedAttention& call, Arithmetic& a) {
  if (a.in_order && !call.cu_seqlens_q.empty()) a.split = 0;
}
void specialise(const RaggedAttention&, Arithmetic& a) {
  if (a.in_order) a.split = 0;
}
template <LseBase Base>
void specialise(const MergeStates<Base>&, Arithmetic& a) {
  if (a.in_order) a.split = 0, a.lanes = 1;
}

void specialise(const SparseAttention&, Arithmetic&) {}

template <class Call>
void visit_rows(const Call& call, const Arithmetic&, const VisitRow& visit) {
  for_each_row(call, visit);
}
/// Others begin a tile at every so many entries of a list.
void visit_rows(const SparseAttention& call, const Arithmetic& a, const VisitRow& visit) {
  for_each_row(call, a.in_order ? SparseKeys::kSeen : SparseKeys::kListed, visit);
}

template <class Call>
void specialise(const DualChunkCall<Call>& call, Arithmetic& a) {
  specialise(call.call, a);
}

template <class Call>
Judgement judge_call(const Call& call, DType q_type, const Result& result, Arithmetic arithmetic,
                     const JudgeOptions& options) {
  specialise(call, arithmetic);
  Judge judge(q_type, result, arithmetic, options);
  visit_rows(call, arithmetic, [&](const OracleRow& row) { judge.see(row); });
  return judge.finish();
}

DType q_type_of(const PagedAttention& call) { return call.q.dtype; }
DType q_type_of(const RaggedAttention& call) { return call.q.dtype; }
DType q_type_of(const SparseAttention& call) { return call.q.dtype; }
template <class Call>
DType q_type_of(const DualChunkCall<Call>& call) {
  return call.queries.q[0].dtype;
}
template <LseBase Base>
DType q_type_of(const MergeStates<Base>& call) {
  return call.v.dtype;
}

}  // namespace

Judgement judge(const AnyCall& call, const Result& result, const Arithmetic& arithmetic,
                const JudgeOptions& options) {
  return std::visit(
      [&](const auto& c) { return judge_call(c, q_type_of(c), result, arithmetic, options); },
      call);
}

Judgement judge(const MergeStates<LseBase::kNatural>& call, const Result& result,
                const Arithmetic& arithmetic, const JudgeOptions& options) {
  return judge_call(call, q_type_of(call), result, arithmetic, options);
}

Judgement judge(const DualChunkCall<PagedAttention>& call, const Result& result,
                const Arithmetic& arithmetic, const JudgeOptions& options) {
  return judge_call(call, q_type_of(call), result, arithmetic, options);
}

Judgement judge(const DualChunkCall<RaggedAttention>& call, const Result& result,
                const Arithmetic& arithmetic, const JudgeOptions& options) {
  return judge_call(call, q_type_of(call), result, arithmetic, options);
}

}  // namespace shadowgraph
