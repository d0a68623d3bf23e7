// The indexer's kernels as launches: index keys into their pages, scores, and the choice with its
// transform, which the engine has in one kernel. All memory is the device's, lists too. Facts:
// docs/metadata.md "DSA". Tested by tests/launch/index_launch_test.cc.
#pragma once

#include "launch/launch_args.h"
#include "shadowgraph/indexer.h"
#include "shadowgraph/kernel.h"

namespace shadowgraph {

/// store_index_keys on what memory holds when it runs; slots of page 0 drop their tokens, however
/// many name one. Where the call would be refused nothing is stored, and the footprint holds the
/// writes beyond the pool. Rows of spans are tokens: whose they are says `tokens`.
KernelLaunch store_index_keys_launch(const StoreIndexKeys& call,
                                     const RequestRows& tokens = {.a_request = 0});
CallOf<StoreIndexKeys> store_index_keys_call(const KernelLaunch& launch);

/// gather_index_keys likewise: where it would be refused what it gathers is poison, and the
/// footprint holds the reads beyond the pool. Rows of spans are the call's requests.
KernelLaunch gather_index_keys_launch(const GatherIndexKeys& call, const RequestRows& rows = {});
CallOf<GatherIndexKeys> gather_index_keys_call(const KernelLaunch& launch);

/// indexer_logits likewise: where it would be refused the logits are poison, and the footprint
/// holds the reads beyond the pool.
KernelLaunch indexer_logits_launch(const IndexerLogits& call,
                                   const RequestRows& tokens = {.a_request = 0});
CallOf<IndexerLogits> indexer_logits_call(const KernelLaunch& launch);

/// select_indices, then transform_indices of what it chose: transform.indices is select.indices.
struct ChooseIndices {
  SelectIndices select;
  TransformIndices transform;
};
/// Where either would be refused both outputs are poison. What is read of the table is what the
/// scores choose when it runs.
KernelLaunch choose_indices_launch(const ChooseIndices& call,
                                   const RequestRows& tokens = {.a_request = 0});
CallOf<ChooseIndices> choose_indices_call(const KernelLaunch& launch);

extern const Kernel kStoreIndexKeys, kGatherIndexKeys, kIndexerLogits, kChooseIndices;

}  // namespace shadowgraph
