// What every attention oracle makes of a row, once its keys are known.
#pragma once

#include <cmath>

#include "oracle/oracle.h"

namespace shadowgraph {

/// Keys of a row that meet the same query.
struct KeyRun {
  const ConstTensorView* q;
  size_t begin, end;  // of OracleRow::keys
};

/// The largest magnitude, NaN aside: one that a row does not see says nothing of it. 0: none.
double largest_of(const RowMatrix& x);
/// OracleRow::terms of a row with one query.
int32_t terms_of(const Eigen::VectorXd& q);
/// Room for the logits of row.keys.
void resize_logits(OracleRow& row);
/// Those of a run, out of k [kv_len, head_dim_qk], abs_k = |k| and key_scales [kv_len]; scale and
/// soft cap are the row's.
void set_logits(const RowMatrix& k, const RowMatrix& abs_k, const Eigen::ArrayXd& key_scales,
                const Eigen::VectorXd& q, const KeyRun& run, OracleRow& row);

/// A query of a head, and a key: what the terms of its logit depend on.
struct ScorePlace {
  int64_t head = 0, query = 0, key = 0;
  int64_t first_position = 0;  // of query 0
  int64_t first_bias = 0;      // its request's first key, among the keys of all requests
};
/// The sum of the terms that are added to a logit, and the sum of their magnitudes.
struct AddedTerms {
  double sum = 0, magnitude = 0;
  void add(double term) { sum += term, magnitude += std::abs(term); }
};
AddedTerms added_terms(const AttentionParams& p, const ScorePlace& at);
double temperature_at(const AttentionTerms& t, int64_t position);

/// Softmax and weighted mean, from row.keys, row.logits, row.values and row.sink.
void finish(OracleRow& row);

}  // namespace shadowgraph
