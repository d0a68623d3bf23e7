// The oracle of attention over chosen keys: each token's own, one after the other, in double.
// Shares with the kernel where a slot lies, and nothing else. Tested by
// tests/oracle/sparse_oracle_test.cc.
#pragma once

#include <vector>

#include "oracle/oracle.h"
#include "shadowgraph/layers/sparse.h"

namespace shadowgraph {

/// head_dim elements of a slot's latent, as LatentLayout says.
std::vector<double> latent_of(const LatentPool& pool, int64_t slot);

/// What an OracleRow's keys count.
enum class SparseKeys : uint8_t {
  kSeen,    // the slots that the token names, in order, -1 left out, those of `extra` last
  kListed,  // entries of its lists, -1 too: where blocks of a list begin
};

/// As for_each_row() of oracle.h.
void for_each_row(const SparseAttention& call, SparseKeys count, const VisitRow& visit);

}  // namespace shadowgraph
