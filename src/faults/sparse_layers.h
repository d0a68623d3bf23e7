// Faults of DeepSeek sparse attention: what a token sees, the tables it is found by, what is
// chosen, and index keys.
#pragma once

#include <map>
#include <utility>

#include "check/tap.h"

namespace shadowgraph {

/// A verify's token sees what stands before it, and not itself.
struct DraftWithoutItself final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// A verify's tables have a row for each request, where its kernels read one for each token.
struct RowsNotRepeated final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// The -1 behind what is chosen is looked up in the table, too, and attention reads all of a row.
struct NoneLookedUp final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// Every token chooses topk keys, however few it sees.
struct TopkOfFewer final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// Where a token's keys begin is summed up of new tokens, and not of keys.
struct KeysBeginByNewTokens final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// A graph lacks the store of index keys: replays score what lay in their slots.
struct IndexKeysNotStored final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// Metadata of graphs is kept by the number of rows alone: of two modes the later capture gets what
/// is filled for either.
class GraphsByRowsAlone final : public Tap {
 public:
  void bound(Meta& meta, bool capturing) override;
  Status filled(const ForwardBatch& batch, Meta& meta) override;

 private:
  using Shape = std::pair<ForwardMode, int32_t>;  // and the draft's step
  std::map<int32_t, Shape> last_;                 // captured, by rows
};

/// The scale of an index key is stored in the page before its own.
struct ScaleInPageBefore final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& meta, bool capturing) override;
};

/// The table of pages has slots: every 64th, not divided.
struct PagesNotDivided final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

}  // namespace shadowgraph
