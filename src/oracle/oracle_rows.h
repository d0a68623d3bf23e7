// What every attention oracle makes of a row, once its keys are known.
#pragma once

#include "oracle/oracle.h"

namespace shadowgraph {

/// Logits of row.keys, out of k [kv_len, head_dim_qk], abs_k = |k| and key_scales [kv_len]; scale
/// and soft cap are the row's. Nothing where it sees no key.
void set_logits(const RowMatrix& k, const RowMatrix& abs_k, const Eigen::ArrayXd& key_scales,
                const Eigen::VectorXd& q, OracleRow& row);

/// Softmax and weighted mean, from row.keys, row.logits, row.values and row.sink.
void finish(OracleRow& row);

}  // namespace shadowgraph
