// What a reading of a call gives, held against what was really computed: one query row and head at
// a time, by the oracle, with the derived bound. Tested by tests/check/diagnose_test.cc.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <optional>
#include <vector>

#include "check/bounds/error_bound.h"
#include "check/bounds/rounding.h"
#include "check/mistakes/diagnose.h"
#include "check/mistakes/row_sums.h"
#include "oracle/oracle.h"
#include "oracle/oracle_rows.h"

namespace shadowgraph {

/// A query row of one head.
struct HeadRow {
  int64_t row;    // of out and lse
  int32_t query;  // of the request
  int32_t head;
};

class ReadingResults {
 public:
  /// All live longer.
  ReadingResults(const Scene& scene, const Result& result, const Arithmetic& arithmetic,
                 const DiagnoseOptions& options)
      : scene_(scene), result_(result), arithmetic_(arithmetic), options_(options) {}

  /// Does the reading give the cell's result? Where nothing is known of it: no.
  bool agrees(const Reading& reading, const HeadRow& cell) const;
  /// A request's row by the right reading, which lives longer: sums over its keys, and what was
  /// computed, of out the elements that are furthest from the right ones.
  struct Looked {
    RowSums sums;
    Got got;
  };
  Looked look(size_t request, const Reading& right, const HeadRow& cell) const;

 private:
  struct Expected {
    Eigen::ArrayXd out, out_bound;
    double lse = 0, lse_bound = 0, lse_with_sink = 0;
    bool empty = false;
  };

  std::vector<int32_t> seen_places(const Reading& reading, const HeadRow& cell) const;
  /// The sum that terms add to a logit.
  struct Added {
    AddedTerms own, other;  // Reading::other
    bool hides = false;
    double sum() const { return hides ? -kInfinity : own.sum + other.sum; }
  };
  static Added added_at(const Reading& reading, const HeadRow& cell, int32_t place);
  /// Puts the soft cap behind the other terms, and what else is added behind it.
  static void cap_last(const Reading& reading, const HeadRow& cell,
                       const std::vector<int32_t>& places, OracleRow& row);
  /// The parameters of a row, of these places.
  static AttentionParams params_of(const Reading& reading, const HeadRow& cell, int32_t kv_head,
                                   const std::vector<int32_t>* places, std::vector<float>* bias);
  /// The oracle's row over these keys, of these places: null where it is to have no bias of places.
  /// False where nothing is known of one of the keys.
  bool visit_row(const Reading& reading, const HeadRow& cell, std::vector<int32_t> tokens,
                 const std::vector<int32_t>* places, const VisitRow& visit) const;
  /// The row as the oracle's, with other values, and with what weighs without being a key.
  std::optional<Expected> reread(const Reading& reading, const HeadRow& cell,
                                 const std::vector<int32_t>& places, OracleRow row) const;
  std::vector<Eigen::Index> furthest(const Eigen::ArrayXd& right, const HeadRow& cell) const;
  /// None where nothing is known of one of the places.
  std::optional<Expected> attend(const Reading& reading, const HeadRow& cell,
                                 const std::vector<int32_t>& places) const;
  std::optional<Expected> expected_of(const OracleRow& row, int64_t result_row) const;
  std::optional<Expected> merged(const Reading& reading, const HeadRow& cell,
                                 const std::vector<int32_t>& places) const;
  Expected merged(const Reading& reading, const std::vector<Expected>& parts) const;
  bool meets_hidden(const Reading& reading, const HeadRow& cell,
                    const std::vector<int32_t>& places) const;
  bool holds_nan(int32_t token, const Reading& reading, int32_t head) const;
  enum class Nan : uint8_t { kNone, kHeld, kMade };  // by memory, by arithmetic
  Nan nan_of(const HeadRow& cell) const;
  /// True for results that are not computed from the keys.
  bool agrees_as(Reading reading, const HeadRow& cell) const;
  bool agrees(const Reading& reading, const Expected& expected, const HeadRow& cell) const;
  bool agrees_lse(const Reading& reading, const Expected& expected, const HeadRow& cell) const;
  bool is_mark(const Reading& reading, const HeadRow& cell) const;
  bool is_zero(const Reading& reading, const HeadRow& cell) const;
  bool is_unwritten(const ConstTensorView& tensor, const HeadRow& cell) const;

  const Scene& scene_;
  const Result& result_;
  const Arithmetic& arithmetic_;
  const DiagnoseOptions& options_;
};

}  // namespace shadowgraph
