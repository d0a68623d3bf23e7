// What every attention oracle makes of a row, once its keys are known.
#pragma once

#include "oracle/oracle.h"

namespace shadowgraph {

/// Keys of a row that meet the same query.
struct KeyRun {
  const ConstTensorView* q;
  size_t begin, end;  // of OracleRow::keys
};

/// Room for the logits of row.keys.
void resize_logits(OracleRow& row);
/// Those of a run, out of k [kv_len, head_dim_qk], abs_k = |k| and key_scales [kv_len]; scale and
/// soft cap are the row's.
void set_logits(const RowMatrix& k, const RowMatrix& abs_k, const Eigen::ArrayXd& key_scales,
                const Eigen::VectorXd& q, const KeyRun& run, OracleRow& row);

/// Softmax and weighted mean, from row.keys, row.logits, row.values and row.sink.
void finish(OracleRow& row);

}  // namespace shadowgraph
