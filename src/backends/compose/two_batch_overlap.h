// TwoBatchOverlap: a batch in two halves, so that one half's communication hides behind the other's
// compute. Facts: docs/metadata.md "Composed backends". Tested by
// tests/backends/two_batch_overlap_test.cc.
#pragma once

#include <string>

#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// How much of a batch is its first half.
struct BatchSplit {
  int64_t rows = 0, tokens = 0;
  bool request = false;  // the tokens end inside of the next request
  bool operator==(const BatchSplit&) const = default;
};

/// Where an eager batch is split: rows / 2 where all requests have as many queries, else where the
/// queries of the halves differ least, of two such places the later. Prompts of which a half then
/// has less than two_chunk_below of all tokens are cut at half of them, if no layer lets a token
/// see those behind it.
BatchSplit split_of(const ForwardBatch& batch, const ModelConfig& model = {});

/// What each half is bound for. Requires limits that have two.
Limits left_half(const Limits& limits);
Limits right_half(const Limits& limits);

/// A child's metadata for each half, in arena scopes "left" and "right"; Limits say where it is
/// split. Requests and tokens are sliced, the rows of LayerIo too; a request that is cut has in the
/// right half what the left one stores as its prefix. A graph's halves have a fixed
/// number of tokens each: a batch that does not split there (ragged draft extends) is refused.
class TwoBatchOverlap final : public Backend {
 public:
  /// "NAME_two_batch". The child outlives this.
  explicit TwoBatchOverlap(const Backend& child);

  const BackendInfo& info() const override { return info_; }
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override;
  Status fill(const ForwardBatch& batch, Meta& meta) const override;
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override;
  std::vector<int32_t> merged_parts(const ForwardBatch& batch, const Limits& limits,
                                    const LayerKind& kind) const override;
  Status for_each_part(const ForwardBatch& batch, Meta& meta, const PartFn& fn) const override;

 private:
  const Backend& child_;
  const std::string name_;
  BackendInfo info_;
};

}  // namespace shadowgraph
