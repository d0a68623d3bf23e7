// The indexer's kernels as launches: index keys into their pages, scores, and the choice with its
// transform, which the engine has in one kernel. All memory is the device's, lists too. Facts:
// docs/metadata.md "DSA". Tested by tests/launch/index_launch_test.cc.
#pragma once

#include "attn/visit/visit_sparse.h"
#include "launch/launch_args.h"
#include "shadowgraph/device/kernel.h"
#include "shadowgraph/layers/indexer.h"

namespace shadowgraph {

/// store_index_keys on what memory holds when it runs; slots of page 0 drop their tokens, however
/// many name one. Where the call would be refused nothing is stored, and the footprint holds the
/// writes beyond the pool. Rows of spans are tokens: whose they are says `tokens`.
KernelLaunch store_index_keys_launch(StoreIndexKeys call,
                                     const RequestRows& tokens = {.a_request = 0});

/// gather_index_keys likewise: where it would be refused what it gathers is poison, and the
/// footprint holds the reads beyond the pool. Rows of spans are the call's requests.
KernelLaunch gather_index_keys_launch(const GatherIndexKeys& call, const RequestRows& rows = {});

/// indexer_logits likewise: where it would be refused the logits are poison, and the footprint
/// holds the reads beyond the pool.
KernelLaunch indexer_logits_launch(const IndexerLogits& call,
                                   const RequestRows& tokens = {.a_request = 0});

/// select_indices, then transform_indices of what it chose: transform.indices is select.indices.
struct ChooseIndices {
  SelectIndices select;
  TransformIndices transform;
};
template <class V>
void visit_args(V& v, ChooseIndices& c) {
  v("select", c.select);
  c.transform.indices = c.select.indices;
  v("transform.page_table_1", c.transform.page_table_1);
  v("transform.rows", c.transform.rows);
  v("transform.offsets", c.transform.offsets);
  v("transform.out", c.transform.out);
  v("transform.options", c.transform.options);
}
/// Where either would be refused both outputs are poison. What is read of the table is what the
/// scores choose when it runs.
KernelLaunch choose_indices_launch(const ChooseIndices& call,
                                   const RequestRows& tokens = {.a_request = 0});

extern const Kernel kStoreIndexKeys, kGatherIndexKeys, kIndexerLogits, kChooseIndices;

}  // namespace shadowgraph
